// SPDX-License-Identifier: MIT
// SQLite, as much of it as the results store needs. A build without it has a stub.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

struct sqlite3;
struct sqlite3_stmt;

namespace gallop::lab {

class Statement {
 public:
  Statement(sqlite3* database, const std::string& path, std::string_view sql);
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& bind(int64_t value);  // to the next parameter
  Statement& bind(std::string_view text);
  Statement& bind(const std::optional<int64_t>& value);

  bool step();  // true: there is a row
  int64_t integer(int column) const;
  std::string text(int column) const;
  bool null(int column) const;

 private:
  sqlite3* database_;
  const std::string& path_;
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
};

class Database {
 public:
  static bool available();

  enum class Access { read, write };  // write makes the file when it is not there
  // What another process has locked is waited for, as long as `patience_s`.
  Database(std::string path, Access access, double patience_s);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  const std::string& path() const { return path_; }
  Statement prepare(std::string_view sql) const { return {handle_, path_, sql}; }
  void run(const char* sql) const;
  int64_t last_id() const;

 private:
  std::string path_;
  sqlite3* handle_ = nullptr;
};

// All that was done until commit(), or nothing.
class Transaction {
 public:
  explicit Transaction(const Database& database);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit();

 private:
  const Database& database_;
  bool open_ = true;
};

}  // namespace gallop::lab
