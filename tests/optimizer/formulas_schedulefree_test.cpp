// SPDX-License-Identifier: MIT
// Schedule-Free AdamW, whose group carries scalars, against its published formula, in double.
#include "optimizer/formulas.h"

namespace gallop::test {
namespace {

using std::pow;
using std::sqrt;

constexpr double kLr = 0.03, kB1 = 0.9, kB2 = 0.95, kEps = 1e-3, kWd = 0.1;
constexpr int kWarmup = 4;
constexpr double kR = 0.5, kPower = 1.5;

Hyper hyper_of(double inner_momentum) {
  return {{"lr", kLr},
          {"beta1", kB1},
          {"beta2", kB2},
          {"eps", kEps},
          {"weight_decay", kWd},
          {"warmup_steps", kWarmup},
          {"r", kR},
          {"weight_lr_power", kPower},
          {"inner_momentum", inner_momentum}};
}

double lr_at(int t) { return kLr * (t < kWarmup ? static_cast<double>(t) / kWarmup : 1); }

// The rate only rises, so that its largest value so far is the present one.
double weight(int t) { return pow(t, kR) * pow(lr_at(t), kPower); }
double share(int t) {
  double sum = 0;
  for (int k = 1; k <= t; ++k) sum += weight(k);
  return weight(t) / sum;
}

// first: this element's first step, which need not be its group's.
void schedulefree(int t, Element& e, double g, double inner_momentum, bool first) {
  double &z = e.s["z"], &v = e.s["exp_avg_sq"], &avg = e.s["exp_avg"];
  if (first) z = e.p;
  v = kB2 * v + (1 - kB2) * g * g;
  avg = inner_momentum * avg + (1 - inner_momentum) * g;
  const double c = share(t), lr = lr_at(t), y = e.p;
  const double denom = sqrt(v / (1 - pow(kB2, t))) + kEps;
  const double n = avg / (1 - pow(inner_momentum, t)) / denom + kWd * y;
  e.p = y + c * (z - y) + lr * (kB1 * (1 - c) - 1) * n;
  z -= lr * n;
}

TEST(Formula, ScheduleFreeAdamWWithWarmUp) {
  for (double inner : {0.0, 0.7}) {
    expect_formula("schedulefree_adamw", hyper_of(inner),
                   [=](int t, Element& e, double g) { schedulefree(t, e, g, inner, t == 1); });
  }
}

TEST(Formula, ScheduleFreeEvalGivesTheAverageOfZ) {
  Beside run("schedulefree_adamw", hyper_of(0));
  // x, the weighted average of all z, straight from its definition.
  std::vector<double> x(Beside::kSize);
  for (int t = 1; t <= 9; ++t) {
    run.step(t, [](int k, Element& e, double g) { schedulefree(k, e, g, 0, k == 1); });
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = t == 1 ? run.elements[i].s["z"] : x[i] + share(t) * (run.elements[i].s["z"] - x[i]);
    }
    if (t % 3 != 0) continue;
    std::vector<Element> training = run.elements;
    run.optimizer.eval();
    for (size_t i = 0; i < x.size(); ++i) run.elements[i].p = x[i];
    run.expect_same("eval after step " + std::to_string(t));
    run.optimizer.eval();  // a second call changes nothing
    run.expect_same("eval again");
    run.optimizer.train();
    run.elements = training;
    run.expect_same("train after step " + std::to_string(t));
    run.optimizer.train();
    run.expect_same("train again");
  }
}

TEST(Formula, ScheduleFreeCountsStepsOfTheGroupForALateParameter) {
  for (double inner : {0.0, 0.7}) {
    Beside run("schedulefree_adamw", hyper_of(inner));
    run.without_grad();
    for (int t = 1; t <= 3; ++t) {
      run.optimizer.step();
      // Nothing to average yet: evaluating leaves the parameter alone.
      run.optimizer.eval();
      for (Element& e : run.elements) e.s = {{"z", 0}, {"exp_avg_sq", 0}, {"exp_avg", 0}};
      run.expect_same("evaluating without gradient");
      run.optimizer.train();
      run.expect_same("training without gradient");
    }
    run.with_grad();
    for (int t = 4; t <= 8; ++t) {
      run.step(t, [=](int k, Element& e, double g) { schedulefree(k, e, g, inner, k == 4); });
      run.expect_same("step " + std::to_string(t));
    }
    EXPECT_EQ(run.optimizer.steps(0), 5);
  }
}

TEST(Formula, AdanCountsStepsOfTheGroupForALateParameter) {
  const double lr = 0.03, b1 = 0.9, b2 = 0.8, b3 = 0.95, eps = 1e-3;
  Beside run("adan", {{"lr", lr}, {"beta1", b1}, {"beta2", b2}, {"beta3", b3}, {"eps", eps}});
  run.without_grad();
  for (int t = 1; t <= 4; ++t) run.optimizer.step();
  run.with_grad();
  for (int t = 5; t <= 9; ++t) {
    run.step(t, [=](int k, Element& e, double g) {
      double &m = e.s["exp_avg"], &diff = e.s["exp_avg_diff"], &v = e.s["exp_avg_sq"];
      // Its own first gradient has none before it to differ from.
      const double d = k == 5 ? 0 : g + e.s["neg_pre_grad"];
      m = b1 * m + (1 - b1) * g;
      diff = b2 * diff + (1 - b2) * d;
      v = b3 * v + (1 - b3) * (g + b2 * d) * (g + b2 * d);
      e.s["neg_pre_grad"] = -g;
      const double move = lr / (1 - pow(b1, k)) * m + lr * b2 / (1 - pow(b2, k)) * diff;
      e.p -= move / (sqrt(v) / sqrt(1 - pow(b3, k)) + eps);
    });
    run.expect_same("step " + std::to_string(t));
  }
}

}  // namespace
}  // namespace gallop::test
