// SPDX-License-Identifier: MIT
// What 16-bit parameters and states can be trusted with.
#include <cmath>

#include "core/convert.h"
#include "optimizer/fixture.h"

namespace gallop::test {
namespace {

constexpr int64_t kElements = 1000;

double mean(const void* data, DType type) {
  double sum = 0;
  for (int64_t i = 0; i < kElements; ++i) sum += check::read_element(data, type, i);
  return sum / kElements;
}

// exp_avg_sq after one gradient of 1 and then 3000 of 0, relative to what it was after the first.
std::vector<double> decayed(Rounding rounding) {
  Plan plan{plain("adam"), kF32};
  plan.formats.state = StateFormat::bf16;
  plan.formats.state_rounding = rounding;
  plan.sizes = {{kElements}};
  World w(plan);
  const StateView v = w.optimizer.states(0)[1];
  EXPECT_EQ(v.name, "exp_avg_sq");
  EXPECT_EQ(v.dtype, DType::bf16);
  std::vector<double> ratio;
  w.optimizer.set_all("weight_decay", 0);
  for (int64_t i = 0; i < kElements; ++i) w.grads[0].set(i, 1);
  w.optimizer.step();
  for (int64_t i = 0; i < kElements; ++i) {
    ratio.push_back(1 / check::read_element(v.data, v.dtype, i));
  }
  w.optimizer.zero_grad();
  for (int k = 0; k < 3000; ++k) w.optimizer.step();
  for (int64_t i = 0; i < kElements; ++i) {
    ratio[static_cast<size_t>(i)] *= check::read_element(v.data, v.dtype, i);
  }
  return ratio;
}

TEST(LowPrecision, StateDecaysOnAverageWithStochasticRounding) {
  double sum = 0;
  for (double r : decayed(GroupOptions().state_rounding)) sum += r;
  // A random walk of steps of one half percent: the mean of 1000 is known to better than one.
  const double expected = std::pow(0.999, 3000);
  EXPECT_NEAR(sum / kElements, expected, 0.03 * expected);
}

TEST(LowPrecision, StateNeverFallsWithNearestRounding) {
  for (double r : decayed(Rounding::nearest)) ASSERT_EQ(r, 1);
}

// The mean of parameters that start at 1 after 1000 steps of -1e-4 each.
double moved(DType type, Rounding rounding) {
  Plan plan{{"sgd", "sgd", {{"lr", 1e-4}}}};
  plan.formats.param = type;
  plan.formats.rounding = rounding;
  plan.sizes = {{kElements}};
  World w(plan);
  for (int64_t i = 0; i < kElements; ++i) {
    w.params[0].set(i, 1);
    w.grads[0].set(i, 1);
  }
  w.optimizer.refresh_masters();
  for (int k = 0; k < 1000; ++k) w.optimizer.step();
  return mean(w.params[0].data(), type);
}

TEST(LowPrecision, TinyUpdatesMoveStochasticParametersAsTheyMoveFp32) {
  EXPECT_NEAR(moved(DType::f32, Rounding::nearest), 0.9, 1e-4);
  EXPECT_NEAR(moved(DType::bf16, Rounding::stochastic), 0.9, 3e-3);  // five standard deviations
  EXPECT_NEAR(moved(DType::f16, Rounding::stochastic), 0.9, 1e-3);
  EXPECT_NEAR(moved(DType::bf16, Rounding::master), 0.9, 2e-3);  // half a spacing
  EXPECT_NEAR(moved(DType::f16, Rounding::master), 0.9, 3e-4);
  EXPECT_NEAR(moved(DType::bf16, Rounding::remainder), 0.9, 2e-3);
}

TEST(LowPrecision, TinyUpdatesAreLostOnNearestParameters) {
  EXPECT_EQ(moved(DType::bf16, Rounding::nearest), 1);
  EXPECT_EQ(moved(DType::f16, Rounding::nearest), 1);
}

float full_value(const World& w, size_t param, int64_t i, Rounding rounding) {
  const void* low = w.optimizer.low_bits(param);
  if (rounding == Rounding::master) return static_cast<const float*>(low)[i];
  return join_float(static_cast<const Half*>(w.params[param].data())[i],
                    static_cast<const Half*>(low)[i]);
}

// An fp32 parameter that starts with the same values and gets the same gradients.
void expect_fp32_trajectory(const Variant& v, DType type, Rounding rounding, const Formats& f) {
  Plan plan{v, f};
  World wide(plan);
  plan.formats.param = type;
  plan.formats.rounding = rounding;
  World narrow(plan);
  for (size_t p = 0; p < wide.params.size(); ++p) {
    for (int64_t i = 0; i < wide.params[p].size(); ++i) {
      wide.params[p].set(i, narrow.params[p].at(i));
    }
  }
  for (uint64_t k = 0; k < 5; ++k) {
    for (World* w : {&wide, &narrow}) {
      w->fill_grads(k);
      w->step_all_entries();
    }
    for (size_t p = 0; p < wide.params.size(); ++p) {
      for (int64_t i = 0; i < wide.params[p].size(); ++i) {
        const float want = static_cast<const float*>(wide.params[p].data())[i];
        const float got = full_value(narrow, p, i, rounding);
        ASSERT_EQ(bits_of(got), bits_of(want)) << k << " " << p << " " << i;
        if (rounding == Rounding::master) {
          Buffer nearest(type, 1);
          nearest.set(0, want);
          ASSERT_EQ(narrow.params[p].at(i), nearest.at(0));
        } else {
          // The bf16 alone is nearest as well, but for ties.
          ASSERT_LE(std::abs(narrow.params[p].at(i) - static_cast<double>(want)),
                    check::half_spacing(DType::bf16, want));
        }
      }
      const auto a = wide.optimizer.states(p), b = narrow.optimizer.states(p);
      for (size_t j = 0; j < a.size(); ++j) {
        const auto bytes = static_cast<size_t>(a[j].bytes);
        ASSERT_TRUE(bytes == 0 || std::memcmp(a[j].data, b[j].data, bytes) == 0) << a[j].name;
      }
    }
  }
}

TEST(LowPrecision, MasterAndRemainderFollowFp32ToTheBit) {
  for (const Variant& v : variants()) {
    for (const Formats& f : formats()) {
      if (f.param != DType::f32) continue;
      for (DType grad : {DType::f32, DType::bf16, DType::f16}) {
        Formats with_grad = f;
        with_grad.grad = grad;
        SCOPED_TRACE(v.name + " " + to_string(with_grad));
        expect_fp32_trajectory(v, DType::bf16, Rounding::remainder, with_grad);
        expect_fp32_trajectory(v, DType::bf16, Rounding::master, with_grad);
        expect_fp32_trajectory(v, DType::f16, Rounding::master, with_grad);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(LowPrecision, RefreshMastersFollowsNewParameters) {
  for (Rounding rounding : {Rounding::master, Rounding::remainder}) {
    Plan plan{plain("adam")};
    plan.formats.param = DType::bf16;
    plan.formats.rounding = rounding;
    World w(plan);
    w.fill_grads(1);
    w.optimizer.step();
    for (Buffer& p : w.params) p.fill_normal(77, 3);
    w.optimizer.refresh_masters();
    for (int64_t i = 0; i < 1003; ++i) {
      ASSERT_EQ(full_value(w, 5, i, rounding), w.params[5].at(i));
    }
  }
}

TEST(LowPrecision, WeightLikeStateStaysFp32) {
  Plan plan{plain("schedulefree_adamw")};
  for (StateFormat f :
       {StateFormat::bf16, StateFormat::q8, StateFormat::bnb8, StateFormat::q4, StateFormat::fp8}) {
    plan.formats.state = f;
    World w(plan);
    for (const StateView& s : w.optimizer.states(5)) {
      EXPECT_EQ(s.format, s.name == "z" ? StateFormat::f32 : f) << s.name;
    }
  }
}

}  // namespace
}  // namespace gallop::test
