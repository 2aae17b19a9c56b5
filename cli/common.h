// SPDX-License-Identifier: MIT
// Options that mean the same in every command.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gallop/optimizer.h"
#include "lab/row.h"

namespace gallop::cli {

struct Output {
  std::string format = "table";
  std::string path;
  void add_to(CLI::App& app);
  void emit(const lab::Table& table) const;
};

struct Where {
  std::string device = "cpu";
  int threads = 0;
  uint64_t seed = 1;
  void add_to(CLI::App& app);
  Device parsed() const;  // throws when the device is not to be had
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

// Each command adds itself; what it does runs as the subcommand's callback.
void add_info(CLI::App& app);
void add_list(CLI::App& app);
void add_check(CLI::App& app, int& exit_code);
void add_bench(CLI::App& app);
void add_suite(CLI::App& app);
void add_convert(CLI::App& app);

}  // namespace gallop::cli
