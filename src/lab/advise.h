// SPDX-License-Identifier: MIT
// Which optimizers and formats of state fit a memory, and about how long steps take: planned and
// predicted, nothing is trained.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gallop/error.h"
#include "gallop/types.h"
#include "gpt/trainer.h"
#include "lab/row.h"

namespace gallop::lab {

// What times are predicted from; rates are per second.
struct Hardware {
  std::string name;
  bool gpu = true;
  int64_t memory_bytes = 0;
  double copy_bytes = 0;                              // read plus written
  double flops_16 = 0, flops_tf32 = 0, flops_32 = 0;  // of dense products, as stated or measured
  std::string source;                                 // of these figures, in words
};

// As their makers state them, but for the H200's copy; memory as nvidia-smi shows it.
inline std::vector<Hardware> known_gpus() {
  constexpr double kShareOfStated = 4.24 / 4.8;  // of a copy on an H200, measured
  const auto card = [](const char* name, int64_t mib, double gb_s, double t16, double tf32,
                       double t32) {
    return Hardware{
        name,       true,        mib << 20,  gb_s * 1e9 * kShareOfStated,
        t16 * 1e12, tf32 * 1e12, t32 * 1e12, "as its maker states them, a copy at 88 %"};
  };
  std::vector<Hardware> all = {
      card("h200", 143771, 4800, 989.5, 494.7, 67), card("h100", 81559, 3350, 989.5, 494.7, 67),
      card("a100", 81920, 2039, 312, 156, 19.5),    card("l40s", 46068, 864, 362, 183, 91.6),
      card("l4", 23034, 300, 121, 60, 30.3),        card("rtx4090", 24564, 1008, 165.2, 82.6, 82.6),
      card("rtx3090", 24576, 936, 71, 35.6, 35.6)};
  all[0].source = "the copy as measured, products as its maker states them";
  return all;
}

inline Hardware find_gpu(std::string_view name) {
  std::vector<std::string> names;
  for (Hardware& gpu : known_gpus()) {
    if (gpu.name == name) return gpu;
    names.push_back(std::move(gpu.name));
  }
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("no figures of a GPU '{}', expected one of {}", name, fmt::join(names, ", ")));
}

// "24GB", "24GiB", "80000MB": powers of 1000, or of 1024 with an i.
inline int64_t parse_bytes(std::string_view text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  constexpr Unit kUnits[] = {{"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},
                             {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  std::string_view unit(at, static_cast<size_t>(end - at));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const Unit& u : kUnits) {
    const double bytes = value * u.bytes;
    if (error == std::errc() && unit == u.name && bytes >= 1 && bytes < 0x1p60) {
      return static_cast<int64_t>(bytes);
    }
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("memory '{}', expected a number above 0 and MB, GB, TB, MiB, GiB or TiB, "
                          "such as 24GB",
                          text));
}

// What forward and backward of one batch do.
struct Work {
  double flops = 0;
  double bytes = 0;  // that are moved besides: activations between products, weights, logits
  int64_t layers = 0;
};

// How often a step moves what, and the constants of compute_seconds, are fitted to the nine rows in
// bf16 of "Training steps on an H200" in docs/results.md: forward and backward together are 2.5 %
// off in the mean, 5.4 % at most. The one row in fp32 has a share of the peak of its own.
inline Work work_of(const gpt::Config& c, int64_t batch, int64_t time, gpt::Compute compute) {
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

inline double peak_of(const Hardware& on, gpt::Compute compute) {
  if (compute == gpt::Compute::bf16 || compute == gpt::Compute::fp16) return on.flops_16;
  return compute == gpt::Compute::tf32   ? on.flops_tf32
         : compute == gpt::Compute::fp64 ? on.flops_32 / 2
                                         : on.flops_32;
}

inline double compute_seconds(const Work& work, const Hardware& on, gpt::Compute compute) {
  constexpr double kOfCpu = 0.75;  // nano reached 0.63 and char 0.80 of large products' rate
  constexpr double kOf16 = 0.835, kOf32 = 0.66, kALayer = 50.7e-6;
  if (!on.gpu) return work.flops / (peak_of(on, compute) * kOfCpu);
  const double share = compute == gpt::Compute::fp32 ? kOf32 : kOf16;
  return work.flops / (peak_of(on, compute) * share) + work.bytes / on.copy_bytes +
         kALayer * static_cast<double>(work.layers);
}

// One more forward.
inline constexpr double kRecomputation = 4.0 / 3;

// The part of a copy's speed that updates reach: AdamW's in docs/results.md, on a GPU with bf16 and
// remainders. On CPUs arithmetic is what narrow formats wait for: they are about as fast as fp32.
inline double share_of_copy(StateFormat format, bool gpu) {
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

// bytes: read and written. flops: of products of matrices, exact ones in fp32.
inline double update_seconds(double bytes, double share, double flops, bool exact,
                             const Hardware& on) {
  constexpr double kOfProducts = 0.6;  // Muon 0.48 to 0.71, SOAP 0.59
  const double rate = exact || !on.gpu ? on.flops_32 : on.flops_16;
  return bytes / (on.copy_bytes * share) + (flops > 0 ? flops / (rate * kOfProducts) : 0);
}

// For CUDA's context, about 0.5 GB, and libraries: the driver had 71 to 111 MB less than was
// planned (docs/results.md).
inline constexpr int64_t kReservedOnGpu = 600'000'000;

enum class Choice { either, no, yes };

struct AdviseOptions {
  // A preset with or without changes, or what bench::parse_shapes takes: then there are parameters,
  // gradients and state alone.
  std::string model = "gpt2";
  Hardware on;
  int64_t memory_bytes = 0;    // 0: all of the hardware's
  int64_t reserved_bytes = 0;  // of these, for others
  int64_t batch = 4, context = 0;
  std::optional<gpt::Compute> compute;  // default: bf16 on a GPU, fp32 on a CPU
  std::vector<std::string> optimizers;  // empty: all
  // Formats or policies; empty: fp32, bf16, 8bit and 4bit, without those that save nothing.
  std::vector<std::string> states;
  // either: only where it does not fit without.
  Choice overlap = Choice::either, recompute = Choice::either;
  int threads = 0;
  bool ask_device = true;  // sizes as this machine's GPU has them, if there is one
};

// What fits comes first, the fastest at the top.
Table advise(const AdviseOptions& options);

}  // namespace gallop::lab
