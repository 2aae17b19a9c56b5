// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include "bench/step_bench.h"
#include "cli/common.h"
#include "gallop/error.h"
#include "lab/progress.h"

namespace gallop::cli {
namespace {

struct State {
  Output output;
  Where where;
  HyperFlags hyper;
  std::vector<std::string> optimizers = {"adamw"}, modes = {"multi"}, params = {"fp32"}, grads,
                           states = {"fp32"};
  std::string rounding = "nearest", state_rounding = "stochastic";
  std::vector<int64_t> tensors = {1, 32}, sizes = {16384, 1048576};
  std::vector<std::string> shapes;
  double clip_norm = 0;
  bool zero_grad = false, cold = false;
  bench::SamplerOptions sampler;
};

std::vector<bench::ShapeList> shape_lists(const State& s) {
  std::vector<bench::ShapeList> lists;
  for (const std::string& text : s.shapes) lists.push_back(bench::parse_shapes(text));
  if (!lists.empty()) return lists;
  for (int64_t size : s.sizes) {
    for (int64_t count : s.tensors) lists.push_back(bench::equal_tensors(count, size));
  }
  return lists;
}

std::vector<bench::StepContender> contenders(const State& s) {
  std::vector<bench::StepContender> out;
  for (const std::string& optimizer : s.optimizers) {
    for (const std::string& param : s.params) {
      for (const std::string& grad : s.grads.empty() ? std::vector{param} : s.grads) {
        for (const std::string& state : s.states) {
          for (const std::string& mode : s.modes) {
            bench::StepContender c;
            c.optimizer = optimizer;
            c.hyper = s.hyper.of(optimizer);
            c.bare = mode == "bare";
            c.mode = c.bare ? Mode::multi : parse_mode(mode);
            c.formats = {parse_dtype(param), parse_dtype(grad), parse_rounding(s.rounding),
                         parse_state_format(state), parse_rounding(s.state_rounding)};
            c.clip_norm = s.clip_norm;
            c.zero_grad = s.zero_grad;
            if (c.bare && (param != "fp32" || grad != "fp32" || state != "fp32")) {
              throw Error(ErrorCode::invalid_argument,
                          fmt::format("mode bare with {} parameters, {} gradients and {} state, "
                                      "expected fp32 for all",
                                      param, grad, state));
            }
            out.push_back(std::move(c));
          }
        }
      }
    }
  }
  return out;
}

lab::Table run(const State& s) {
  s.hyper.check(s.optimizers);
  const Device device = s.where.parsed();
  lab::Table table;
  table.columns = {"optimizer",          "mode",      "shapes", "param",          "state",
                   "median_ms",          "p5_ms",     "p95_ms", "ns_per_element", "gb_per_s",
                   "percent_of_ceiling", "stopped_by"};
  const auto lists = shape_lists(s);
  lab::Progress progress("bench step", static_cast<int64_t>(lists.size()));
  for (const bench::ShapeList& list : lists) {
    bench::StepBench b{list, contenders(s), s.where.threads, s.sampler, device, s.cold};
    b.sampler.seed = s.where.seed;
    for (lab::Row& row : bench::run_step_bench(b)) table.rows.push_back(std::move(row));
    progress.advance(1, list.label);
  }
  table.notes = {"every contender was checked against the double-precision reference first",
                 "the ceiling is a 4-read-3-write loop over as many elements, measured in between"};
  if (device.kind == Device::Kind::cuda) {
    table.columns.insert(table.columns.end() - 1, {"graph_ms", "host_us", "launches"});
    table.notes[1] = "the ceiling is a copy within the device, measured in between";
  }
  return table;
}

void add_step(CLI::App& bench) {
  auto s = std::make_shared<State>();
  CLI::App* step = bench.add_subcommand("step", "Time optimizer steps");
  step->add_option("--optimizer", s->optimizers, "Which, separated by commas")
      ->delimiter(',')
      ->capture_default_str();
  step->add_option("--mode", s->modes, "unfused, single, multi; bare: the kernel alone in a loop")
      ->delimiter(',')
      ->capture_default_str();
  step->add_option("--tensors", s->tensors, "How many tensors")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{1000000}))
      ->capture_default_str();
  step->add_option("--size", s->sizes, "Elements in each tensor")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  step->add_option("--shapes", s->shapes,
                   "Instead of --tensors and --size: gpt2:LAYERSxWIDTH, or a file with a line "
                   "'name 768x3072' for each tensor")
      ->delimiter(',');
  step->add_option("--param", s->params, "Parameters: fp32, bf16, fp16, fp64")
      ->delimiter(',')
      ->capture_default_str();
  step->add_option("--grad", s->grads, "Gradients, the same names; default: as the parameters")
      ->delimiter(',');
  step->add_option("--state", s->states, "Optimizer state: fp32, bf16")
      ->delimiter(',')
      ->capture_default_str();
  step->add_option("--rounding", s->rounding,
                   "Of 16-bit parameters: nearest, stochastic, master, remainder")
      ->capture_default_str();
  step->add_option("--state-rounding", s->state_rounding, "Of bf16 state: nearest, stochastic")
      ->capture_default_str();
  step->add_option("--clip-norm", s->clip_norm, "Clip gradients to this norm in the step; 0: off")
      ->capture_default_str();
  step->add_flag("--zero-grad", s->zero_grad, "Zero the gradients in the step");
  step->add_flag("--cold", s->cold, "On a GPU: overwrite its L2 cache before every step timed");
  step->add_option("--time-limit", s->sampler.time_limit_s, "Seconds for each contender and shape")
      ->capture_default_str();
  step->add_option("--spread", s->sampler.spread_target,
                   "Stop when the median is known to this relative precision")
      ->capture_default_str();
  s->where.add_to(*step);
  s->hyper.add_to(*step);
  s->output.add_to(*step);
  step->callback([s] { s->output.emit(run(*s)); });
}

}  // namespace

void add_bench(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Time things, against the machine's own ceiling");
  bench->require_subcommand(1);
  add_step(*bench);
}

}  // namespace gallop::cli
