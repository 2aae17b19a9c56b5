// SPDX-License-Identifier: MIT
// The commands that read the results store.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "cli/common.h"
#include "gallop/error.h"
#include "lab/store.h"
#include "lab/store_diff.h"

namespace gallop::cli {
namespace {

constexpr int kWorse = 4;
constexpr size_t kLeastOfACommit = 4;  // digits

[[noreturn]] void invalid(const std::string& what) {
  throw Error(ErrorCode::invalid_argument, what);
}

struct Selection {
  std::string db, kind, commit;
  int64_t run = 0;
  std::vector<std::string> with;

  void add_to(CLI::App& app) {
    add_store(app);
    app.add_option("--run", run, "Of this run alone; its number is in gallop history")
        ->check(CLI::PositiveNumber)
        ->type_name("N");
    app.add_option("--kind", kind,
                   "Of this command alone: 'bench step', 'bench train', 'train' ...");
    app.add_option("--commit", commit, "Of builds of this commit, or a beginning of one");
    app.add_option("--where", with,
                   "Rows with this value in a field: model=S; several: all of them")
        ->type_name("FIELD=VALUE")
        ->take_all();
  }
  void add_store(CLI::App& app) {
    app.add_option("--db", db, "The results store; default: the user's")->type_name("FILE");
  }
  lab::Wanted wanted() const {
    lab::Wanted w;
    if (run > 0) w.run = run;
    w.kind = kind;
    w.commit = commit;
    for (const std::string& text : with) {
      const size_t equals = text.find('=');
      if (equals == std::string::npos || equals == 0) {
        invalid(fmt::format("--where '{}', expected FIELD=VALUE", text));
      }
      w.with.emplace_back(text.substr(0, equals), text.substr(equals + 1));
    }
    return w;
  }
  lab::Store open() const { return lab::Store(path(), lab::Store::Access::read); }
  std::string path() const {
    std::string found = db.empty() ? lab::default_store() : db;
    if (found.empty())
      invalid("no results store: GALLOP_DB is empty or there is no HOME, expected --db FILE");
    return found;
  }
};

lab::Row origin_row(const lab::StoredRun& r) {
  const lab::Origin& o = r.origin;
  lab::Row row;
  row.set("run", r.id).set("time", o.time).set("kind", r.kind).set("rows", r.rows);
  row.set("commit", o.commit)
      .set("command", o.command)
      .set("seed", o.seed ? lab::Value(*o.seed) : lab::Value());
  row.set("cpu", o.cpu).set("cpus", o.cpus).set("gpu", o.gpu).set("driver", o.driver);
  row.set("clocks", o.clocks);
  row.set("os", o.os).set("compiler", o.compiler).set("version", o.version);
  return row;
}

bool has_run(const lab::Store& store, int64_t number) {
  lab::Wanted wanted;
  wanted.run = number;
  return !store.runs(wanted).empty();
}

// A number, last, last~1, a store's file, or a commit.
std::vector<lab::StoredRow> side(const Selection& s, const std::string& text) {
  lab::Wanted wanted = s.wanted();
  std::error_code error;
  if (std::filesystem::is_regular_file(text, error)) {
    return lab::Store(text, lab::Store::Access::read).rows(wanted);
  }
  const lab::Store store = s.open();
  int64_t number = 0;
  const auto whole = [&](const char* first) {
    const char* last = text.data() + text.size();
    const auto [end, wrong] = std::from_chars(first, last, number);
    return wrong == std::errc() && end == last && number >= 0;
  };
  constexpr std::string_view kLast = "last";
  if (text == kLast) {
    wanted.run = store.last_run(0);
  } else if (text.starts_with("last~") && whole(text.data() + kLast.size() + 1)) {
    wanted.run = store.last_run(number);
  } else if (whole(text.data()) && has_run(store, number)) {
    wanted.run = number;
  } else if (text.size() >= kLeastOfACommit) {
    wanted.commit = text;
  }
  std::vector<lab::StoredRow> rows;
  if (wanted.run || !wanted.commit.empty()) rows = store.rows(wanted);
  if (rows.empty()) {
    invalid(
        fmt::format("'{}' names no results in {}, expected the number of a run, last, last~1, a "
                    "commit, or the file of another store",
                    text, s.path()));
  }
  return rows;
}

}  // namespace

void add_history(CLI::App& app) {
  struct State {
    Output output;
    Selection selection;
    int64_t last = 20;
  };
  auto s = std::make_shared<State>();
  CLI::App* history = app.add_subcommand(
      "history", "What was measured: the runs in the results store, or with --run one run's rows");
  s->selection.add_to(*history);
  history->add_option("--last", s->last, "At most so many runs, the latest")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  s->output.add_to(*history);
  history->callback([s] {
    const lab::Store store = s->selection.open();
    const lab::Wanted wanted = s->selection.wanted();
    lab::Table table;
    if (wanted.run || !wanted.with.empty()) {
      for (const lab::StoredRow& r : store.rows(wanted)) {
        lab::Row row;
        if (!wanted.run) row.set("run", r.run);
        for (const auto& [name, value] : r.row) row.set(name, value);
        table.rows.push_back(std::move(row));
      }
      if (wanted.run && table.rows.empty()) {
        invalid(fmt::format("run {} has no such rows in {}", *wanted.run, s->selection.path()));
      }
      return s->output.emit(table);
    }
    std::vector<lab::StoredRun> runs = store.runs(wanted);
    const auto most = static_cast<size_t>(s->last);
    if (runs.size() > most) {
      table.notes.push_back(fmt::format("{} earlier runs: --last shows more", runs.size() - most));
      runs.erase(runs.begin(), runs.end() - static_cast<std::ptrdiff_t>(most));
    }
    for (const lab::StoredRun& r : runs) table.rows.push_back(origin_row(r));
    table.columns = {"run", "time", "kind", "rows", "commit", "command"};
    table.notes.push_back(fmt::format("{}; --run N shows a run's rows", s->selection.path()));
    s->output.emit(table);
  });
}

void add_export(CLI::App& app) {
  struct State {
    Output output;
    Selection selection;
  };
  auto s = std::make_shared<State>();
  s->output.format = "json";
  CLI::App* out = app.add_subcommand(
      "export", "Rows of the results store with where they come from, as csv or json");
  s->selection.add_to(*out);
  s->output.add_to(*out);
  out->callback([s] {
    const lab::Store store = s->selection.open();
    const lab::Wanted wanted = s->selection.wanted();
    std::map<int64_t, lab::Row> origins;
    for (const lab::StoredRun& r : store.runs(wanted)) origins[r.id] = origin_row(r);
    lab::Table table;
    for (const lab::StoredRow& r : store.rows(wanted)) {
      lab::Row row = origins.at(r.run);
      row.set("config_hash", r.config_hash);
      for (const auto& [name, value] : r.row) {
        row.set(row.find(name) == nullptr ? name : "row_" + name, value);
      }
      table.rows.push_back(std::move(row));
    }
    s->output.emit(table);
  });
}

void add_diff(CLI::App& app, int& exit_code) {
  struct State {
    Output output;
    Selection selection;
    lab::DiffOptions options;
    std::string a, b, unit = "automatic";
  };
  auto s = std::make_shared<State>();
  CLI::App* diff = app.add_subcommand(
      "diff",
      fmt::format(
          "Results next to others of the same configurations: what is better, what is worse.\n"
          "Run each side four times or more, and name each by its commit or a store of its "
          "own.\nExits with {} if something is worse.",
          kWorse));
  diff->add_option("A", s->a, "A run's number, last, last~1, a commit, or a store's file")
      ->required();
  diff->add_option("B", s->b, "What is compared with it, named alike")->required();
  s->selection.add_store(*diff);
  diff->add_option("--kind", s->selection.kind, "Rows of this command alone");
  diff->add_option("--where", s->selection.with, "Rows with this value in a field")
      ->type_name("FIELD=VALUE")
      ->take_all();
  diff->add_option("--metric", s->options.metric,
                   "The field to compare; default: what rows have samples of, mostly a time");
  diff->add_option("--unit", s->unit,
                   "What counts as one observation: runs (their medians), samples, or automatic: "
                   "runs where both sides have 4")
      ->check(CLI::IsMember({"automatic", "samples", "runs"}))
      ->capture_default_str();
  diff->add_option("--tolerance", s->options.tolerance,
                   "What is worse by no more than this share is not: 0.05 for 5 %")
      ->check(CLI::Range(0.0, 10.0))
      ->capture_default_str();
  s->output.add_to(*diff);
  diff->callback([s, &exit_code] {
    s->options.unit = s->unit == "runs"      ? lab::Unit::runs
                      : s->unit == "samples" ? lab::Unit::samples
                                             : lab::Unit::automatic;
    const lab::Diff found =
        lab::compare_results(side(s->selection, s->a), side(s->selection, s->b), s->options);
    s->output.emit(found.table);
    if (found.worse > 0) exit_code = kWorse;
  });
}

}  // namespace gallop::cli
