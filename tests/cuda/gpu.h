// SPDX-License-Identifier: MIT
// Optimizers on a GPU in real device memory. Without a GPU these tests are skipped, and say so.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "cuda/memory.h"
#include "cuda/timing.h"
#include "gallop/gallop.h"
#include "optimizer/fixture.h"

namespace gallop::test {

inline constexpr Device kGpu{Device::Kind::cuda, 0};

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      cuda::require_device(0);
    } catch (const Error& e) {
      GTEST_SKIP() << "NOT RUN, needs a GPU: " << e.what();
    }
  }
};

// Floats in device memory.
class Floats {
 public:
  explicit Floats(std::vector<float> values, size_t offset = 0)
      : n_(values.size()),
        offset_(offset),
        base_(static_cast<float*>(cuda::allocate(0, (n_ + offset + 1) * sizeof(float)))) {
    set(values);
  }
  ~Floats() { cuda::release(0, base_); }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;

  float* data() const { return base_ + offset_; }
  void set(const std::vector<float>& values) {
    if (n_ > 0) cuda::copy_to_device(0, data(), values.data(), n_ * sizeof(float));
  }
  std::vector<float> get() const {
    std::vector<float> out(n_);
    if (n_ > 0) cuda::copy_to_host(0, out.data(), data(), n_ * sizeof(float));
    return out;
  }

 private:
  size_t n_, offset_;
  float* base_;
};

// Values of ordinary size that differ from element to element and seed to seed.
inline std::vector<float> some_values(size_t n, unsigned seed, float scale = 1) {
  std::vector<float> out(n);
  for (size_t i = 0; i < n; ++i) {
    const auto u = static_cast<unsigned>(i * 2654435761u + seed * 40503u);
    out[i] = scale * (static_cast<float>(u >> 8) / 8388608.0f - 1.0f);
  }
  return out;
}

// An optimizer over tensors of the given sizes, every other one unaligned.
struct GpuWorld {
  GpuWorld(const std::string& rule, const std::vector<size_t>& sizes, Options options = {},
           GroupOptions group = {}) {
    options.device = kGpu;
    optimizer = std::make_unique<Optimizer>(rule, options);
    std::vector<Param> list;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const auto seed = static_cast<unsigned>(i);
      params.push_back(std::make_unique<Floats>(some_values(sizes[i], seed), i % 2));
      grads.push_back(std::make_unique<Floats>(some_values(sizes[i], seed + 7777, 0.1f), i % 2));
      const std::vector<int64_t> shape = shape_of(static_cast<int64_t>(sizes[i]));
      Param p{std::string("p").append(std::to_string(i)), shape, params[i]->data(),
              grads[i]->data()};
      p.role = role_of(shape);
      list.push_back(p);
    }
    optimizer->add_group(list, group);
  }

  // Every value there is, parameters and states.
  std::vector<float> everything() const {
    std::vector<float> out;
    for (size_t i = 0; i < params.size(); ++i) {
      const std::vector<float> p = params[i]->get();
      out.insert(out.end(), p.begin(), p.end());
      for (const StateView& v : optimizer->states(i)) {
        std::vector<float> s(static_cast<size_t>(v.size));
        if (!s.empty()) cuda::copy_to_host(0, s.data(), v.data, s.size() * sizeof(float));
        out.insert(out.end(), s.begin(), s.end());
      }
    }
    return out;
  }

  std::vector<std::unique_ptr<Floats>> params, grads;
  std::unique_ptr<Optimizer> optimizer;
};

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace gallop::test
