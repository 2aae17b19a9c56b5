// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "check/sweep.h"
#include "gallop/optimizer.h"
#include "optimizer/rule.h"

namespace gallop::check {

// What one step must give, element by element, from what is stored before it. Of tensors beyond
// kAllJudged elements, both ends and every seventh element between are judged: 7 shares no factor
// with any vector width or block.
class Reference {
 public:
  static constexpr int64_t kAllJudged = 20000, kEnds = 2000, kStride = 7;
  // Of the change's norm, after products in double, fp32 and bf16: of those, Muon rounds sixteen
  // times, by 2^-9 of a number at most, and its polynomial makes more of it.
  static constexpr double kWhole64 = 1e-12, kWhole32 = 1e-4, kWhole16 = 16 / 256.0;

  Reference(const Rule& rule, const Formats& formats, std::vector<double> hyper);

  // Reads parameter and states as they are before the step (for the first one, states are zero).
  void before_step(const Optimizer& optimizer, size_t param, const void* grad);
  // The same before a further entry of the rule, which belongs to the last step taken.
  void before_entry(int entry, const Optimizer& optimizer, size_t param, const void* grad);
  // Largest error divided by its bound over parameter and states (above 1: wrong); on failure says
  // which element of what.
  double worst_after_step(const Optimizer& optimizer, size_t param, std::string* failure) const;
  // Moves on to the next step's coefficients.
  void advance();

 private:
  void expect(int entry, Clock clock, const Optimizer& optimizer, size_t param, const void* grad);
  void expect_norms(const double* coef, const Optimizer& optimizer, size_t param, const void* grad);
  bool has_values(size_t j) const;   // state j has one value per element
  bool after_stage(size_t j) const;  // state j comes of products of matrices
  static int64_t next_judged(int64_t i, int64_t n);
  static Bounded state_before(const StateView& v, int64_t i);
  double value_before(const Optimizer& o, size_t param, int64_t i) const;
  double judge(double got, const Bounded& want, DType type, bool stochastic) const;
  double judge_quantised(double got, const Bounded& want, const StateView& v, int64_t i) const;
  // Where all elements are judged: the scales of a state must be the largest of its blocks.
  double worst_scale(const StateView& v, size_t j) const;
  // The same for all of a state that comes of products, which may be off by `share` of its norm.
  double judge_whole(const StateView& v, size_t j, double share) const;
  // How far an element may be from what is wanted.
  double bound(const Bounded& want, DType type, bool stochastic) const;

  const Rule& rule_;
  Formats formats_;
  std::vector<double> hyper_;
  unsigned present_;
  Clock clock_{1, true, 1};
  std::vector<double> scalars_;
  unsigned writes_ = ~0u;        // of the entry that was last foretold
  std::vector<Bounded> wanted_;  // per judged element: the parameter, then the states
  std::vector<std::vector<Bounded>> wanted_vectors_;  // by state: those per row or column
  // After products of matrices, the parameter's change is judged by its norm: errors of the early
  // ones grow, by how much depends on singular values.
  bool judged_whole_ = false;
  std::vector<double> before_;  // then: the judged elements before the step
};

}  // namespace gallop::check
