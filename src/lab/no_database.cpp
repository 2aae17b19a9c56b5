// SPDX-License-Identifier: MIT
// For builds without SQLite.
#include "gallop/error.h"
#include "lab/database.h"

namespace gallop::lab {
namespace {

[[noreturn]] void missing() {
  throw Error(ErrorCode::unsupported,
              "this build keeps no results: SQLite was not there when it was compiled");
}

}  // namespace

Statement::Statement(sqlite3* database, const std::string& path, std::string_view)
    : database_(database), path_(path) {
  missing();
}
Statement::~Statement() = default;
Statement& Statement::bind(int64_t) { missing(); }
Statement& Statement::bind(std::string_view) { missing(); }
Statement& Statement::bind(const std::optional<int64_t>&) { missing(); }
bool Statement::step() { missing(); }
int64_t Statement::integer(int) const { missing(); }
std::string Statement::text(int) const { missing(); }
bool Statement::null(int) const { missing(); }

bool Database::available() { return false; }
Database::Database(std::string, Access, double) { missing(); }
Database::~Database() = default;
void Database::run(const char*) const { missing(); }
int64_t Database::last_id() const { missing(); }

Transaction::Transaction(const Database& database) : database_(database) { missing(); }
Transaction::~Transaction() = default;
void Transaction::commit() { missing(); }

}  // namespace gallop::lab
