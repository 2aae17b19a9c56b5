// SPDX-License-Identifier: MIT
#include "lab/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "gallop/error.h"
#include "lab/left_behind.h"
#include "lab/row_json.h"

namespace gallop::lab {
namespace {

constexpr int64_t kLayout = 2;  // of the tables; 1 had no `shown` and no clocks

constexpr const char* kTables = R"sql(
CREATE TABLE IF NOT EXISTS runs(
  id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, time TEXT NOT NULL, kind TEXT NOT NULL,
  command TEXT NOT NULL, version TEXT NOT NULL, commit_id TEXT NOT NULL, compiler TEXT NOT NULL,
  cpu TEXT NOT NULL, cpus INTEGER NOT NULL, os TEXT NOT NULL, gpu TEXT NOT NULL,
  driver TEXT NOT NULL, seed INTEGER, clocks TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS rows(
  id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs(id), config TEXT NOT NULL,
  config_hash TEXT NOT NULL, result TEXT NOT NULL, samples TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS shown(
  run INTEGER NOT NULL REFERENCES runs(id), title TEXT NOT NULL, columns TEXT NOT NULL,
  notes TEXT NOT NULL, rows INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS shown_of_run ON shown(run);
CREATE INDEX IF NOT EXISTS rows_of_run ON rows(run);
CREATE INDEX IF NOT EXISTS rows_of_config ON rows(config_hash);
PRAGMA user_version = 2;
)sql";

std::string with_folder(const std::string& path, Store::Access access) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (access == Store::Access::write && !folder.empty()) {
    std::filesystem::create_directories(folder, error);
  } else if (access == Store::Access::read && !std::filesystem::exists(path, error)) {
    throw Error(ErrorCode::io,
                fmt::format("there is no results store {}, expected one that an earlier bench, "
                            "suite or train made",
                            path));
  }
  return path;
}

std::string as_text(const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  return dump(exact_json(value));
}

bool has(const Row& row, const std::pair<std::string, std::string>& field) {
  const Value* value = row.find(field.first);
  return value != nullptr && as_text(*value) == field.second;
}

// The clause for what the tables know; fields are looked at after that.
std::string clause(const Wanted& w) {
  std::string sql = " WHERE 1";
  if (w.run) sql += " AND runs.id = ?";
  if (!w.kind.empty()) sql += " AND runs.kind = ?";
  if (!w.commit.empty()) sql += " AND substr(runs.commit_id, 1, length(?)) = ?";
  return sql;
}

void bind(Statement& statement, const Wanted& w) {
  if (w.run) statement.bind(*w.run);
  if (!w.kind.empty()) statement.bind(w.kind);
  if (!w.commit.empty()) statement.bind(w.commit).bind(w.commit);
}

}  // namespace

Store::Store(const std::string& path, Access access, double patience_s)
    : database_(with_folder(path, access), access, patience_s) {
  const int64_t layout = known_layout();
  if (access == Access::read) return;
  if (layout < kLayout) make_tables();
  take_in_left_behind();
}

int64_t Store::known_layout() const {
  Statement layout = database_.prepare(
      "SELECT user_version, (SELECT count(*) FROM sqlite_master) FROM pragma_user_version");
  layout.step();
  const int64_t found = layout.integer(0);
  if (found > kLayout) {
    throw Error(ErrorCode::invalid_file,
                fmt::format("{} was made by a newer gallop (layout {}), expected at most {}",
                            database_.path(), found, kLayout));
  }
  if (found == 0 && layout.integer(1) > 0) {
    throw Error(ErrorCode::invalid_file,
                fmt::format("{} is somebody else's SQLite file, expected a results store",
                            database_.path()));
  }
  return found;
}

void Store::make_tables() const {
  // Readers do not wait for writers; where a file system cannot do it, it stays as it is.
  try {
    database_.run("PRAGMA journal_mode = WAL");
  } catch (const Error&) {
  }
  database_.run("PRAGMA synchronous = FULL");
  Transaction transaction(database_);
  const int64_t layout = known_layout();  // as it is now that nobody else changes it
  if (layout == kLayout) return;
  if (layout == 1) database_.run("ALTER TABLE runs ADD COLUMN clocks TEXT NOT NULL DEFAULT ''");
  database_.run(kTables);
  transaction.commit();
}

int64_t Store::add(const Results& results) {
  Transaction transaction(database_);
  const Origin& o = results.origin;
  Statement known = database_.prepare("SELECT id FROM runs WHERE key = ?");
  if (known.bind(o.key).step()) return known.integer(0);  // taken in before
  Statement run = database_.prepare(
      "INSERT INTO runs(key, time, kind, command, version, commit_id, compiler, cpu, cpus, os, "
      "gpu, driver, seed, clocks) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
  run.bind(o.key).bind(o.time).bind(results.kind).bind(o.command).bind(o.version).bind(o.commit);
  run.bind(o.compiler).bind(o.cpu).bind(o.cpus).bind(o.os).bind(o.gpu).bind(o.driver);
  run.bind(o.seed).bind(o.clocks).step();
  const int64_t id = database_.last_id();
  for (const Row& row : results.rows) {
    Statement insert = database_.prepare(
        "INSERT INTO rows(run, config, config_hash, result, samples) VALUES(?, ?, ?, ?, ?)");
    insert.bind(id).bind(dump(config_json(row))).bind(config_hash(results.kind, row));
    insert.bind(dump(result_json(row))).bind(dump(samples_json(row))).step();
  }
  for (const Shown& s : results.shown) {
    Statement insert = database_.prepare(
        "INSERT INTO shown(run, title, columns, notes, rows) VALUES(?, ?, ?, ?, ?)");
    insert.bind(id).bind(s.title).bind(dump(s.columns)).bind(dump(s.notes)).bind(s.rows).step();
  }
  transaction.commit();
  return id;
}

std::vector<StoredRun> Store::runs(const Wanted& wanted) const {
  Statement found = database_.prepare(
      "SELECT id, key, time, kind, command, version, commit_id, compiler, cpu, cpus, os, gpu, "
      "driver, seed, (SELECT count(*) FROM rows WHERE run = runs.id), " +
      std::string(known_layout() == 1 ? "''" : "clocks") + " FROM runs" + clause(wanted) +
      " ORDER BY id");
  bind(found, wanted);
  std::vector<StoredRun> out;
  while (found.step()) {
    StoredRun r;
    r.id = found.integer(0);
    Origin& o = r.origin;
    o.key = found.text(1), o.time = found.text(2), r.kind = found.text(3);
    o.command = found.text(4), o.version = found.text(5), o.commit = found.text(6);
    o.compiler = found.text(7), o.cpu = found.text(8), o.cpus = found.integer(9);
    o.os = found.text(10), o.gpu = found.text(11), o.driver = found.text(12);
    if (!found.null(13)) o.seed = found.integer(13);
    r.rows = found.integer(14), o.clocks = found.text(15);
    out.push_back(std::move(r));
  }
  return out;
}

std::vector<StoredRow> Store::rows(const Wanted& wanted) const {
  Statement found = database_.prepare(
      "SELECT runs.id, runs.kind, rows.config_hash, rows.config, rows.result, rows.samples, "
      "runs.cpu, runs.cpus, runs.gpu FROM rows JOIN runs ON rows.run = runs.id" +
      clause(wanted) + " ORDER BY rows.id");
  bind(found, wanted);
  std::vector<StoredRow> out;
  while (found.step()) {
    Origin where;
    where.cpu = found.text(6), where.cpus = found.integer(7), where.gpu = found.text(8);
    StoredRow r{found.integer(0), found.text(1), found.text(2), {}, machine_of(where)};
    try {
      r.row = row_from(Json::parse(found.text(3)), Json::parse(found.text(4)),
                       Json::parse(found.text(5)));
    } catch (const Json::exception& e) {
      throw Error(ErrorCode::invalid_file, fmt::format("{}: a row of run {} is damaged ({})",
                                                       database_.path(), r.run, e.what()));
    }
    const bool fits = std::all_of(wanted.with.begin(), wanted.with.end(),
                                  [&](const auto& field) { return has(r.row, field); });
    if (fits) out.push_back(std::move(r));
  }
  return out;
}

std::vector<Table> Store::tables(int64_t run) const {
  std::vector<Table> out;
  std::vector<int64_t> sizes;
  if (known_layout() > 1) {
    Statement found = database_.prepare(
        "SELECT title, columns, notes, rows FROM shown WHERE run = ? ORDER BY rowid");
    found.bind(run);
    while (found.step()) {
      out.push_back({found.text(0), {}, Json::parse(found.text(2)), Json::parse(found.text(1))});
      sizes.push_back(found.integer(3));
    }
  }
  if (out.empty()) out.emplace_back(), sizes.push_back(std::numeric_limits<int64_t>::max());
  size_t at = 0;
  for (StoredRow& row : rows({run, {}, {}, {}})) {
    while (at + 1 < out.size() && std::ssize(out[at].rows) >= sizes[at]) ++at;
    out[at].rows.push_back(std::move(row.row));
  }
  return out;
}

int64_t Store::last_run(int64_t before) const {
  Statement found = database_.prepare("SELECT id FROM runs ORDER BY id DESC LIMIT 1 OFFSET ?");
  if (found.bind(before).step()) return found.integer(0);
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("the results store {} has no run {} before the last", database_.path(), before));
}

void Store::take_in_left_behind() {
  for (const LeftBehind& left : left_behind(database_.path())) {
    add(left.results());
    left.remove();
  }
}

std::string machine_of(const Origin& o) {
  const std::string cpu = fmt::format("{}, {} CPUs", o.cpu, o.cpus);
  return o.gpu.empty() ? cpu : fmt::format("{}; {}", o.gpu, cpu);
}

Results results_of(Origin origin, std::string kind, const std::vector<Table>& tables) {
  Results out{std::move(origin), std::move(kind), joined(tables).rows, {}};
  for (const Table& t : tables) {
    out.shown.push_back({t.title, t.columns, t.notes, std::ssize(t.rows)});
  }
  return out;
}

std::string default_store() {
  if (const char* path = std::getenv("GALLOP_DB")) return path;
  const char* data = std::getenv("XDG_DATA_HOME");
  if (data != nullptr && *data == '/') return std::string(data) + "/gallop/results.db";
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return {};
  return std::string(home) + "/.local/share/gallop/results.db";
}

std::string keep(const Results& results, const std::string& path, double patience_s) {
  std::string why;
  try {
    Store(path, Store::Access::write, patience_s).add(results);
    return {};
  } catch (const Error& e) {
    why = e.what();
  }
  try {
    const std::string file = leave_behind(results, path);
    return fmt::format("{}; the results are in {} until they can be kept", why, file);
  } catch (const Error& e) {
    return fmt::format("{}; the results are kept nowhere ({})", why, e.what());
  }
}

}  // namespace gallop::lab
