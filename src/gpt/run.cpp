// SPDX-License-Identifier: MIT
#include "gpt/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "gallop/error.h"

namespace gallop::gpt {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

[[noreturn]] void invalid(const std::string& what) {
  throw Error(ErrorCode::invalid_argument, what);
}

void check(Trainer& trainer, const data::Corpus& corpus, const RunOptions& o) {
  if (trainer.optimizer() == nullptr) invalid("training with optimizer none, expected a rule");
  if (o.steps < 0) invalid(fmt::format("{} steps, expected 0 or more", o.steps));
  if (o.eval_every < 0 || o.save_every < 0) {
    invalid(fmt::format("evaluating every {} steps and saving every {}, expected 0 or more",
                        o.eval_every, o.save_every));
  }
  const int64_t vocabulary = trainer.options().config.vocabulary;
  if (corpus.vocabulary() > vocabulary) {
    invalid(
        fmt::format("a model with a vocabulary of {} for data with one of {}, expected at "
                    "least as many",
                    vocabulary, corpus.vocabulary()));
  }
  if (o.checkpoint.empty()) {
    if (o.resume) invalid("resuming without a checkpoint, expected a file to go on from");
    return;
  }
  const bool there = std::filesystem::exists(o.checkpoint);
  if (o.resume && !there) {
    throw Error(ErrorCode::io,
                fmt::format("{} is not there, expected a checkpoint to go on from", o.checkpoint));
  }
  if (there && !o.resume) {
    invalid(fmt::format("{} exists; --resume goes on with it, or name another file", o.checkpoint));
  }
}

// Exactly 1 where nothing is padding.
double counted_share(const data::Batch& batch) {
  const auto counted =
      std::count_if(batch.targets.begin(), batch.targets.end(), [](int32_t t) { return t >= 0; });
  return static_cast<double>(counted) / static_cast<double>(batch.targets.size());
}

std::vector<Tensor> trained(Trainer& trainer) {
  Model& model = trainer.model();
  Optimizer& optimizer = *trainer.optimizer();
  std::vector<Tensor> all;
  for (size_t i = 0; i < model.size(); ++i) all.push_back(model.param(i));
  // What 16-bit parameters lack changes with them.
  const bool master = trainer.options().rounding == Rounding::master;
  for (size_t i = 0; i < optimizer.size(); ++i) {
    void* low = const_cast<void*>(optimizer.low_bits(i));
    if (low == nullptr) continue;
    int64_t elements = 1;
    for (int64_t d : optimizer.param(i).shape) elements *= d;
    all.push_back({low, master ? DType::f32 : DType::bf16, 1, elements});
  }
  return all;
}

class Run {
 public:
  Run(Trainer& trainer, const data::Corpus& corpus, const RunOptions& o, const RunCallbacks& c)
      : trainer_(trainer), o_(o), callbacks_(c), schedule_(trainer.options().schedule) {
    check(trainer, corpus, o);
    checkpoint_.settings = settings_of(trainer, corpus, o.data_seed, o.min_length);
    if (o.resume) {
      checkpoint_ =
          load_checkpoint(o.checkpoint, trainer, checkpoint_.settings, o.steps, o.other_libraries);
      result_.first = progress().step;
    }
    const TrainerOptions& t = trainer.options();
    tokens_per_step_ = t.batch * t.time * t.accumulation;
    if (o.eval_every > 0) {
      validation_ = data::validation_batches(corpus, t.batch, t.time, o.eval_batches, o.min_length);
    }
    data::LoaderOptions l{t.batch, t.time};
    l.seed = o.data_seed;
    l.first_batch = progress().batches;
    l.min_length = o.min_length;
    loader_.emplace(corpus, l);
    lr_ = trainer.optimizer()->get(0, "lr");
    scale_ = trainer.loss_scale();
  }

  RunResult go() {
    callbacks_.begin(result_.first);
    while (progress().step < o_.steps && result_.end == RunResult::End::finished) step();
    // Also of a run that had ended before, or has no step at all.
    if (result_.first == o_.steps) look();
    result_.progress = progress();
    result_.tokens = progress().step * tokens_per_step_;
    result_.total_s = seconds_since(o_.start);
    result_.data_wait_s = loader_->wait_s();
    result_.data_work_s = loader_->work_s();
    // The first step also prepares.
    const int64_t taken = progress().step - result_.first, later = taken - 1;
    const double later_s = result_.train_s - first_step_s_;
    result_.tokens_per_s = later > 0   ? static_cast<double>(later * tokens_per_step_) / later_s
                           : taken > 0 ? static_cast<double>(tokens_per_step_) / first_step_s_
                                       : 0;
    return result_;
  }

 private:
  Progress& progress() { return checkpoint_.progress; }

  std::span<const data::Batch> next() {
    const Ranges::Scope scope(trainer_.ranges(), "data loading");
    const int64_t count = trainer_.options().accumulation;
    if (count == 1) return {&loader_->next(), 1};
    batches_.resize(static_cast<size_t>(count));
    for (data::Batch& b : batches_) b = loader_->next();
    return batches_;
  }

  void step() {
    const Clock::time_point begin = Clock::now();
    StepReport report;
    // What was skipped did not move the schedule.
    const int64_t skipped = scale_ ? scale_->skipped : 0;
    report.lr = lr_ * schedule_factor(schedule_, progress().step - skipped);
    trainer_.step(next());
    Progress& p = progress();
    p.loss = report.loss = trainer_.loss();
    report.scale = scale_ = trainer_.loss_scale();
    const double taken_s = seconds_since(begin);
    ++p.step;
    p.batches += trainer_.options().accumulation;
    if (std::isfinite(p.loss)) p.smoothed.add(p.loss);
    result_.train_s += taken_s;
    if (p.step == result_.first + 1) {
      result_.start_s = seconds_since(o_.start);
      first_step_s_ = taken_s;
    } else {
      step_s_.add(taken_s);
    }
    const double recent_s = step_s_.weight > 0 ? step_s_.value() : taken_s;
    report.tokens_per_s = static_cast<double>(tokens_per_step_) / recent_s;
    if (!std::isfinite(p.loss) && !o_.keep_going) {
      result_.end = RunResult::End::diverged;
    } else {
      report.evaluated = after_step();
    }
    report.step = p.step;
    report.train_s = result_.train_s;
    report.smoothed = p.smoothed.value();
    report.validation = p.validation;
    report.accuracy = p.accuracy;
    callbacks_.step(report);
  }

  // Whether it was evaluated.
  bool after_step() {
    const int64_t step = progress().step;
    const bool last = step == o_.steps;
    const bool stopped = !last && callbacks_.stop();
    if (stopped) result_.end = RunResult::End::stopped;
    const bool due = o_.eval_every > 0 && (last || step % o_.eval_every == 0);
    if (due) look();
    const bool to_save = o_.save_every > 0 ? step % o_.save_every == 0 : due;
    if (!o_.checkpoint.empty() && (last || stopped || to_save)) {
      const Clock::time_point begin = Clock::now();
      save_checkpoint(o_.checkpoint, trainer_, checkpoint_);
      result_.save_s += seconds_since(begin);
    }
    return due;
  }

  void look() {
    if (validation_.empty()) return;
    const Clock::time_point begin = Clock::now();
    const Evaluation found = evaluate(trainer_, validation_);
    progress().validation = found.loss;
    progress().accuracy = found.accuracy;
    result_.evaluate_s += seconds_since(begin);
  }

  Trainer& trainer_;
  const RunOptions& o_;
  const RunCallbacks& callbacks_;
  Schedule schedule_;
  double lr_ = 0;
  std::optional<LossScale> scale_;
  Checkpoint checkpoint_;
  std::vector<data::Batch> validation_, batches_;
  std::optional<data::Loader> loader_;
  int64_t tokens_per_step_ = 0;
  Smoothed step_s_;
  double first_step_s_ = 0;
  RunResult result_;
};

}  // namespace

Schedule schedule_over(const std::string& text, int64_t steps) {
  const ScheduleKind kind = schedule_kind(text.substr(0, text.find(':')));
  const bool ends = kind == ScheduleKind::linear || kind == ScheduleKind::cosine ||
                    kind == ScheduleKind::wsd || kind == ScheduleKind::one_cycle;
  const bool says =
      text.find(":total=") != std::string::npos || text.find(",total=") != std::string::npos;
  if (!ends || says) return parse_schedule(text);
  return parse_schedule(
      fmt::format("{}{}total={}", text, text.find(':') == std::string::npos ? ':' : ',', steps));
}

RunResult run(Trainer& trainer, const data::Corpus& corpus, const RunOptions& options,
              const RunCallbacks& callbacks) {
  return Run(trainer, corpus, options, callbacks).go();
}

void while_evaluating(Trainer& trainer, const std::function<void()>& work) {
  Optimizer* optimizer = trainer.optimizer();
  const auto switches = [&] {
    const auto& entries = optimizer->rule().entries;
    return std::find(entries.begin(), entries.end(), "eval") != entries.end();
  };
  if (optimizer == nullptr || !switches()) return work();
  const std::vector<Tensor> tensors = trained(trainer);
  std::vector<std::vector<std::byte>> before;
  before.reserve(tensors.size());
  for (const Tensor& t : tensors) before.push_back(trainer.download(t));
  // On a GPU the optimizer's own launches are not on the model's stream: asking for steps() waits.
  const auto back = [&] {
    optimizer->train();
    optimizer->steps(0);
    for (size_t i = 0; i < tensors.size(); ++i) trainer.upload(tensors[i], before[i]);
  };
  optimizer->eval();
  optimizer->steps(0);
  try {
    work();
  } catch (...) {
    back();
    throw;
  }
  back();
}

Evaluation evaluate(Trainer& trainer, std::span<const data::Batch> batches) {
  if (batches.empty()) invalid("0 batches to evaluate with, expected at least 1");
  Evaluation sum;
  double weight = 0;
  while_evaluating(trainer, [&] {
    for (const data::Batch& b : batches) {
      const double share = counted_share(b);
      sum.loss += share * trainer.evaluate(b);
      sum.accuracy += share * trainer.accuracy();
      weight += share;
    }
  });
  if (weight == 0) return {};
  return {sum.loss / weight, sum.accuracy / weight};
}

}  // namespace gallop::gpt
