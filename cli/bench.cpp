// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <tuple>

#include "bench/step_bench.h"
#include "bench/warmup.h"
#include "cli/common.h"
#include "gallop/error.h"
#include "lab/progress.h"
#include "lab/signals.h"
#include "lab/torch_peer.h"

namespace gallop::cli {
namespace {

struct State {
  Output output;
  Where where;
  HyperFlags hyper;
  RuleFiles rules;
  std::vector<std::string> optimizers = {"adamw"}, modes = {"multi"}, params = {"fp32"}, grads,
                           states = {"fp32"};
  std::vector<std::string> roundings = {"nearest"};
  std::string state_rounding = "stochastic";
  std::vector<int64_t> tensors = {1, 32}, sizes = {16384, 1048576};
  std::vector<std::string> shapes;
  std::vector<double> clip_norms = {0};
  double grad_scale = 1;
  std::vector<std::string> with;
  bool zero_grad = false, cold = false, fold = false;
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

bench::StepContender contender(const State& s, const std::string& optimizer,
                               const std::string& param, const std::string& grad,
                               const std::string& state, const std::string& mode) {
  bench::StepContender c;
  c.optimizer = optimizer;
  c.hyper = s.hyper.of(optimizer);
  c.bare = mode == "bare";
  c.mode = c.bare ? Mode::multi : parse_mode(mode);
  c.formats = {parse_dtype(param), parse_dtype(grad), Rounding::nearest, StateFormat::f32,
               parse_rounding(s.state_rounding)};
  c.state = parse_state_policy(state);
  c.state_text = state;
  c.grad_scale = s.grad_scale;
  c.zero_grad = s.zero_grad;
  c.fold_hyper = s.fold;
  if (c.bare && (param != "fp32" || grad != "fp32" || state != "fp32")) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("mode bare with {} parameters, {} gradients and {} state, expected "
                            "fp32 for all",
                            param, grad, state));
  }
  return c;
}

// Formats separated by commas, or one policy, which has commas of its own.
std::vector<std::string> state_list(const std::vector<std::string>& given) {
  std::vector<std::string> out;
  for (std::string text : given) {
    while (text.find('=') == std::string::npos && text.find(',') != std::string::npos) {
      out.push_back(text.substr(0, text.find(',')));
      text = text.substr(text.find(',') + 1);
    }
    out.push_back(text);
  }
  return out;
}

std::vector<bench::StepContender> contenders(const State& s) {
  std::vector<bench::StepContender> out;
  for (const std::string& optimizer : s.optimizers) {
    for (const std::string& param : s.params) {
      for (const std::string& grad : s.grads.empty() ? std::vector{param} : s.grads) {
        for (const std::string& state : state_list(s.states)) {
          for (const std::string& mode : s.modes) {
            bench::StepContender c = contender(s, optimizer, param, grad, state, mode);
            for (const std::string& rounding : s.roundings) {
              c.formats.rounding = parse_rounding(rounding);
              for (double clip : s.clip_norms) {
                c.clip_norm = clip;
                out.push_back(c);
              }
            }
          }
        }
      }
    }
  }
  return out;
}

// torch's row for each of ours that torch can do too: the same bytes moved, by its time.
void add_torch_rows(const State& s, const bench::ShapeList& list, lab::TorchStep& torch,
                    lab::Table& table, size_t first) {
  const size_t last = table.rows.size();
  std::set<std::tuple<std::string, std::string, double>> asked;
  for (size_t i = first; i < last; ++i) {
    const lab::Row ours = table.rows[i];
    const auto text = [&](const char* name) { return std::get<std::string>(*ours.find(name)); };
    const auto number = [&](const char* name) { return std::get<double>(*ours.find(name)); };
    const double clip = number("clip_norm");
    if (text("param") != text("grad") || s.grad_scale != 1) continue;
    if (!asked.emplace(text("optimizer"), text("param"), clip).second) continue;
    const lab::Row theirs =
        torch.measure(text("optimizer"), list, parse_dtype(text("param")), clip);
    if (const lab::Value* error = theirs.find("error")) {
      table.notes.push_back(fmt::format("torch, {} at {}: {}", text("optimizer"), list.label,
                                        std::get<std::string>(*error)));
      continue;
    }
    lab::Row row;
    for (const char* same : {"optimizer", "shapes", "tensors", "elements", "param", "grad",
                             "clip_norm", "device", "ceiling_gb_per_s"}) {
      row.set(same, *ours.find(same));
    }
    for (const char* own : {"mode", "median_ms", "graph_ms", "host_us", "torch"}) {
      if (const lab::Value* value = theirs.find(own)) row.set(own, *value);
    }
    row.set("state", text("param"));  // torch's states have their parameter's type
    if (text("param") == text("state") && ours.find("gflop_per_s") == nullptr) {
      const double bytes = number("bytes_per_element") *
                           static_cast<double>(std::get<int64_t>(*ours.find("elements")));
      const double gb_per_s = bytes / std::get<double>(*row.find("median_ms")) * 1e-6;
      row.set("gb_per_s", gb_per_s);
      row.set("percent_of_ceiling", 100 * gb_per_s / number("ceiling_gb_per_s"));
    }
    table.rows.push_back(std::move(row));
  }
}

void add_gpu_notes(lab::Table& table) {
  table.columns.insert(table.columns.end() - 1,
                       {"graph_ms", "host_us", "launches", "syncs", "slowdown"});
  table.notes[1] = "the ceiling is a copy within the device, measured in between";
  std::set<std::string> reasons;
  double least = INFINITY, most = 0;
  for (const lab::Row& row : table.rows) {
    const lab::Value* slowdown = row.find("slowdown");
    if (slowdown == nullptr) continue;
    if (const auto& text = std::get<std::string>(*slowdown); !text.empty()) reasons.insert(text);
    least = std::min(least, static_cast<double>(std::get<int64_t>(*row.find("least_sm_mhz"))));
    most = std::max(most, static_cast<double>(std::get<int64_t>(*row.find("most_sm_mhz"))));
  }
  if (most == 0) {
    table.notes.emplace_back("the GPU's clocks are not known: no NVML here");
  } else {
    table.notes.push_back(fmt::format(
        "the GPU's clock was {} to {} MHz; {}", least, most,
        reasons.empty() ? std::string("nothing slowed it down")
                        : fmt::format("it was slowed down by: {}", fmt::join(reasons, "; "))));
  }
}

lab::Table run(const State& s) {
  s.hyper.check(s.optimizers);
  const Device device = s.where.parsed();
  const bool gpu = device.kind == Device::Kind::cuda;
  if (!(s.grad_scale > 0) || std::isinf(s.grad_scale)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--grad-scale is {}, expected a number above 0", s.grad_scale));
  }
  if (!s.with.empty() && !gpu) {
    throw Error(ErrorCode::unsupported,
                "bench step --with torch is for GPUs, expected --device cuda (on the CPU: suite "
                "adam-grid --with torch)");
  }
  if (s.fold && (gpu || std::find(s.modes.begin(), s.modes.end(), "compiled") == s.modes.end())) {
    throw Error(ErrorCode::invalid_argument,
                "--fold is for mode compiled on the CPU, expected --mode compiled --device cpu");
  }
  lab::Table table;
  table.columns = {"optimizer",          "mode",      "shapes", "param",          "state",
                   "median_ms",          "p5_ms",     "p95_ms", "ns_per_element", "gb_per_s",
                   "percent_of_ceiling", "stopped_by"};
  table.notes = {
      "every contender was checked against the double-precision reference first",
      "the ceiling is a 4-read-3-write loop over as many elements, measured in between; for "
      "passes that only read, a loop that only reads"};
  const auto lists = shape_lists(s);
  std::optional<lab::TorchStep> torch;
  if (!s.with.empty()) torch.emplace(device.index, s.sampler.time_limit_s);
  lab::Progress progress("bench step", static_cast<int64_t>(lists.size()));
  for (const bench::ShapeList& list : lists) {
    bench::StepBench b{list, contenders(s), s.where.threads, s.sampler, device, s.cold};
    b.sampler.seed = s.where.seed;
    const size_t first = table.rows.size();
    for (lab::Row& row : bench::run_step_bench(b)) table.rows.push_back(std::move(row));
    if (torch) add_torch_rows(s, list, *torch, table, first);
    progress.advance(1, list.label);
    if (lab::Signals::asked()) break;
  }
  if (s.roundings.size() > 1) table.columns.insert(table.columns.begin() + 4, "rounding");
  if (s.clip_norms != std::vector<double>{0}) {
    table.columns.insert(std::find(table.columns.begin(), table.columns.end(), "median_ms"),
                         "clip_norm");
  }
  if (std::any_of(table.rows.begin(), table.rows.end(),
                  [](const lab::Row& row) { return row.find("gflop_per_s") != nullptr; })) {
    table.columns.insert(table.columns.end() - 1, {"gflop_per_s", "percent_of_products"});
    table.notes.emplace_back(
        "products of matrices are compared with large ones in the same precision, measured in "
        "between");
  }
  if (gpu) add_gpu_notes(table);
  bench::show_warmup(table);
  return table;
}

void add_step(CLI::App& bench, int& exit_code) {
  auto s = std::make_shared<State>();
  CLI::App* step = bench.add_subcommand("step", "Time optimizer steps");
  const CLI::Option* optimizer =
      step->add_option("--optimizer", s->optimizers, "Which, separated by commas")
          ->delimiter(',')
          ->capture_default_str();
  s->rules.add_to(*step);
  step->add_option("--mode", s->modes,
                   "unfused, single, multi, compiled; bare: the kernel alone in a loop")
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
                   "'name 768x3072 [ROLE]' for each tensor")
      ->delimiter(',');
  step->add_option("--param", s->params, "Parameters: fp32, bf16, fp16, fp64")
      ->delimiter(',')
      ->capture_default_str();
  step->add_option("--grad", s->grads, "Gradients, the same names; default: as the parameters")
      ->delimiter(',');
  step->add_option(
          "--state", s->states,
          "Optimizer state: fp32, bf16, 8bit, 8bit-bnb, 4bit, fp8, hybrid; or a policy, such "
          "as 'norm=fp32,size<4096=fp32,8bit' (see gallop list --policy)")
      ->capture_default_str();
  step->add_option("--rounding", s->roundings,
                   "Of 16-bit parameters: nearest, stochastic, master, remainder")
      ->delimiter(',')
      ->capture_default_str();
  step->add_option("--state-rounding", s->state_rounding, "Of bf16 state: nearest, stochastic")
      ->capture_default_str();
  step->add_option("--clip-norm", s->clip_norms, "Clip gradients to this norm in the step; 0: off")
      ->delimiter(',')
      ->capture_default_str();
  step->add_option("--grad-scale", s->grad_scale,
                   "Gradients this many times larger, divided by it in the step; on a GPU the "
                   "scale and found-inf are read from its memory")
      ->capture_default_str();
  step->add_option("--with", s->with, "On a GPU: also run a peer and add its rows: torch")
      ->delimiter(',')
      ->check(CLI::IsMember({"torch"}));
  step->add_flag("--zero-grad", s->zero_grad, "Zero the gradients in the step");
  step->add_flag("--fold", s->fold,
                 "In mode compiled on the CPU: hyper-parameters but lr as constants in the code");
  step->add_flag("--cold", s->cold, "On a GPU: overwrite its L2 cache before every step timed");
  step->add_option("--time-limit", s->sampler.time_limit_s, "Seconds for each contender and shape")
      ->capture_default_str();
  step->add_option("--spread", s->sampler.spread_target,
                   "Stop when the median is known to this relative precision")
      ->capture_default_str();
  s->where.add_to(*step);
  s->hyper.add_to(*step);
  s->output.add_to(*step);
  s->output.keep_as(*step, "bench step");
  step->callback([s, optimizer, &exit_code] {
    s->optimizers = s->rules.beside(*optimizer, s->optimizers);
    exit_code = s->output.measure([&] { return std::vector{run(*s)}; });
  });
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
  CLI::App* bench = app.add_subcommand("bench", "Time things, against the machine's own ceiling");
  bench->require_subcommand(1);
  add_step(*bench, exit_code);
  add_train_bench(*bench, exit_code);
  add_attention(*bench, exit_code);
  add_precision(*bench);
}

}  // namespace gallop::cli
