// SPDX-License-Identifier: MIT
#include "lab/trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <optional>
#include <span>

#include "bench/statistics.h"
#include "data/corpus.h"
#include "gallop/error.h"
#include "gpt/run.h"
#include "lab/loss_spikes.h"
#include "lab/trial_watch.h"

namespace gallop::lab {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

gpt::TrainerOptions trainer_options(const TrialSpec& s) {
  gpt::TrainerOptions o;
  o.config = gpt::parse_model(s.model);
  o.device = parse_device(s.device);
  o.threads = s.threads;
  o.batch = s.batch;
  o.time = s.context;
  o.compute = gpt::parse_compute(s.precision);
  o.optimizer = s.optimizer;
  o.hyper = s.hyper;
  o.state = parse_state_policy(s.state);
  o.schedule = gpt::schedule_over(s.schedule, s.steps);
  o.clip_norm = s.clip_norm;
  o.seed = s.seed;
  return o;
}

TrialEnd end_of(const gpt::RunResult& run, bool reached, bool has_target) {
  if (reached) return TrialEnd::reached;
  switch (run.end) {
    case gpt::RunResult::End::diverged:
      return TrialEnd::diverged;
    case gpt::RunResult::End::stopped:
      return TrialEnd::timed_out;
    case gpt::RunResult::End::finished:
      break;
  }
  return has_target ? TrialEnd::missed : TrialEnd::finished;
}

void note_memory(const gpt::MemoryUse& memory, TrialResult& result) {
  constexpr double kMb = 1 << 20;
  result.memory_mb = static_cast<double>(memory.total()) / kMb;
  for (int c = 0; c < gpt::kMemoryClasses; ++c) {
    result.class_mb.emplace_back(to_string(static_cast<gpt::MemoryClass>(c)),
                                 static_cast<double>(memory.of[c]) / kMb);
  }
}

void train(const TrialSpec& spec, const std::function<void(const TrialPoint&)>& on_point,
           TrialResult& result) {
  std::optional<TrialWatch> watch;
  if (spec.watch) watch.emplace(parse_device(spec.device), spec.threads);
  const std::unique_ptr<data::Corpus> corpus = data::open_corpus(spec.data);
  if (watch) watch->opened();
  gpt::RunOptions o;
  o.steps = spec.steps;
  o.data_seed = spec.data_seed;
  o.min_length = spec.min_length;
  o.eval_every = spec.eval_every;
  o.eval_batches = spec.eval_batches;
  gpt::Trainer trainer(trainer_options(spec));
  result.parameters = gpt::parameter_count(trainer.options().config);
  note_memory(trainer.memory(), result);
  bool reached = false;
  double spent_s = 0, first_s = 0;
  LossSpikes spikes;
  gpt::RunCallbacks callbacks;
  callbacks.step = [&](const gpt::StepReport& r) {
    if (watch) watch->step(r.train_s);
    spikes.add(r.loss);
    // The first step also prepares: kernels are loaded, a graph is recorded. It counts as one of
    // the others.
    if (r.step == 1) first_s = r.train_s;
    const double others_s = r.train_s - first_s;
    spent_s = r.step == 1
                  ? first_s
                  : others_s * static_cast<double>(r.step) / static_cast<double>(r.step - 1);
    if (!r.evaluated || !r.validation) return;
    result.points.push_back({r.step, spent_s, r.smoothed, *r.validation, *r.accuracy});
    reached = spec.target && *r.validation <= *spec.target;
    if (on_point) on_point(result.points.back());
  };
  // Asked after the step that follows the one that reached it: its time was noted before.
  callbacks.stop = [&] { return reached || (spec.limit_s && spent_s >= *spec.limit_s); };
  const gpt::RunResult run = gpt::run(trainer, *corpus, o, callbacks);
  result.end = end_of(run, reached, spec.target.has_value());
  result.steps = run.progress.step;
  result.train_s = spent_s;
  result.evaluate_s = run.evaluate_s;
  result.prepare_s = run.start_s - first_s + run.train_s - spent_s;
  result.tokens_per_s = run.tokens_per_s;
  result.data_wait_s = run.data_wait_s;
  if (watch) result.usage = watch->end(run);
  result.spikes = spikes.count();
  result.worst_spike = spikes.worst();
}

}  // namespace

int64_t context_of(const TrialSpec& spec) {
  return spec.context > 0 ? spec.context : gpt::parse_model(spec.model).context;
}

double TrialUsage::later_step_s() const {
  const size_t from = step_s.size() > kSettled ? kSettled : 0;
  return bench::mean(std::span(step_s).subspan(from));
}

double TrialResult::time_to_target_s() const {
  if (end != TrialEnd::reached) return kInfinite;
  return points.back().train_s;
}

double TrialResult::steps_to_target() const {
  if (end != TrialEnd::reached) return kInfinite;
  return static_cast<double>(points.back().step);
}

double TrialResult::final_validation() const {
  const bool whole = end == TrialEnd::finished || end == TrialEnd::reached ||
                     end == TrialEnd::missed || end == TrialEnd::timed_out;
  if (!whole || points.empty() || !std::isfinite(points.back().validation)) return kInfinite;
  return points.back().validation;
}

double TrialResult::final_accuracy() const {
  return std::isfinite(final_validation()) ? points.back().accuracy : 0;
}

double TrialResult::best_validation() const {
  double best = kInfinite;
  for (const TrialPoint& p : points) {
    if (p.validation < best) best = p.validation;
  }
  return best;
}

std::string class_field(std::string_view memory_class) {
  return fmt::format("{}_mb", memory_class);
}

void set_classes(Row& row, const TrialResult& result) {
  for (const auto& [name, mb] : result.class_mb) row.set(class_field(name), mb);
}

TrialResult run_trial(const TrialSpec& spec,
                      const std::function<void(const TrialPoint&)>& on_point) {
  TrialResult result;
  try {
    train(spec, on_point, result);
  } catch (const Error& e) {
    result.end = e.code() == ErrorCode::out_of_memory ? TrialEnd::oom : TrialEnd::failed;
    result.message = e.what();
  } catch (const std::bad_alloc&) {
    result.end = TrialEnd::oom;
    result.message = "the host's memory did not suffice";
  } catch (const std::exception& e) {
    result.end = TrialEnd::failed;
    result.message = e.what();
  }
  return result;
}

}  // namespace gallop::lab
