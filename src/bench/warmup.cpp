// SPDX-License-Identifier: MIT
#include "bench/warmup.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "check/data.h"
#include "check/reachable.h"
#include "jit/library.h"
#include "jit/rule_file.h"

namespace gallop::bench {
namespace {

// A step over a vector and a matrix, by kernels that this thread has to get anew.
double seconds_to_get(const StepContender& c, Device device, jit::Forgetting::What what) {
  const jit::Forgetting forgetting(what);
  const jit::Spent before = jit::spent();
  const Rule& rule = find_rule(c.optimizer);
  if (rule.from_file) jit::describe_again(rule);
  Options options = step_options(c, 1, device);
  options.allocator = check::reachable_allocator(device);
  Optimizer optimizer(c.optimizer, options);
  check::Buffer params[] = {{c.formats.param, 256, false, device},
                            {c.formats.param, 4096, false, device}};
  check::Buffer grads[] = {{c.formats.grad, 256, false, device},
                           {c.formats.grad, 4096, false, device}};
  optimizer.add_group({{"vector",
                        {256},
                        params[0].data(),
                        grads[0].data(),
                        c.formats.param,
                        c.formats.grad,
                        Role::bias},
                       {"matrix",
                        {16, 256},
                        params[1].data(),
                        grads[1].data(),
                        c.formats.param,
                        c.formats.grad,
                        Role::hidden}},
                      group_options(c));
  optimizer.step();
  check::wait_for(device);
  return jit::spent().seconds - before.seconds;
}

}  // namespace

void add_warmup(const StepContender& c, Device device, lab::Row& row) {
  if (c.mode != Mode::compiled && !find_rule(c.optimizer).from_file) return;
  // Once for every kind of contender: other shapes have the same kernels.
  static std::map<std::string, std::pair<double, double>> known;
  const std::string key =
      fmt::format("{} {} {} {} {} {}", c.optimizer, to_string(c.mode), check::to_string(c.formats),
                  c.state_name(), c.fold_hyper, to_string(device));
  auto it = known.find(key);
  if (it == known.end()) {
    const double first = seconds_to_get(c, device, jit::Forgetting::everything);
    const double again = seconds_to_get(c, device, jit::Forgetting::memory);
    it = known.emplace(key, std::pair(first, again)).first;
  }
  row.set("compile_warmup_ms", 1e3 * it->second.first);
  row.set("cached_warmup_ms", 1e3 * it->second.second);
}

void show_warmup(lab::Table& table) {
  if (std::none_of(table.rows.begin(), table.rows.end(),
                   [](const lab::Row& row) { return row.find("compile_warmup_ms") != nullptr; })) {
    return;
  }
  table.columns.insert(table.columns.end() - 1, {"compile_warmup_ms", "cached_warmup_ms"});
  table.notes.emplace_back(
      "warm-up: what it takes to compile the kernels when they are first used, and to get them "
      "from the cache; not in the times of steps");
}

}  // namespace gallop::bench
