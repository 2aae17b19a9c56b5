// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "check/data.h"
#include "cpu/backend.h"
#include "cpu/isa.h"

namespace gallop::cpu {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();
const int64_t kSizes[] = {0, 1, 15, 16, 17, 255, 256, 257, 1003, 16384, 100003};

struct Type {
  DType dtype;
  Storage storage;
};
const Type kTypes[] = {{DType::f32, Storage::f32},
                       {DType::bf16, Storage::bf16_nearest},
                       {DType::f16, Storage::f16_nearest},
                       {DType::f64, Storage::f64}};

double sum_on(const Toolkit& t, const Type& type, const check::Buffer& x, double scale = 1,
              double limit = kNoLimit) {
  const double scale_and_limit[] = {scale, limit};
  if (type.dtype == DType::f64) return t.square_sum_f64(x.data(), x.size(), scale_and_limit);
  return t.square_sum(&t.codecs[static_cast<size_t>(type.storage)], x.data(), x.size(),
                      scale_and_limit);
}

long double wanted(const check::Buffer& x, double scale = 1, double limit = kNoLimit) {
  long double sum = 0;
  for (int64_t i = 0; i < x.size(); ++i) {
    const long double g = std::clamp<long double>(static_cast<long double>(x.at(i)) * scale,
                                                  -static_cast<long double>(limit), limit);
    sum += g * g;
  }
  return sum;
}

check::Buffer normal(DType type, int64_t n, bool unaligned = false) {
  check::Buffer x(type, n, unaligned);
  x.fill_normal(static_cast<uint64_t>(n), 0.3);
  return x;
}

// Calls f(toolkit, type) for everything that runs here.
template <class F>
void for_each(F f) {
  for (const Toolkit* t : toolkits()) {
    if (!runs_here(t->isa)) continue;
    for (const Type& type : kTypes) {
      SCOPED_TRACE(std::string(t->isa) + " " + std::string(to_string(type.dtype)));
      f(*t, type);
    }
  }
}

TEST(SquareSum, IsTheLongDoubleSum) {
  for_each([](const Toolkit& t, const Type& type) {
    for (int64_t n : kSizes) {
      const check::Buffer x = normal(type.dtype, n);
      const double want = static_cast<double>(wanted(x));
      // Squares of fp32 are exact in double; one rounding per element added remains.
      ASSERT_NEAR(sum_on(t, type, x), want, want * 1e-12) << n;
    }
  });
}

TEST(SquareSum, SeesEveryElement) {
  for_each([](const Toolkit& t, const Type& type) {
    for (int64_t n : {1, 17, 256, 257, 1003}) {
      check::Buffer x(type.dtype, n);
      for (int64_t i = 0; i < n; ++i) x.set(i, 0);
      for (int64_t i = 0; i < n; ++i) {
        x.set(i, 3);
        ASSERT_EQ(sum_on(t, type, x), 9) << i << " of " << n;
        x.set(i, 0);
      }
    }
  });
}

TEST(SquareSum, ScalesBeforeItSquares) {
  for_each([](const Toolkit& t, const Type& type) {
    const check::Buffer x = normal(type.dtype, 1003);
    for (double scale : {0.5, -1.0, 0x1p-16, -4.0}) {  // exact in every format
      const double want = static_cast<double>(wanted(x, scale));
      ASSERT_NEAR(sum_on(t, type, x, scale), want, want * 1e-12) << scale;
    }
    const double want = static_cast<double>(wanted(x, 1.0 / 3));
    ASSERT_NEAR(sum_on(t, type, x, 1.0 / 3), want, want * 1e-6);
  });
}

TEST(SquareSum, ClampsAfterItScales) {
  for_each([](const Toolkit& t, const Type& type) {
    const check::Buffer x = normal(type.dtype, 1003);
    for (double scale : {1.0, -0.5, 8.0}) {
      const double limit = 0.25, want = static_cast<double>(wanted(x, scale, limit));
      ASSERT_NEAR(sum_on(t, type, x, scale, limit), want, want * 1e-12) << scale;
      ASSERT_LT(want, static_cast<double>(wanted(x, scale)) * 0.99) << "the limit was not reached";
    }
  });
}

TEST(SquareSum, IsNotFiniteIfAnElementIsNot) {
  for_each([](const Toolkit& t, const Type& type) {
    for (int64_t n : {1, 16, 257, 1003}) {
      for (int64_t at : {int64_t{0}, n / 2, n - 1}) {
        for (double bad : {NAN, INFINITY, -INFINITY}) {
          check::Buffer x = normal(type.dtype, n);
          x.set(at, bad);
          ASSERT_FALSE(std::isfinite(sum_on(t, type, x))) << bad << " at " << at << " of " << n;
        }
      }
    }
  });
}

TEST(SquareSum, StaysNanUnderAClamp) {
  for_each([](const Toolkit& t, const Type& type) {
    check::Buffer x = normal(type.dtype, 300);
    x.set(123, NAN);
    ASSERT_TRUE(std::isnan(sum_on(t, type, x, 1, 0.1)));
  });
}

TEST(SquareSum, OfLargeFp32DoesNotOverflow) {
  for (const Toolkit* t : toolkits()) {
    if (!runs_here(t->isa)) continue;
    check::Buffer x(DType::f32, 100);
    for (int64_t i = 0; i < 100; ++i) x.set(i, 0x1p127);
    EXPECT_EQ(sum_on(*t, kTypes[0], x), 100 * 0x1p254);
  }
}

TEST(SquareSum, HasTheSameBitsOnEveryInstructionSetAndAlignment) {
  for (const Type& type : kTypes) {
    for (int64_t n : kSizes) {
      const double want = sum_on(*toolkits()[0], type, normal(type.dtype, n), 0.7, 0.4);
      for (const Toolkit* t : toolkits()) {
        if (!runs_here(t->isa)) continue;
        for (bool unaligned : {false, true}) {
          const double got = sum_on(*t, type, normal(type.dtype, n, unaligned), 0.7, 0.4);
          ASSERT_EQ(std::memcmp(&got, &want, sizeof got), 0) << t->isa << " " << n;
        }
      }
    }
  }
}

// Over several tensors, through the backend: the same bits for any number of threads.
TEST(SquareSum, OfAllTensorsHasTheSameBitsForAnyNumberOfThreads) {
  const std::vector<int64_t> sizes = {100003, 1, 0, 70000, 16384, 255, 40000};
  std::vector<check::Buffer> grads;
  std::vector<Tensor> tensors;
  long double want = 0;
  for (int64_t n : sizes) {
    grads.push_back(normal(DType::f32, n));
    want += wanted(grads.back(), 0.5);
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    Tensor t;
    t.grad = grads[i].data();
    t.n = sizes[i];
    tensors.push_back(t);
  }
  std::vector<Job> jobs;
  for (const Tensor& t : tensors) jobs.push_back({&t, nullptr, 0.5, kNoLimit, 1, 0, 0, 0});
  const double alone = Backend(find_rule("adamw"), 1).square_sum(jobs);
  EXPECT_NEAR(alone, static_cast<double>(want), static_cast<double>(want) * 1e-12);
  for (int threads : {2, 3, 5, 8}) {
    const double together = Backend(find_rule("adamw"), threads).square_sum(jobs);
    EXPECT_EQ(std::memcmp(&together, &alone, sizeof alone), 0) << threads;
  }
}

// Whether a step is skipped is decided by this sum: a clamp must not hide an overflowed gradient.
TEST(SquareSum, OfAllTensorsIsNotFiniteIfAGradientIsNotEvenUnderAClamp) {
  for (const Type& type : kTypes) {
    for (double bad : {NAN, INFINITY, -INFINITY}) {
      check::Buffer grad = normal(type.dtype, 1003);
      grad.set(700, bad);
      Tensor t;
      t.grad = grad.data();
      t.n = grad.size();
      t.grad_storage = type.storage;
      const Job job{&t, nullptr, 1, 0.1, 1, 0, 0, 0};
      EXPECT_FALSE(std::isfinite(Backend(find_rule("adamw"), 1).square_sum({&job, 1})))
          << to_string(type.dtype) << " " << bad;
    }
  }
}

}  // namespace
}  // namespace gallop::cpu
