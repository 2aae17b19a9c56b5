// SPDX-License-Identifier: MIT
// Runs an optimizer in fp64 beside its formula written out by hand, element by element.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "optimizer/fixture.h"

namespace gallop::test {

// One element: the parameter and the states by name, as a formula sees and changes them.
struct Element {
  double p;
  std::map<std::string, double> s = {};
};

// t counts from 1.
using Formula = std::function<void(int t, Element& e, double g)>;

// One fp64 parameter in an optimizer and as Elements.
class Beside {
 public:
  static constexpr int64_t kSize = 7;

  Beside(const std::string& rule, const Hyper& hyper, const GroupOptions& group = {})
      : data_(DType::f64, kSize), grad_(DType::f64, kSize), optimizer(rule, one_thread()) {
    data_.fill_normal(1, 1);
    for (int64_t i = 0; i < kSize; ++i) elements.push_back({data_.at(i)});
    GroupOptions options = group;
    options.hyper = hyper;
    optimizer.add_group(
        {{"p", {kSize}, data_.data(), grad_.data(), DType::f64, DType::f64, Role::bias}}, options);
  }

  // New gradients; one of them is zero.
  void fill_grad(int seed) {
    grad_.fill_normal(static_cast<uint64_t>(seed) + 50, 0.3);
    grad_.set(kSize / 2, 0);
  }
  double grad(int64_t i) const { return grad_.at(i); }
  void without_grad() { optimizer.set_grad(0, nullptr); }
  void with_grad() { optimizer.set_grad(0, grad_.data()); }

  void step(int t, const Formula& formula) {
    fill_grad(t);
    optimizer.step();
    by_hand(t, formula);
  }
  void by_hand(int t, const Formula& formula) {
    for (size_t i = 0; i < elements.size(); ++i) {
      formula(t, elements[i], grad_.at(static_cast<int64_t>(i)));
    }
  }

  void expect_same(const std::string& where) const {
    for (size_t i = 0; i < elements.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      expect_near(data_.at(at), elements[i].p, where + " p");
      for (const StateView& v : optimizer.states(0)) {
        const auto want = elements[i].s.find(v.name);
        ASSERT_NE(want, elements[i].s.end()) << where << " " << v.name;
        expect_near(check::read_element(v.data, v.dtype, at), want->second, where + " " + v.name);
      }
    }
  }

 private:
  static void expect_near(double got, double want, const std::string& what) {
    EXPECT_NEAR(got, want, 1e-12 * std::abs(want) + 1e-300) << what;
  }

  Buffer data_, grad_;

 public:
  Optimizer optimizer;
  std::vector<Element> elements;
};

inline void expect_formula(const std::string& rule, const Hyper& hyper, const Formula& formula,
                           int steps = 12) {
  Beside run(rule, hyper);
  for (int t = 1; t <= steps && !testing::Test::HasFailure(); ++t) {
    run.step(t, formula);
    run.expect_same(rule + " step " + std::to_string(t));
  }
}

inline double sign_of(double x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }

}  // namespace gallop::test
