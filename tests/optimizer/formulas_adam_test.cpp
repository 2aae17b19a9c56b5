// SPDX-License-Identifier: MIT
// Rules with first and second moments against their published formulas, in double.
#include "optimizer/formulas.h"

namespace gallop::test {
namespace {

using std::pow;
using std::sqrt;

const Hyper kAdam = {
    {"lr", 0.02}, {"beta1", 0.8}, {"beta2", 0.95}, {"eps", 1e-3}, {"weight_decay", 0.1}};
constexpr double kLr = 0.02, kB1 = 0.8, kB2 = 0.95, kEps = 1e-3, kWd = 0.1;

Hyper with(Hyper hyper, std::initializer_list<std::pair<std::string, double>> more) {
  hyper.insert(hyper.end(), more);
  return hyper;
}

// m and v as torch's Adam family keeps them.
void moments(Element& e, double g) {
  e.s["exp_avg"] = kB1 * e.s["exp_avg"] + (1 - kB1) * g;
  e.s["exp_avg_sq"] = kB2 * e.s["exp_avg_sq"] + (1 - kB2) * g * g;
}

void adam(int t, Element& e, double g, bool decoupled, bool amsgrad) {
  if (decoupled) {
    e.p *= 1 - kLr * kWd;
  } else {
    g += kWd * e.p;
  }
  moments(e, g);
  double v = e.s["exp_avg_sq"];
  if (amsgrad) v = e.s["max_exp_avg_sq"] = std::max(e.s["max_exp_avg_sq"], v);
  const double denom = sqrt(v) / sqrt(1 - pow(kB2, t)) + kEps;
  e.p -= kLr / (1 - pow(kB1, t)) * e.s["exp_avg"] / denom;
}

TEST(Formula, Adam) {
  expect_formula("adam", kAdam, [](int t, Element& e, double g) { adam(t, e, g, false, false); });
}

TEST(Formula, AdamAmsgradTakesTheMaximumOfTheRawSecondMoment) {
  expect_formula("adam", with(kAdam, {{"amsgrad", 1}}),
                 [](int t, Element& e, double g) { adam(t, e, g, false, true); });
}

TEST(Formula, AdamW) {
  expect_formula("adamw", kAdam, [](int t, Element& e, double g) { adam(t, e, g, true, false); });
}

TEST(Formula, AdamWAmsgrad) {
  expect_formula("adamw", with(kAdam, {{"amsgrad", 1}}),
                 [](int t, Element& e, double g) { adam(t, e, g, true, true); });
}

TEST(Formula, AdamMaximizeKeepsTheSignOfDecay) {
  GroupOptions group;
  group.maximize = true;
  Beside run("adam", kAdam, group);
  for (int t = 1; t <= 5; ++t) {
    run.step(t, [](int k, Element& e, double g) { adam(k, e, -g, false, false); });
    run.expect_same("maximize");
  }
}

TEST(Formula, Adamax) {
  expect_formula("adamax", kAdam, [](int t, Element& e, double g) {
    g += kWd * e.p;
    e.s["exp_avg"] += (1 - kB1) * (g - e.s["exp_avg"]);
    e.s["exp_inf"] = std::max(kB2 * e.s["exp_inf"], std::abs(g) + kEps);
    e.p -= kLr / (1 - pow(kB1, t)) * e.s["exp_avg"] / e.s["exp_inf"];
  });
}

// The product of the momentum coefficients, from all steps so far and not from a running scalar.
double mu(int t) { return kB1 * (1 - 0.5 * pow(0.96, t * 0.05)); }
double mu_product(int t) { return t == 0 ? 1 : mu_product(t - 1) * mu(t); }

void nadam(int t, Element& e, double g, bool decoupled) {
  decoupled ? e.p *= 1 - kLr* kWd : g += kWd * e.p;
  moments(e, g);
  const double denom = sqrt(e.s["exp_avg_sq"] / (1 - pow(kB2, t))) + kEps;
  e.p -= kLr * (1 - mu(t)) / (1 - mu_product(t)) * g / denom;
  e.p -= kLr * mu(t + 1) / (1 - mu_product(t + 1)) * e.s["exp_avg"] / denom;
}

TEST(Formula, NAdam) {
  const Hyper hyper = with(kAdam, {{"momentum_decay", 0.05}});
  expect_formula("nadam", hyper, [](int t, Element& e, double g) { nadam(t, e, g, false); });
  expect_formula("nadam", with(hyper, {{"decoupled_weight_decay", 1}}),
                 [](int t, Element& e, double g) { nadam(t, e, g, true); });
}

void radam(int t, Element& e, double g, bool decoupled, int& rectified, int& plain_steps) {
  decoupled ? e.p *= 1 - kLr* kWd : g += kWd * e.p;
  moments(e, g);
  const double rho_inf = 2 / (1 - kB2) - 1;
  const double rho = rho_inf - 2 * t * pow(kB2, t) / (1 - pow(kB2, t));
  const double m = e.s["exp_avg"] / (1 - pow(kB1, t));
  if (rho > 5) {
    const double r = sqrt((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho));
    e.p -= kLr * m * r * sqrt(1 - pow(kB2, t)) / (sqrt(e.s["exp_avg_sq"]) + kEps);
    ++rectified;
  } else {
    e.p -= kLr * m;
    ++plain_steps;
  }
}

TEST(Formula, RAdamInBothBranches) {
  for (bool decoupled : {false, true}) {
    int rectified = 0, plain_steps = 0;
    expect_formula(
        "radam", with(kAdam, {{"decoupled_weight_decay", decoupled ? 1 : 0}}),
        [&](int t, Element& e, double g) { radam(t, e, g, decoupled, rectified, plain_steps); });
    EXPECT_EQ(plain_steps, 5 * Beside::kSize);  // rho passes 5 at the sixth step
    EXPECT_EQ(rectified, 7 * Beside::kSize);
  }
}

// Averages whose bias correction is folded in: weights 1, b, b^2, ... over their sum.
void qhadam(int t, Element& e, double g, bool decoupled) {
  decoupled ? e.p *= 1 - kLr* kWd : g += kWd * e.p;
  const double w1 = (1 - pow(kB1, t)) / (1 - kB1), w2 = (1 - pow(kB2, t)) / (1 - kB2);
  e.s["exp_avg"] += (g - e.s["exp_avg"]) / w1;
  e.s["exp_avg_sq"] += (g * g - e.s["exp_avg_sq"]) / w2;
  const double num = 0.7 * e.s["exp_avg"] + 0.3 * g;
  e.p -= kLr * num / (sqrt(0.9 * e.s["exp_avg_sq"] + 0.1 * g * g) + kEps);
}

TEST(Formula, QhAdam) {
  const Hyper hyper = with(kAdam, {{"nu1", 0.7}, {"nu2", 0.9}});
  expect_formula("qhadam", hyper, [](int t, Element& e, double g) { qhadam(t, e, g, false); });
  expect_formula("qhadam", with(hyper, {{"decouple_weight_decay", 1}}),
                 [](int t, Element& e, double g) { qhadam(t, e, g, true); });
}

void ademamix(int t, Element& e, double g, double alpha, double b3) {
  e.s["exp_avg_fast"] = kB1 * e.s["exp_avg_fast"] + (1 - kB1) * g;
  e.s["exp_avg_slow"] = b3 * e.s["exp_avg_slow"] + (1 - b3) * g;
  e.s["exp_avg_sq"] = kB2 * e.s["exp_avg_sq"] + (1 - kB2) * g * g;
  const double denom = sqrt(e.s["exp_avg_sq"]) / sqrt(1 - pow(kB2, t)) + kEps;
  const double u = (e.s["exp_avg_fast"] / (1 - pow(kB1, t)) + alpha * e.s["exp_avg_slow"]) / denom;
  e.p -= kLr * (u + kWd * e.p);
}

TEST(Formula, AdEMAMix) {
  expect_formula("ademamix", with(kAdam, {{"beta3", 0.99}, {"alpha", 3}}),
                 [](int t, Element& e, double g) { ademamix(t, e, g, 3, 0.99); });
}

TEST(Formula, AdEMAMixWarmsUpAlphaAndBeta3) {
  const auto f = [](double b) { return std::log(0.5) / std::log(b + 1e-8) - 1; };
  expect_formula(
      "ademamix",
      with(kAdam, {{"beta3", 0.99}, {"alpha", 3}, {"alpha_warmup", 6}, {"beta3_warmup", 8}}),
      [&](int t, Element& e, double g) {
        const double alpha = t < 6 ? 3.0 * t / 6 : 3, x = t / 8.0;
        const double slow = (1 - x) * f(kB1) + x * f(0.99);
        ademamix(t, e, g, alpha, t < 8 ? pow(0.5, 1 / (slow + 1)) : 0.99);
      });
}

}  // namespace
}  // namespace gallop::test
