// SPDX-License-Identifier: MIT
// Options that mean the same in every command.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gallop/optimizer.h"
#include "lab/row.h"

namespace gallop::cli {

constexpr int kInterrupted = 130;  // the exit code after ctrl-C

// A program with the commands that are added: returns its exit code.
int run(int argc, char** argv, const std::function<void(CLI::App& app, int& exit_code)>& add);

struct Output {
  std::string format = "table";
  std::string path;
  void add_to(CLI::App& app);
  // What is emitted is also kept in the results store, as of this kind.
  void keep_as(CLI::App& app, const std::string& kind);
  void emit(const lab::Table& table) const;
  // People get one table after the other, programs one with all rows.
  void emit_all(const std::vector<lab::Table>& tables) const;
  // Of a sweep that ctrl-C ends after the row at hand: the exit code, and what there is until then.
  int measure(const std::function<std::vector<lab::Table>()>& sweep) const;
  // The two halves of emit.
  void keep(const std::vector<lab::Table>& tables, const std::string& as = {}) const;
  void show(const lab::Table& table) const;
  void show_all(const std::vector<lab::Table>& tables) const;
  bool for_people() const { return format == "table" || format == "markdown"; }

 private:
  std::string kind_, store_;
  bool keeps_nothing_ = false;
};

// What was asked for, for the results store.
struct Invocation {
  std::vector<std::string> words;  // gallop, and what it was given
  std::string command;
  std::optional<int64_t> seed;
};
Invocation& invocation();
// As a shell reads them.
std::string shell_words(const std::vector<std::string>& words);

struct Where {
  std::string device = "cpu";
  int threads = 0;
  uint64_t seed = 1;
  void add_to(CLI::App& app);
  Device parsed() const;  // throws when the device is not to be had
  // The GPU if there is one and --device was not given.
  void prefer_gpu(const CLI::App& app);
};

// One flag for every knob of every rule; a given flag applies to those chosen rules that have it.
class HyperFlags {
 public:
  void add_to(CLI::App& app);
  // Throws when a given flag fits none of the optimizers, or a value is no number or choice.
  void check(const std::vector<std::string>& optimizers) const;
  Hyper of(const std::string& optimizer) const;

 private:
  std::map<std::string, std::string> values_;  // by knob; empty: not given
};

// --rule FILE: optimizers from files, wherever there is --optimizer.
class RuleFiles {
 public:
  // Loads what a command line names before its flags are declared, so that the rules'
  // hyper-parameters have flags too.
  static void load(int argc, const char* const* argv);

  void add_to(CLI::App& app);
  // Names of their rules; added to what --optimizer names, or instead of its default.
  std::vector<std::string> names() const;
  std::vector<std::string> beside(const CLI::Option& optimizer,
                                  const std::vector<std::string>& named) const;
  bool given() const { return !paths_.empty(); }

 private:
  std::vector<std::string> paths_;
};

// Each command adds itself; what it does runs as the subcommand's callback.
void add_info(CLI::App& app);
void add_list(CLI::App& app);
void add_check(CLI::App& app, int& exit_code);
void add_bench(CLI::App& app, int& exit_code);
void add_precision(CLI::App& bench);
void add_attention(CLI::App& bench, int& exit_code);
void add_train_bench(CLI::App& bench, int& exit_code);
void add_suite(CLI::App& app, int& exit_code);
void add_cs336(CLI::App& suite, int& exit_code);
void add_adamw_8bit(CLI::App& suite, int& exit_code);
void add_history(CLI::App& app);
void add_export(CLI::App& app);
void add_diff(CLI::App& app, int& exit_code);
void add_convert(CLI::App& app);
void add_train(CLI::App& app, int& exit_code);
void add_race(CLI::App& app, int& exit_code);
void add_report(CLI::App& app);
void add_serve(CLI::App& app);
void add_profile(CLI::App& app, int& exit_code);
void add_suite_profile(CLI::App& suite, int& exit_code);
void add_trial(CLI::App& app, int& exit_code);
void add_advise(CLI::App& app);

}  // namespace gallop::cli
