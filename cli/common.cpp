// SPDX-License-Identifier: MIT
#include "cli/common.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

#include "bench/nvml.h"
#include "cuda/memory.h"
#include "gallop/error.h"
#include "gallop/version.h"
#include "io/atomic_file.h"
#include "lab/report.h"
#include "lab/signals.h"
#include "lab/store.h"

namespace gallop::cli {
namespace {

double parse_value(const KnobInfo& knob, const std::string& text) {
  for (size_t i = 0; i < knob.choices.size(); ++i) {
    if (knob.choices[i] == text) return static_cast<double>(i);
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && knob.choices.empty()) {
    return value;
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("--{} is '{}', expected {}", knob.name, text, describe_range(knob)));
}

}  // namespace

void Output::add_to(CLI::App& app) {
  app.add_option("--format", format, "How to print: table, markdown, csv or json")
      ->check(CLI::IsMember({"table", "markdown", "csv", "json"}))
      ->capture_default_str()
      ->group("Output");
  app.add_option("--out", path, "Write to this file instead of the terminal")->group("Output");
}

void Output::keep_as(CLI::App& app, const std::string& kind) {
  kind_ = kind;
  app.add_option("--db", store_, "Keep the results in this file; default: the user's store")
      ->type_name("FILE")
      ->group("Output");
  app.add_flag("--no-db", keeps_nothing_, "Keep them nowhere")->group("Output");
}

// Before they are shown: what was seen is then not lost.
void Output::keep(const std::vector<lab::Table>& tables, const std::string& as) const {
  if (kind_.empty() || keeps_nothing_ || lab::joined(tables).rows.empty()) return;
  const std::string store = store_.empty() ? lab::default_store() : store_;
  if (store.empty() || (store_.empty() && !lab::Database::available())) return;
  const Invocation& asked = invocation();
  const std::string trouble =
      lab::keep(lab::results_of(lab::describe_origin(asked.command, asked.seed),
                                as.empty() ? kind_ : as, tables),
                store);
  if (!trouble.empty()) fmt::print(stderr, "gallop: {}\n", trouble);
}

void Output::show(const lab::Table& table) const {
  lab::emit(table, lab::parse_format(format), path);
}

void Output::emit(const lab::Table& table) const {
  keep({table});
  show(table);
}

void Output::emit_all(const std::vector<lab::Table>& tables) const {
  keep(tables);
  show_all(tables);
}

int run(int argc, char** argv, const std::function<void(CLI::App&, int&)>& add) {
  int exit_code = 0;
  try {
    CLI::App app("gallop: fused training optimizers, and the lab that measures them", "gallop");
    app.set_version_flag("--version", GALLOP_VERSION);
    app.require_subcommand(1);
    RuleFiles::load(argc, argv);
    app.footer("gallop COMMAND --help says what a command takes.");
    add(app, exit_code);
    std::vector<std::string> words(argv, argv + argc);
    if (!words.empty()) words[0] = "gallop";
    invocation() = {words, shell_words(words), {}};
    if (argc == 1) {
      fmt::print("{}", app.help());
      return 2;
    }
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
      if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
      fmt::print(stderr, "gallop: {} (gallop --help shows how)\n", e.what());
      return 2;
    }
  } catch (const std::exception& e) {
    fmt::print(stderr, "gallop: {}\n", e.what());
    return 1;
  }
  return exit_code;
}

int Output::measure(const std::function<std::vector<lab::Table>()>& sweep) const {
  const lab::Signals signals("\ngallop: ends after the row at hand; ctrl-C again ends at once\n");
  std::vector<lab::Table> tables = sweep();
  if (!lab::Signals::asked()) return emit_all(tables), 0;
  std::erase_if(tables, [](const lab::Table& t) { return t.rows.empty(); });
  for (lab::Table& t : tables) {
    t.notes.insert(t.notes.begin(), "stopped: this is what had been measured until then");
  }
  if (tables.empty()) {
    fmt::print(stderr, "gallop: stopped before anything was measured\n");
  } else {
    emit_all(tables);
  }
  return kInterrupted;
}

void Output::show_all(const std::vector<lab::Table>& tables) const {
  const lab::Format how = lab::parse_format(format);
  if (!for_people()) return show(lab::joined(tables));
  std::string all;
  for (const lab::Table& table : tables) {
    if (path.empty()) {
      if (&table != &tables.front()) fmt::print("\n");
      show(table);
    } else {
      all += (all.empty() ? "" : "\n") + lab::render(table, how, false);
    }
  }
  if (!path.empty()) io::write_file_atomically(path, all);
}

void Where::add_to(CLI::App& app) {
  app.add_option("--device", device, "Where to run: cpu, cuda or cuda:NUMBER")
      ->capture_default_str();
  app.add_option("--threads", threads, "CPU threads; 0: all")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  app.add_option("--seed", seed, "Seed of everything random")->capture_default_str();
}

void Where::prefer_gpu(const CLI::App& app) {
  if (app.count("--device") == 0 && !bench::find_gpus().empty() && cuda::built()) device = "cuda";
}

Invocation& invocation() {
  static Invocation asked;
  return asked;
}

std::string shell_words(const std::vector<std::string>& words) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+,./:@%^~";
  std::string out;
  for (std::string word : words) {
    if (word.empty() || word.find_first_not_of(kPlain) != std::string::npos) {
      for (size_t at = 0; (at = word.find('\'', at)) != std::string::npos; at += 4) {
        word.replace(at, 1, "'\\''");
      }
      word.insert(0, 1, '\'').push_back('\'');
    }
    if (!out.empty()) out += ' ';
    out += word;
  }
  return out;
}

Device Where::parsed() const {
  invocation().seed = static_cast<int64_t>(seed);
  const Device d = parse_device(device);
  if (d.kind == Device::Kind::cuda) cuda::require_device(d.index);
  return d;
}

void RuleFiles::load(int argc, const char* const* argv) {
  constexpr std::string_view kFlag = "--rule";
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == kFlag && i + 1 < argc) {
      load_rule_file(argv[i + 1]);
    } else if (word.starts_with(std::string(kFlag) + "=")) {
      load_rule_file(std::string(word.substr(kFlag.size() + 1)));
    }
  }
}

void RuleFiles::add_to(CLI::App& app) {
  app.add_option("--rule", paths_,
                 "An optimizer of your own: a header that is compiled and run (docs/own-rule.md)")
      ->type_name("FILE.h")
      ->allow_extra_args(false)
      ->take_all();
}

std::vector<std::string> RuleFiles::names() const {
  std::vector<std::string> out;
  for (const std::string& path : paths_) out.push_back(load_rule_file(path));
  return out;
}

std::vector<std::string> RuleFiles::beside(const CLI::Option& optimizer,
                                           const std::vector<std::string>& named) const {
  std::vector<std::string> out;
  if (!given() || optimizer.count() > 0) out = named;
  for (std::string& name : names()) out.push_back(std::move(name));
  return out;
}

void HyperFlags::add_to(CLI::App& app) {
  std::map<std::string, std::vector<std::string>> owners;
  for (const std::string& rule : rule_names()) {
    for (const KnobInfo& k : rule_info(rule).knobs) owners[k.name].push_back(rule);
  }
  for (const auto& [knob, rules] : owners) {
    std::string dashed = knob;
    std::replace(dashed.begin(), dashed.end(), '_', '-');
    const std::string names =
        dashed == knob ? fmt::format("--{}", knob) : fmt::format("--{},--{}", dashed, knob);
    const bool everywhere = rules.size() == rule_names().size();
    const std::string whose =
        everywhere ? "every optimizer" : fmt::format("{}", fmt::join(rules, ", "));
    app.add_option(names, values_[knob], "of " + whose)
        ->type_name("VALUE")
        ->group("Hyper-parameters");
  }
}

void HyperFlags::check(const std::vector<std::string>& optimizers) const {
  for (const auto& given : values_) {
    if (given.second.empty()) continue;
    const auto has_it = [&](const auto& o) { return rule_info(o).knob(given.first) >= 0; };
    if (std::any_of(optimizers.begin(), optimizers.end(), has_it)) continue;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--{}: none of {} has this hyper-parameter", given.first,
                            fmt::join(optimizers, ", ")));
  }
}

Hyper HyperFlags::of(const std::string& optimizer) const {
  Hyper out;
  for (const KnobInfo& k : rule_info(optimizer).knobs) {
    const auto it = values_.find(k.name);
    if (it == values_.end() || it->second.empty()) continue;
    out.emplace_back(k.name, parse_value(k, it->second));
  }
  return out;
}

}  // namespace gallop::cli
