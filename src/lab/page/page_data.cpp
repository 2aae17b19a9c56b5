// SPDX-License-Identifier: MIT
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "gallop/error.h"
#include "gallop/version.h"
#include "lab/figures.h"
#include "lab/page/page.h"
#include "lab/page/parts.h"

namespace gallop::lab {
namespace {

constexpr const char* kTrials = "race trial";
constexpr size_t kRaces = 6, kOthers = 3;  // of each kind, with other command lines

// The documents this lab began with, and what makes each today.
struct Suite {
  const char *kind, *about;
};
constexpr Suite kSuites[] = {
    {"suite adam-grid", "Adam by number and size of tensors: one at a time, all at once, compiled"},
    {"suite adan-gpt2", "Adam and Adan on shapes of GPT-2: time and memory"},
    {"suite cs336", "Forward, backward and step of a transformer by size and precision"},
    {"suite adamw-8bit", "AdamW next to AdamW with 8-bit state, by tokens a second"},
    {"suite profile", "Optimizers side by side: time, memory, utilisation"},
};

bool is_suite(const std::string& kind) {
  return std::any_of(std::begin(kSuites), std::end(kSuites),
                     [&](const Suite& s) { return kind == s.kind; });
}

std::string now() {
  const auto t = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(t));
}

Json facts_of(const StoredRun& run) {
  const Origin& o = run.origin;
  Json facts = {
      {"run", run.id}, {"time", o.time}, {"command", o.command}, {"machine", machine_of(o)}};
  if (!o.driver.empty()) facts["driver"] = "driver " + o.driver;
  if (!o.clocks.empty()) facts["clocks"] = o.clocks;
  facts["build"] =
      fmt::format("{}{}{}, {}", o.version, o.commit.empty() ? "" : " ", o.commit, o.compiler);
  if (o.seed) facts["seed"] = *o.seed;
  return facts;
}

Json section_of(const std::string& title, const std::string& group, Json parts) {
  return {{"title", title}, {"group", group}, {"parts", std::move(parts)}};
}

// The trials of a race are kept just before its leaderboard, by the same command.
std::vector<Row> trials_of(const Store& store, const std::vector<StoredRun>& runs,
                           const StoredRun& race) {
  for (auto r = runs.rbegin(); r != runs.rend(); ++r) {
    if (r->id >= race.id || r->kind != kTrials || r->origin.command != race.origin.command)
      continue;
    std::vector<Row> rows;
    for (StoredRow& row : store.rows({r->id, {}, {}, {}})) rows.push_back(std::move(row.row));
    return rows;
  }
  return {};
}

// Of a run whose tables have none: its command, and what was measured with it.
std::string title_of(const std::string& kind, const std::vector<Row>& rows) {
  constexpr size_t kMost = 4;
  std::vector<std::string> names;
  for (const Row& r : rows) {
    const std::string name = text(r, "optimizer");
    if (name.empty() || std::find(names.begin(), names.end(), name) != names.end()) continue;
    names.push_back(names.size() < kMost ? name : "...");
    if (names.size() > kMost) break;
  }
  return names.empty() ? kind : fmt::format("{}: {}", kind, fmt::join(names, ", "));
}

Json section_of_run(const Store& store, const std::vector<StoredRun>& runs, const StoredRun& run) {
  const std::vector<Table> tables = store.tables(run.id);
  Json parts = Json::array();
  if (run.kind == "race") {
    for (Json& part : race_parts(tables[0], trials_of(store, runs, run))) {
      parts.push_back(std::move(part));
    }
  }
  const std::vector<Row> rows = joined(tables).rows;
  for (Json part : {heat_part(rows), roofline_part(rows), memory_part(rows)}) {
    if (!part.is_null()) parts.push_back(std::move(part));
  }
  for (const Table& t : tables) {
    // Of a race the table comes first.
    const auto at = run.kind == "race" ? parts.begin() + (&t - tables.data()) : parts.end();
    parts.insert(at, table_part(t));
  }
  const std::string& title = tables[0].title;
  Json section =
      section_of(title.empty() ? title_of(run.kind, rows) : title, run.kind, std::move(parts));
  section["facts"] = facts_of(run);
  return section;
}

// The newest first: of suites one, of others a few with different commands.
std::vector<StoredRun> chosen(const std::vector<StoredRun>& runs, const PageOptions& options) {
  std::vector<StoredRun> out;
  std::map<std::string, std::set<std::string>> seen;
  for (auto r = runs.rbegin(); r != runs.rend(); ++r) {
    if (!options.runs.empty()) {
      const auto& wanted = options.runs;
      if (std::find(wanted.begin(), wanted.end(), r->id) != wanted.end()) out.push_back(*r);
      continue;
    }
    if (r->kind == kTrials || r->kind == "profile run") continue;
    std::set<std::string>& commands = seen[r->kind];
    const size_t most = r->kind == "race" ? kRaces : is_suite(r->kind) ? 1 : kOthers;
    if (commands.size() < most && commands.insert(r->origin.command).second) out.push_back(*r);
  }
  return out;
}

// Races, then the suites in their order, then what else there is.
size_t place_of(const std::string& kind) {
  if (kind == "race") return 0;
  const auto at = std::find_if(std::begin(kSuites), std::end(kSuites),
                               [&](const Suite& s) { return kind == s.kind; });
  return at == std::end(kSuites) ? 100 : 1 + static_cast<size_t>(at - std::begin(kSuites));
}

Json missing_suites(const std::vector<StoredRun>& runs) {
  Table table;
  table.columns = {"command", "what it shows"};
  for (const Suite& s : kSuites) {
    const bool there =
        std::any_of(runs.begin(), runs.end(), [&](const StoredRun& r) { return r.kind == s.kind; });
    if (there) continue;
    Row row;
    row.set("command", fmt::format("gallop {}", s.kind)).set("what it shows", s.about);
    table.rows.push_back(row);
  }
  if (table.rows.empty()) return nullptr;
  return section_of("Not run yet", "suites", Json::array({table_part(table)}));
}

Json all_runs(const std::vector<StoredRun>& runs) {
  Table table;
  for (auto r = runs.rbegin(); r != runs.rend(); ++r) {
    Row row;
    row.set("run", r->id).set("time", r->origin.time).set("kind", r->kind).set("rows", r->rows);
    row.set("commit", r->origin.commit).set("machine", machine_of(r->origin));
    row.set("command", r->origin.command);
    table.rows.push_back(std::move(row));
  }
  Json section = section_of("All runs in the store", "runs", Json::array({table_part(table)}));
  section["folded"] = true;
  return section;
}

Json frame(const PageOptions& options, const Json& running) {
  Json data = {{"title", options.title},
               {"made", now()},
               {"version", GALLOP_VERSION},
               {"live", options.live},
               {"sections", Json::array()}};
  if (!running.is_null()) data["sections"].push_back(running);
  return data;
}

}  // namespace

Json page_data(const Store& store, const PageOptions& options, const Json& running) {
  const std::vector<StoredRun> runs = store.runs({});
  for (const int64_t wanted : options.runs) {
    const bool there =
        std::any_of(runs.begin(), runs.end(), [&](const StoredRun& r) { return r.id == wanted; });
    if (there) continue;
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("the store has no run {}, expected one that gallop history lists", wanted));
  }
  Json data = frame(options, running);
  std::vector<StoredRun> shown = chosen(runs, options);
  std::stable_sort(shown.begin(), shown.end(), [](const StoredRun& a, const StoredRun& b) {
    return place_of(a.kind) < place_of(b.kind);
  });
  for (const StoredRun& run : shown) {
    data["sections"].push_back(section_of_run(store, runs, run));
  }
  if (!options.runs.empty()) return data;
  if (Json missing = missing_suites(runs); !missing.is_null()) {
    data["sections"].push_back(std::move(missing));
  }
  if (!runs.empty()) data["sections"].push_back(all_runs(runs));
  return data;
}

Json page_data_without_store(const PageOptions& options, const Json& running) {
  return frame(options, running);
}

}  // namespace gallop::lab
