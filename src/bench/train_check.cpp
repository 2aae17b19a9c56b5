// SPDX-License-Identifier: MIT
#include "bench/train_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/step_bench.h"
#include "core/random.h"
#include "gallop/error.h"

namespace gallop::bench {
namespace {

constexpr int64_t kRows = 2, kTime = 33, kVocabulary = 97;

// Whether a batch's logits are more than there may be at a time.
bool in_pieces(const gpt::TrainerOptions& o) {
  const int64_t time = o.time == 0 ? o.config.context : o.time;
  return static_cast<double>(o.batch * time) * static_cast<double>(o.config.vocabulary) *
             static_cast<double>(size_of(gpt::precision_of(o).matrices)) >
         static_cast<double>(o.logits_bytes);
}

gpt::TrainerOptions small_options(const gpt::TrainerOptions& o) {
  gpt::TrainerOptions s = o;
  s.config = small_like(o.config);
  s.batch = kRows;
  s.time = kTime;
  s.accumulation = std::min<int64_t>(o.accumulation, 2);
  if (in_pieces(o)) s.logits_bytes = kTime * kVocabulary * size_of(gpt::precision_of(o).matrices);
  s.optimizer = "none";
  // The small model's gradients are far larger than a real one's.
  if (s.loss_scale.value_or(1) > 0 && s.compute == gpt::Compute::fp16) s.loss_scale = 64;
  return s;
}

std::string kind_of(const gpt::TrainerOptions& s) {
  return fmt::format("{} | {} {} {} {} {} {} {} {}", describe(s.config), to_string(s.device),
                     gpt::to_string(s.compute), s.compiled, static_cast<int>(s.attention),
                     s.checkpoints, s.accumulation, s.logits_bytes,
                     s.gradients ? to_string(*s.gradients) : "");
}

// Far from special: norms are not 1, biases not 0, and no activation is small.
void set_values(gpt::Trainer& trainer, uint64_t seed) {
  gpt::Model& model = trainer.model();
  for (size_t i = 0; i < model.size(); ++i) {
    const gpt::ParamSpec& spec = model.spec(i);
    const double around = spec.init == gpt::Init::ones ? 1 : 0;
    const double size = spec.matrix() ? 2 / std::sqrt(static_cast<double>(spec.shape[1])) : 0.3;
    std::vector<double> values(static_cast<size_t>(spec.elements()));
    for (size_t j = 0; j < values.size(); ++j) {
      const double uniform = static_cast<double>(combine(combine(seed, i), j) >> 11) * 0x1p-53;
      values[j] = around + size * (2 * uniform - 1);
    }
    model.set_values(i, values);
  }
}

double relative_error(const std::vector<double>& a, const std::vector<double>& exact) {
  double off = 0, all = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    off += (a[i] - exact[i]) * (a[i] - exact[i]);
    all += exact[i] * exact[i];
  }
  return std::sqrt(off / std::max(all, 1e-300));
}

// As the step bench does it: two steps over small tensors in the same formats.
void check_optimizer(const gpt::TrainerOptions& o) {
  StepContender c;
  c.optimizer = o.optimizer;
  c.hyper = o.hyper;
  if (o.compiled && o.device.kind == Device::Kind::cuda) c.mode = Mode::compiled;
  const gpt::Precision p = gpt::precision_of(o);
  c.formats = {p.matrices, p.gradients, gpt::in_16_bits(o) ? o.rounding : Rounding::nearest,
               StateFormat::f32, Rounding::stochastic};
  c.state = o.state;
  check_contender(c, 4, o.threads, o.device);
}

std::string kind_of_optimizer(const gpt::TrainerOptions& o) {
  std::string key =
      fmt::format("{} {} {} {} {} {}", o.optimizer, to_string(o.device), o.compiled,
                  gpt::to_string(o.compute), to_string(o.rounding), to_string(o.state));
  for (const auto& [name, value] : o.hyper) key += fmt::format(" {}={}", name, value);
  return key;
}

}  // namespace

double gradient_bound(gpt::Compute compute) {
  switch (compute) {
    case gpt::Compute::fp32:
      return 1e-4;
    case gpt::Compute::tf32:
    case gpt::Compute::fp16:
      return 2e-2;
    case gpt::Compute::bf16:
      return 6e-2;
    case gpt::Compute::fp64:
      return 1e-10;
  }
  return 0;
}

gpt::Config small_like(const gpt::Config& config) {
  gpt::Config c = config;
  c.layers = 2;
  c.heads = std::max<int64_t>(2, (64 + config.head_width() - 1) / config.head_width());
  c.width = c.heads * config.head_width();
  // As many times the width as the model's, in eights.
  const double times = static_cast<double>(config.hidden) / static_cast<double>(config.width);
  c.hidden = 8 * std::max<int64_t>(1, std::llround(times * static_cast<double>(c.width) / 8));
  c.vocabulary = kVocabulary;
  c.context = kTime;
  return c;
}

data::Batch random_batch(int64_t vocabulary, int64_t rows, int64_t time, uint64_t seed) {
  data::Batch batch;
  const auto n = static_cast<size_t>(rows * time);
  batch.inputs.resize(n);
  batch.targets.resize(n);
  const auto draw = [&](size_t i) {
    return static_cast<int32_t>(combine(seed, i) % static_cast<Bits64>(vocabulary));
  };
  for (size_t i = 0; i < n; ++i) {
    batch.inputs[i] = draw(2 * i);
    batch.targets[i] = draw(2 * i + 1);
  }
  data::index_by_token(batch, static_cast<int>(vocabulary));
  return batch;
}

Agreement compare_with_fp64(const gpt::TrainerOptions& options) {
  const gpt::TrainerOptions small = small_options(options);
  gpt::TrainerOptions exact = small;
  exact.device = {};
  exact.compute = gpt::Compute::fp64;
  exact.gradients.reset();
  exact.loss_scale.reset();
  exact.compiled = exact.checkpoints = false;
  exact.attention = gpt::Attention::naive;
  exact.logits_bytes = gpt::TrainerOptions().logits_bytes;
  gpt::Trainer ours(small), reference(exact);
  set_values(ours, options.seed);
  for (size_t i = 0; i < ours.model().size(); ++i) {
    reference.model().set_values(i, ours.model().values(i));  // as they were rounded
  }
  std::vector<data::Batch> batches;
  for (int64_t i = 0; i < small.accumulation; ++i) {
    batches.push_back(random_batch(kVocabulary, kRows, kTime, combine(options.seed, 1000 + i)));
  }
  ours.step(batches);
  reference.step(batches);
  Agreement a;
  a.loss_error = std::abs(ours.loss() / reference.loss() - 1);
  for (size_t i = 0; i < ours.model().size(); ++i) {
    const double error =
        relative_error(ours.model().grad_values(i), reference.model().grad_values(i));
    if (!(error <= a.gradient_error)) {  // also when it is not a number
      a.gradient_error = error;
      a.worst = ours.model().spec(i).name;
      if (std::isnan(error)) break;
    }
  }
  return a;
}

void require_agreement(const Agreement& a, gpt::Compute compute) {
  const auto refuse = [&](const std::string& what, double error, double most) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} in {} is {:.2g} off fp64's in a small model of the same kind, "
                            "expected at most {:.2g}: it is not timed",
                            what, gpt::to_string(compute), error, most));
  };
  const double bound = gradient_bound(compute);
  // Not a number is not agreement either.
  if (!(a.loss_error <= bound / 10)) refuse("the loss", a.loss_error, bound / 10);
  if (!(a.gradient_error <= bound)) {
    refuse(fmt::format("the gradient of {}", a.worst), a.gradient_error, bound);
  }
}

Agreement TrainChecks::check(const gpt::TrainerOptions& o) {
  if (o.optimizer != "none" && !optimizers_.contains(kind_of_optimizer(o))) {
    check_optimizer(o);
    optimizers_.insert(kind_of_optimizer(o));
  }
  const std::string kind = kind_of(small_options(o));
  auto found = models_.find(kind);
  if (found == models_.end()) found = models_.emplace(kind, compare_with_fp64(o)).first;
  require_agreement(found->second, o.compute);
  return found->second;
}

}  // namespace gallop::bench
