// SPDX-License-Identifier: MIT
// The loss of nano, step by step, beside that of a run in fp64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "gpt/tiny_run.h"

namespace gallop::gpt {
namespace {

constexpr int64_t kSteps = 40;

std::vector<double> curve(Compute compute, Device device) {
  static const data::SyntheticCorpus corpus(data::parse_synthetic("synthetic"));
  TrainerOptions o;
  o.config = parse_model("nano");
  o.device = device;
  o.batch = 2;
  o.compute = compute;
  o.hyper = {{"lr", 1e-3}};
  o.schedule =
      parse_schedule("constant:warmup=20");  // without one no two precisions agree for long
  o.clip_norm = 1;
  Trainer trainer(o);
  std::vector<double> losses;
  RunOptions r;
  r.steps = kSteps;
  RunCallbacks c;
  c.step = [&](const StepReport& report) { losses.push_back(report.loss); };
  run(trainer, corpus, r, c);
  return losses;
}

// The largest distance of any step.
double apart(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (size_t i = 0; i < b.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return a.size() == b.size() ? most : HUGE_VAL;
}

TEST(Curve, StaysWithThatOfDouble) {
  const Device device = test_device();
  const bool gpu = device.kind == Device::Kind::cuda;
  const std::vector<double> exact = curve(Compute::fp64, {});
  ASSERT_LT(exact.back(), exact.front() - 0.5) << "it does not fall";
  EXPECT_LE(apart(curve(Compute::fp32, device), exact), 1e-5);
  if (gpu || cpu_has_bf16()) {
    // On a GPU all that is multiplied is kept in bf16, on a CPU only rounded to it.
    EXPECT_LE(apart(curve(Compute::bf16, device), exact), gpu ? 2e-2 : 5e-3);
  }
  if (!gpu) return;
  EXPECT_LE(apart(curve(Compute::tf32, device), exact), 2e-3);
  EXPECT_LE(apart(curve(Compute::fp16, device), exact), 5e-3);
}

}  // namespace
}  // namespace gallop::gpt
