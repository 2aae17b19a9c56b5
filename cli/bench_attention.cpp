// SPDX-License-Identifier: MIT
#include <algorithm>
#include <functional>

#include "bench/attention_bench.h"
#include "cli/common.h"
#include "gallop/error.h"
#include "lab/torch_attention.h"

namespace gallop::cli {
namespace {

struct State {
  Output output;
  Where where;
  bench::AttentionAxes given;
  std::vector<std::function<void(bench::AttentionAxes&)>> over_grid;  // what was given
  bench::AttentionTiming timing;
  std::string grid, columns = "time", deterministic = "yes";
  std::vector<std::string> with;
};

lab::Table run(const State& s) {
  bench::AttentionAxes axes = s.grid.empty() ? s.given : bench::attention_grid(s.grid);
  for (const auto& set : s.over_grid) set(axes);
  axes.place = {s.where.parsed(), s.where.threads, s.deterministic == "yes"};
  axes.seed = s.where.seed;
  if (s.with.empty()) {
    return bench::attention_table(bench::run_attention(axes, s.timing),
                                  bench::parse_train_columns(s.columns));
  }
  if (axes.place.device.kind != Device::Kind::cuda) {
    throw Error(ErrorCode::unsupported,
                "bench attention --with torch is for GPUs, expected --device cuda");
  }
  lab::require_torch();
  std::vector<lab::Row> rows = bench::run_attention(axes, s.timing);
  lab::TorchAttentionQuestion question{{}, axes.precisions, axes.place.device.index, 0.1};
  for (const bench::AttentionCase& c : bench::attention_cases(axes)) {
    const auto same = [&](const gpt::AttentionShape& o) {
      return o.batch == c.shape.batch && o.heads == c.shape.heads && o.time == c.shape.time &&
             o.width == c.shape.width;
    };
    if (std::none_of(question.shapes.begin(), question.shapes.end(), same)) {
      question.shapes.push_back(c.shape);
    }
  }
  std::vector<std::string> notes;
  for (lab::Row& row : lab::torch_attention(question, notes)) {
    rows.push_back(std::move(row.set("device", to_string(axes.place.device))));
  }
  bench::compare_with_torch(rows);
  lab::Table table = bench::attention_table(std::move(rows), bench::parse_train_columns(s.columns));
  table.notes.insert(table.notes.end(), notes.begin(), notes.end());
  return table;
}

}  // namespace

void add_attention(CLI::App& bench, int& exit_code) {
  auto s = std::make_shared<State>();
  CLI::App* attention = bench.add_subcommand(
      "attention",
      "Time causal attention alone: forward, backward, memory.\n"
      "All combinations of the axes are run; --grid sets them, and those given besides replace "
      "the grid's.");
  attention
      ->add_option("--grid", s->grid,
                   "seed: 8 sequences of 16-128, one head of 256-16384; cs336: 8 sequences of "
                   "256-16384, one head of 16-128; flash: 1 sequence of 128-65536, one head of "
                   "16-128, bf16 and fp32")
      ->check(CLI::IsMember({"seed", "cs336", "flash"}));
  std::vector<std::pair<CLI::Option*, std::function<void(bench::AttentionAxes&)>>> axes;
  const auto list = [&](const char* flag, auto member, const char* about, const char* type) {
    CLI::Option* option = attention->add_option(flag, s->given.*member, about)
                              ->delimiter(',')
                              ->capture_default_str()
                              ->type_name(type)
                              ->group("Axes (lists, separated by commas)");
    axes.emplace_back(option, [state = s.get(), member](bench::AttentionAxes& to) {
      to.*member = state->given.*member;
    });
  };
  list("--batch", &bench::AttentionAxes::batches, "Sequences in a batch", "N");
  list("--heads", &bench::AttentionAxes::heads, "Heads of each", "N");
  list("--sequence", &bench::AttentionAxes::sequences, "Positions in a sequence", "N");
  list("--width", &bench::AttentionAxes::widths, "Of a head", "N");
  list("--precision", &bench::AttentionAxes::precisions,
       "fp32, tf32, bf16, fp16 on a GPU; fp32, fp64 on the CPU", "NAME");
  list("--attention", &bench::AttentionAxes::attentions,
       "naive: all scores in memory; fused: some at a time", "NAME");
  attention->add_option("--warmup", s->timing.warmup, "Samples before those that are measured")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  attention->add_option("--steps", s->timing.steps, "Measured samples of each row, at most")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  attention
      ->add_option("--time-limit", s->timing.time_limit_s,
                   "Seconds for each row's measured samples; as many for its warm-up")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  attention
      ->add_option("--deterministic", s->deterministic,
                   "On a GPU: yes, the same bits from every backward pass; no: whatever is fastest")
      ->check(CLI::IsMember({"yes", "no"}))
      ->capture_default_str();
  attention
      ->add_option("--with", s->with, "On a GPU: also run a peer's backends and add them: torch")
      ->delimiter(',')
      ->check(CLI::IsMember({"torch"}));
  s->where.add_to(*attention);
  attention->add_option("--columns", s->columns, "Of tables: time, memory, all")
      ->check(CLI::IsMember({"time", "memory", "all"}))
      ->capture_default_str()
      ->group("Output");
  s->output.add_to(*attention);
  s->output.keep_as(*attention, "bench attention");
  attention->callback([s, axes, &exit_code] {
    for (const auto& [option, set] : axes) {
      if (option->count() > 0) s->over_grid.push_back(set);
    }
    exit_code = s->output.measure([&] { return std::vector{run(*s)}; });
  });
}

}  // namespace gallop::cli
