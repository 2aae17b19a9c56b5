// SPDX-License-Identifier: MIT
// How far a replayed run is from the recorded one.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

namespace gallop::check {

struct Errors {
  static constexpr double kRelative = 1e-5, kAbsolute = 1e-7;
  // Of the norm of a parameter's change, where the recorded products were in bf16.
  static constexpr double kWhole = 0.03;
  // Of the largest change by t steps, where the recorded state has 8 bits: nearly all elements of a
  // parameter, and each of them; and how many codes may be others.
  static constexpr double kMost = 0.05, kEach = 0.5, kFew = 1e-3, kOtherCodes = 5e-3;
  // A scale is as good as the code of its block's largest, whose neighbour is 1.4 % away.
  static constexpr double kScale = 0.015;
  // Of bitsandbytes' maps, which we compute instead of looking them up: a product of three powers
  // of ten and two further operations, each rounded to fp32, beside the table's own rounding.
  static constexpr double kMap = 1e-6;

  double absolute = 0, relative = 0, over_bound = 0;
  std::string tolerance = fmt::format("{:g} relative + {:g}", kRelative, kAbsolute), worst;

  void add(const std::string& what, double got, double want, double relative_bound = kRelative,
           double absolute_bound = kAbsolute) {
    const double error = note(got, want), bound = relative_bound * std::abs(want) + absolute_bound;
    judge(error == 0 ? 0 : error / bound,
          [&] { return fmt::format("{} is {:.9g}, recorded {:.9g}", what, got, want); });
  }

  // Parameters, by the norm of their change.
  void add_change(const std::string& what, const std::vector<float>& before, const float* got,
                  const std::vector<float>& want) {
    double error = 0, change = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      const double off = static_cast<double>(got[i]) - want[i];
      absolute = std::max(absolute, std::abs(off));
      error += off * off;
      change += std::pow(static_cast<double>(want[i]) - before[i], 2);
    }
    tolerance = fmt::format("{:g} of the change's norm", kWhole);
    const double share = error == 0 ? 0 : std::sqrt(error / change);
    relative = std::max(relative, share);
    judge(share / kWhole,
          [&] { return fmt::format("{}: its change is off by {:.3g} of its norm", what, share); });
  }

  // Parameters whose state has 8 bits; `change` is the rate times the steps so far.
  void add_near(const std::string& what, const float* got, const std::vector<float>& want,
                double change) {
    tolerance = fmt::format("{:g} lr t for {:g} %, {:g} lr t for all; {:g} % of codes; scales {:g}",
                            kMost, 100 * (1 - kFew), kEach, 100 * (1 - kOtherCodes), kScale);
    size_t far = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      const double error = note(got[i], want[i]);
      if (!(error <= kMost * change)) ++far;
      judge(error / (kEach * change), [&] {
        return fmt::format("{}[{}] is {:.9g}, recorded {:.9g}", what, i, got[i], want[i]);
      });
    }
    judge(static_cast<double>(far) / (kFew * static_cast<double>(want.size())), [&] {
      return fmt::format("{}: {} of {} elements are off by more than {:g} lr t", what, far,
                         want.size(), kMost);
    });
  }

  void add_codes(const std::string& what, const unsigned char* got, const unsigned char* want,
                 size_t n) {
    size_t others = 0;
    for (size_t i = 0; i < n; ++i) others += got[i] != want[i] ? 1 : 0;
    judge(static_cast<double>(others) / (kOtherCodes * static_cast<double>(n)),
          [&] { return fmt::format("{}: {} of {} codes are others", what, others, n); });
  }

 private:
  double note(double got, double want) {
    const double error = std::abs(got - want);
    absolute = std::max(absolute, error);
    if (want != 0) relative = std::max(relative, error / std::abs(want));
    return error;
  }
  template <class Describe>
  void judge(double ratio, Describe describe) {
    if (ratio <= over_bound) return;
    over_bound = std::isnan(ratio) ? INFINITY : ratio;
    worst = describe();
  }
};

}  // namespace gallop::check
