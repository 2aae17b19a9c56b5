// SPDX-License-Identifier: MIT
// Kernels for states in 8 and 4 bits: whole blocks are updated by other code than what is left.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cuda/gpu.h"

namespace gallop::test {
namespace {

class QuantisedOnGpu : public GpuTest {};

constexpr StateFormat kFormats[] = {StateFormat::q8, StateFormat::q4, StateFormat::bnb8,
                                    StateFormat::fp8};

GroupOptions options_of(const std::string& rule, StateFormat format) {
  GroupOptions g;
  g.state = format;
  if (rule == "sgd") g.hyper = {{"momentum", 0.9}};
  return g;
}

std::vector<unsigned char> bytes_at(const void* data, int64_t bytes) {
  std::vector<unsigned char> out(static_cast<size_t>(bytes));
  if (bytes > 0) cuda::copy_to_host(0, out.data(), data, out.size());
  return out;
}

// One tensor whose parameter and gradient are `offset` floats past where memory is aligned.
struct OneTensor {
  OneTensor(const char* rule, StateFormat format, size_t n, size_t param_offset, size_t grad_offset,
            Options options = {})
      : param(some_values(n, 1), param_offset), grad(some_values(n, 2, 0.1f), grad_offset) {
    options.device = kGpu;
    optimizer = std::make_unique<Optimizer>(rule, options);
    Param p{"p", {static_cast<int64_t>(n)}, param.data(), grad.data()};
    optimizer->add_group({p}, options_of(rule, format));
  }
  void step(unsigned seed, const std::vector<size_t>& not_finite = {}) {
    std::vector<float> g = some_values(param.get().size(), seed, 0.1f);
    for (size_t i : not_finite) g[i] = std::numeric_limits<float>::infinity();
    grad.set(g);
    optimizer->step();
  }
  // Parameter, codes and scales.
  std::vector<std::vector<unsigned char>> everything() const {
    const std::vector<float> p = param.get();
    const auto* bits = reinterpret_cast<const unsigned char*>(p.data());
    std::vector<std::vector<unsigned char>> out = {{bits, bits + p.size() * sizeof(float)}};
    for (const StateView& v : optimizer->states(0)) {
      out.push_back(bytes_at(v.data, v.bytes));
      out.push_back(bytes_at(v.scales, v.scale_count() * 4));
    }
    return out;
  }

  Floats param, grad;
  std::unique_ptr<Optimizer> optimizer;
};

TEST_F(QuantisedOnGpu, SameBitsWhereverMemoryLies) {
  for (const char* rule : {"adamw", "lion", "adan", "adagrad", "schedulefree_adamw", "sgd"}) {
    for (StateFormat format : kFormats) {
      for (size_t n : {4096u, 8192u + 256u, 70001u, 524288u + 3u}) {
        OneTensor aligned(rule, format, n, 0, 0), param_is_not(rule, format, n, 1, 0),
            grad_is_not(rule, format, n, 0, 3);
        for (OneTensor* t : {&aligned, &param_is_not, &grad_is_not}) {
          t->step(11);
          t->step(12, {5, 300, n - 1});
          // What has become no number would be written with other bits.
          std::vector<float> p = t->param.get();
          for (float& x : p) x = std::isfinite(x) ? x : 0;
          t->param.set(p);
          t->step(13);
        }
        const auto want = aligned.everything();
        EXPECT_EQ(want, param_is_not.everything()) << rule << " " << to_string(format) << " " << n;
        EXPECT_EQ(want, grad_is_not.everything()) << rule << " " << to_string(format) << " " << n;
      }
    }
  }
}

// One block of many, in the middle of whole ones.
TEST_F(QuantisedOnGpu, WhatIsNotFiniteStaysInItsElement) {
  for (StateFormat format : {StateFormat::q8, StateFormat::q4, StateFormat::fp8}) {
    constexpr size_t kN = 20000, kBad = 5000;
    OneTensor whole("adamw", format, kN, 0, 0), hit("adamw", format, kN, 0, 0);
    whole.step(21);
    hit.step(21);
    whole.step(22);
    hit.step(22, {kBad});
    EXPECT_EQ(whole.optimizer->not_finite(), 0);
    EXPECT_EQ(hit.optimizer->not_finite(), 1);
    const std::vector<float> want = whole.param.get(), got = hit.param.get();
    for (size_t i = 0; i < kN; ++i) {
      if (i != kBad) {
        ASSERT_EQ(want[i], got[i]) << i;
      }
    }
    EXPECT_TRUE(std::isnan(got[kBad]));
    for (const char* state : {"exp_avg", "exp_avg_sq"}) {
      const std::vector<float> values = hit.optimizer->state_values(0, state);
      EXPECT_EQ(values[kBad], 0);
      for (float x : values) ASSERT_TRUE(std::isfinite(x));
    }
  }
}

TEST_F(QuantisedOnGpu, ClampedAndZeroedAsWithFp32State) {
  Options options;
  options.clip_value = 0.01;
  options.zero_grad = true;
  OneTensor wide("sgd", StateFormat::f32, 9000, 0, 0, options),
      narrow("sgd", StateFormat::q8, 9000, 0, 0, options);
  wide.step(31);
  narrow.step(31);
  EXPECT_EQ(wide.param.get(), narrow.param.get());
  EXPECT_EQ(narrow.grad.get(), std::vector<float>(9000));
}

}  // namespace
}  // namespace gallop::test
