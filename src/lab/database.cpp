// SPDX-License-Identifier: MIT
#include "lab/database.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include "gallop/error.h"

namespace gallop::lab {
namespace {

[[noreturn]] void fail(sqlite3* database, int code, const std::string& path) {
  const int kind = code & 0xff;
  if (kind == SQLITE_NOTADB) {
    throw Error(
        ErrorCode::invalid_file,
        fmt::format("{} is no results store, expected an SQLite file that gallop made", path));
  }
  throw Error(ErrorCode::io,
              fmt::format("the results store {}: {}", path,
                          database != nullptr ? sqlite3_errmsg(database) : sqlite3_errstr(code)));
}

}  // namespace

Statement::Statement(sqlite3* database, const std::string& path, std::string_view sql)
    : database_(database), path_(path) {
  const int code =
      sqlite3_prepare_v2(database, sql.data(), static_cast<int>(sql.size()), &statement_, nullptr);
  if (code != SQLITE_OK) fail(database, code, path);
}

Statement::~Statement() { sqlite3_finalize(statement_); }

Statement& Statement::bind(int64_t value) {
  const int code = sqlite3_bind_int64(statement_, ++bound_, value);
  if (code != SQLITE_OK) fail(database_, code, path_);
  return *this;
}

Statement& Statement::bind(std::string_view text) {
  const int code = sqlite3_bind_text64(statement_, ++bound_, text.data(), text.size(),
                                       SQLITE_TRANSIENT, SQLITE_UTF8);
  if (code != SQLITE_OK) fail(database_, code, path_);
  return *this;
}

Statement& Statement::bind(const std::optional<int64_t>& value) {
  if (value) return bind(*value);
  ++bound_;  // what is not bound is null
  return *this;
}

bool Statement::step() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) fail(database_, code, path_);
  return false;
}

int64_t Statement::integer(int column) const { return sqlite3_column_int64(statement_, column); }

std::string Statement::text(int column) const {
  const auto* bytes = static_cast<const char*>(sqlite3_column_blob(statement_, column));
  return {bytes == nullptr ? "" : bytes,
          static_cast<size_t>(sqlite3_column_bytes(statement_, column))};
}

bool Statement::null(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_NULL;
}

bool Database::available() { return true; }

Database::Database(std::string path, Access access, double patience_s) : path_(std::move(path)) {
  const int flags =
      access == Access::read ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  const int code = sqlite3_open_v2(path_.c_str(), &handle_, flags, nullptr);
  if (code != SQLITE_OK) {
    sqlite3_close(handle_);
    fail(nullptr, code, path_);
  }
  sqlite3_busy_timeout(handle_, static_cast<int>(patience_s * 1e3));
}

Database::~Database() { sqlite3_close(handle_); }

void Database::run(const char* sql) const {
  const int code = sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) fail(handle_, code, path_);
}

int64_t Database::last_id() const { return sqlite3_last_insert_rowid(handle_); }

// At once, not with the first write: two that have both read could then not both write.
Transaction::Transaction(const Database& database) : database_(database) {
  database.run("BEGIN IMMEDIATE");
}

Transaction::~Transaction() {
  if (!open_) return;
  try {
    database_.run("ROLLBACK");
  } catch (const Error&) {  // SQLite took it back itself
  }
}

void Transaction::commit() {
  database_.run("COMMIT");
  open_ = false;
}

}  // namespace gallop::lab
