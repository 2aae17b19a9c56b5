// SPDX-License-Identifier: MIT
#include "lab/step_model.h"

namespace gallop::lab {

// How often a step moves what, and the constants of compute_seconds, are fitted to the nine rows in
// bf16 of "Training steps on an H200" in docs/results.md: forward and backward together are 2.5 %
// off in the mean, 5.4 % at most. The one row in fp32 has a share of the peak of its own.
Work work_of(const gpt::Config& c, int64_t batch, int64_t time, gpt::Compute compute) {
  constexpr double kActivations = 7.57, kWeights = 2.1, kLogits = 3.5;  // times moved
  const bool narrow = compute == gpt::Compute::bf16 || compute == gpt::Compute::fp16;
  const double size = narrow ? 2 : compute == gpt::Compute::fp64 ? 8 : 4;
  const auto of = [](int64_t n) { return static_cast<double>(n); };
  const double tokens = of(batch) * of(time), layers = of(c.layers), width = of(c.width);
  const double sides = of(c.expanded() + c.hidden);
  const double weights = layers * width * (4 * width + sides) + width * of(c.vocabulary);
  return {gpt::flops_per_token(c, time) * tokens,
          size * (kActivations * tokens * layers * (12 * width + sides) + kWeights * weights +
                  kLogits * tokens * of(c.vocabulary)),
          c.layers};
}

double peak_of(const Hardware& on, gpt::Compute compute) {
  if (compute == gpt::Compute::bf16 || compute == gpt::Compute::fp16) return on.flops_16;
  return compute == gpt::Compute::tf32   ? on.flops_tf32
         : compute == gpt::Compute::fp64 ? on.flops_32 / 2
                                         : on.flops_32;
}

double compute_seconds(const Work& work, const Hardware& on, gpt::Compute compute) {
  constexpr double kOfCpu = 0.75;  // nano reached 0.63 and char 0.80 of large products' rate
  constexpr double kOf16 = 0.835, kOf32 = 0.66, kALayer = 50.7e-6;
  if (!on.gpu) return work.flops / (peak_of(on, compute) * kOfCpu);
  const double share = compute == gpt::Compute::fp32 ? kOf32 : kOf16;
  return work.flops / (peak_of(on, compute) * share) + work.bytes / on.copy_bytes +
         kALayer * static_cast<double>(work.layers);
}

// The part of a copy's speed that updates reach: AdamW's in docs/results.md, on a GPU with bf16 and
// remainders. On CPUs arithmetic is what narrow formats wait for: they are about as fast as fp32.
double share_of_copy(StateFormat format, bool gpu) {
  switch (format) {
    case StateFormat::f32:
      return gpu ? 0.94 : 0.95;
    case StateFormat::bf16:
      return gpu ? 0.78 : 0.75;
    case StateFormat::q8:
      return gpu ? 0.86 : 0.55;
    case StateFormat::q4:
      return gpu ? 0.73 : 0.5;
    case StateFormat::bnb8:
      return gpu ? 0.38 : 0.3;
    case StateFormat::fp8:
      return gpu ? 0.55 : 0.3;
  }
  return 1;
}

double update_seconds(double bytes, double share, double flops, bool exact, const Hardware& on) {
  constexpr double kOfProducts = 0.6;  // Muon 0.48 to 0.71, SOAP 0.59
  const double rate = exact || !on.gpu ? on.flops_32 : on.flops_16;
  return bytes / (on.copy_bytes * share) + (flops > 0 ? flops / (rate * kOfProducts) : 0);
}

}  // namespace gallop::lab
