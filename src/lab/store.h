// SPDX-License-Identifier: MIT
// Every result that was shown, in one SQLite file for all processes of a user.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/database.h"
#include "lab/row.h"

namespace gallop::lab {

// Where results come from: one for each time a command ran.
struct Origin {
  std::string key;   // told apart from all others
  std::string time;  // UTC, 2026-11-16T20:31:17Z
  std::string command, version, commit, compiler, cpu, os, gpu, driver;
  std::string clocks;  // of CPUs and GPUs, when the results were kept
  int64_t cpus = 0;
  std::optional<int64_t> seed;
};

// This program on this machine, now.
Origin describe_origin(const std::string& command, std::optional<int64_t> seed);

// A table that was shown: all but its rows.
struct Shown {
  std::string title;
  std::vector<std::string> columns, notes;
  int64_t rows = 0;  // how many, from where the last table ended
};

// What one command found.
struct Results {
  Origin origin;
  std::string kind;  // "bench step", "train"
  std::vector<Row> rows;
  std::vector<Shown> shown;
};

Results results_of(Origin origin, std::string kind, const std::vector<Table>& tables);

struct StoredRun {
  int64_t id = 0;
  Origin origin;
  std::string kind;
  int64_t rows = 0;
};

struct StoredRow {
  int64_t run = 0;
  std::string kind, config_hash;
  Row row;
  std::string machine;  // where it was measured: GPUs and CPUs
};

// Its GPUs, if any, and CPUs.
std::string machine_of(const Origin& origin);

// What of a store is wanted; nothing set: all of it.
struct Wanted {
  std::optional<int64_t> run;
  std::string kind;
  std::string commit;                                     // or the beginning of one
  std::vector<std::pair<std::string, std::string>> with;  // fields, as text
};

class Store {
 public:
  using Access = Database::Access;
  // Writing makes the file and its folder.
  Store(const std::string& path, Access access, double patience_s = 10);

  int64_t add(const Results& results);  // all or nothing; the run's number

  std::vector<StoredRun> runs(const Wanted& wanted) const;  // oldest first
  std::vector<StoredRow> rows(const Wanted& wanted) const;
  // As they were shown; one of all rows where that is not known.
  std::vector<Table> tables(int64_t run) const;
  int64_t last_run(int64_t before) const;  // 0: the last, 1: the one before it; throws if none

 private:
  void make_tables() const;
  int64_t known_layout() const;  // 0: it is empty; throws if it is no store
  void take_in_left_behind();

  Database database_;
};

// GALLOP_DB; or gallop/results.db in XDG_DATA_HOME or ~/.local/share. Empty: there is none.
std::string default_store();

// Adds them to the store. Where that fails they go into a file beside it, or if that fails too into
// the folder for temporary files, and into the store with the next results: returns what a user
// should know, or nothing.
std::string keep(const Results& results, const std::string& path, double patience_s = 10);

}  // namespace gallop::lab
