// SPDX-License-Identifier: MIT
// What bench train is asked for.
#include <fmt/format.h>

#include <set>

#include "bench/train_bench.h"
#include "gallop/error.h"

namespace gallop::bench {
namespace {

bool either(std::string_view what, const std::string& text, std::string_view yes,
            std::string_view no) {
  if (text == yes || text == no) return text == yes;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{} '{}', expected {} or {}", what, text, yes, no));
}

// Calls `with` for each value of an axis on top of what the options already are.
template <class T, class With>
void each(const char* axis, const std::vector<T>& values, const With& with) {
  if (values.empty()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("no {} to run with, expected at least one", axis));
  }
  for (const T& v : values) with(v);
}

}  // namespace

std::string_view attention_name(gpt::Attention a) {
  return a == gpt::Attention::naive ? "naive" : "fused";
}

std::vector<TrainCase> train_cases(const TrainAxes& axes) {
  std::vector<TrainCase> out;
  std::set<std::string> seen;
  TrainCase c;
  gpt::TrainerOptions& o = c.options;
  o.device = axes.device;
  o.threads = axes.threads;
  o.seed = axes.seed;
  const auto add = [&] {
    // Without 16-bit matrices that are updated there is nothing to round, and without an optimizer
    // no state.
    const bool optimized = o.optimizer != "none";
    const bool rounds = optimized && gpt::in_16_bits(o);
    const std::string key =
        fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {}", c.model, o.time, o.batch,
                    gpt::to_string(o.compute), o.compiled, o.optimizer, optimized ? c.state : "",
                    rounds ? to_string(o.rounding) : "", attention_name(o.attention), o.checkpoints,
                    optimized && o.overlap, o.accumulation, c.warmup);
    if (seen.insert(key).second) out.push_back(c);
  };
  const auto formats = [&] {
    each("rounding", axes.roundings, [&](const std::string& rounding) {
      o.rounding = gpt::rounding_in(o.compute, parse_rounding(rounding));
      each("attention", axes.attentions, [&](const std::string& attention) {
        o.attention = either("attention", attention, "fused", "naive") ? gpt::Attention::fused
                                                                       : gpt::Attention::naive;
        each("recomputation", axes.recomputations, [&](const std::string& recompute) {
          o.checkpoints = either("recomputation", recompute, "yes", "no");
          each("overlap", axes.overlaps, [&](const std::string& overlap) {
            o.overlap = either("overlap", overlap, "yes", "no");
            each("accumulation", axes.accumulations, [&](int64_t accumulation) {
              o.accumulation = accumulation;
              each("warm-up", axes.warmups, [&](int64_t warmup) {
                c.warmup = warmup;
                add();
              });
            });
          });
        });
      });
    });
  };
  const auto ways = [&] {
    each("precision", axes.precisions, [&](const std::string& precision) {
      o.compute = gpt::parse_compute(precision);
      each("mode", axes.modes, [&](const std::string& mode) {
        o.compiled = either("mode", mode, "compiled", "eager");
        each("optimizer", axes.optimizers, [&](const std::string& optimizer) {
          o.optimizer = optimizer;
          if (optimizer != "none") rule_info(optimizer);  // throws if there is no such rule
          each("state", axes.states, [&](const std::string& state) {
            c.state = state;
            o.state = parse_state_policy(state);
            formats();
          });
        });
      });
    });
  };
  each("model", axes.models, [&](const std::string& model) {
    c.model = model;
    o.config = gpt::parse_model(model);
    const std::vector<int64_t> own = {o.config.context};
    each("context", axes.contexts.empty() ? own : axes.contexts, [&](int64_t context) {
      o.time = context;
      each("batch", axes.batches, [&](int64_t batch) {
        o.batch = batch;
        ways();
      });
    });
  });
  return out;
}

}  // namespace gallop::bench
