// SPDX-License-Identifier: MIT
// The other rules against their published formulas, in double.
#include "optimizer/formulas.h"

namespace gallop::test {
namespace {

using std::pow;
using std::sqrt;

constexpr double kLr = 0.03, kWd = 0.1;

Hyper hyper_of(std::initializer_list<std::pair<std::string, double>> more) {
  Hyper hyper = {{"lr", kLr}, {"weight_decay", kWd}};
  hyper.insert(hyper.end(), more);
  return hyper;
}

TEST(Formula, SgdWithoutMomentum) {
  expect_formula("sgd", hyper_of({}),
                 [](int, Element& e, double g) { e.p -= kLr * (g + kWd * e.p); });
}

TEST(Formula, SgdDampeningMeansNothingWithoutMomentum) {
  expect_formula("sgd", hyper_of({{"dampening", 0.5}}),
                 [](int, Element& e, double g) { e.p -= kLr * (g + kWd * e.p); });
}

TEST(Formula, SgdMomentumIsNotDampenedInTheFirstStep) {
  for (double dampening : {0.0, 0.4}) {
    expect_formula("sgd", hyper_of({{"momentum", 0.9}, {"dampening", dampening}}),
                   [=](int t, Element& e, double g) {
                     g += kWd * e.p;
                     double& b = e.s["momentum_buffer"];
                     b = t == 1 ? g : 0.9 * b + (1 - dampening) * g;
                     e.p -= kLr * b;
                   });
  }
}

TEST(Formula, SgdNesterov) {
  expect_formula("sgd", hyper_of({{"momentum", 0.9}, {"nesterov", 1}}),
                 [](int t, Element& e, double g) {
                   g += kWd * e.p;
                   double& b = e.s["momentum_buffer"];
                   b = t == 1 ? g : 0.9 * b + g;
                   e.p -= kLr * (g + 0.9 * b);
                 });
}

TEST(Formula, Qhm) {
  for (bool direct : {false, true}) {
    expect_formula(
        "qhm", hyper_of({{"momentum", 0.95}, {"nu", 0.7}, {"weight_decay_type", direct ? 1 : 0}}),
        [=](int, Element& e, double g) {
          direct ? e.p *= 1 - kLr* kWd : g += kWd * e.p;
          double& b = e.s["momentum_buffer"];
          b = 0.95 * b + 0.05 * g;
          e.p -= kLr * (0.7 * b + 0.3 * g);
        });
  }
}

TEST(Formula, Adagrad) {
  expect_formula("adagrad",
                 hyper_of({{"lr_decay", 0.1}, {"initial_accumulator_value", 0.5}, {"eps", 1e-3}}),
                 [](int t, Element& e, double g) {
                   g += kWd * e.p;
                   double& v = e.s["sum"];
                   if (t == 1) v = 0.5;
                   v += g * g;
                   e.p -= kLr / (1 + (t - 1) * 0.1) * g / (sqrt(v) + 1e-3);
                 });
}

TEST(Formula, Adadelta) {
  expect_formula("adadelta", hyper_of({{"rho", 0.8}, {"eps", 1e-4}}),
                 [](int, Element& e, double g) {
                   g += kWd * e.p;
                   double &v = e.s["square_avg"], &a = e.s["acc_delta"];
                   v = 0.8 * v + 0.2 * g * g;
                   const double d = sqrt(a + 1e-4) / sqrt(v + 1e-4) * g;
                   a = 0.8 * a + 0.2 * d * d;
                   e.p -= kLr * d;
                 });
}

TEST(Formula, RmsPropPlainWithMomentumCenteredAndBoth) {
  for (double momentum : {0.0, 0.9}) {
    for (bool centered : {false, true}) {
      expect_formula("rmsprop",
                     hyper_of({{"alpha", 0.9},
                               {"eps", 1e-3},
                               {"momentum", momentum},
                               {"centered", centered ? 1 : 0}}),
                     [=](int, Element& e, double g) {
                       g += kWd * e.p;
                       double &v = e.s["square_avg"], &a = e.s["grad_avg"];
                       v = 0.9 * v + 0.1 * g * g;
                       if (centered) a += 0.1 * (g - a);
                       const double move = g / (sqrt(v - a * a) + 1e-3);
                       double& b = e.s["momentum_buffer"];
                       b = momentum * b + move;
                       e.p -= kLr * (momentum > 0 ? b : move);
                     });
    }
  }
}

TEST(Formula, Lion) {
  expect_formula("lion", hyper_of({{"beta1", 0.8}, {"beta2", 0.95}}),
                 [](int, Element& e, double g) {
                   double& m = e.s["exp_avg"];
                   e.p *= 1 - kLr * kWd;
                   e.p -= kLr * sign_of(0.8 * m + 0.2 * g);
                   m = 0.95 * m + 0.05 * g;
                 });
}

void adan(int t, Element& e, double g, bool no_prox) {
  const double b1 = 0.9, b2 = 0.8, b3 = 0.95, eps = 1e-3;
  double &m = e.s["exp_avg"], &diff = e.s["exp_avg_diff"], &v = e.s["exp_avg_sq"];
  const double d = t == 1 ? 0 : g + e.s["neg_pre_grad"];
  m = b1 * m + (1 - b1) * g;
  diff = b2 * diff + (1 - b2) * d;
  v = b3 * v + (1 - b3) * (g + b2 * d) * (g + b2 * d);
  e.s["neg_pre_grad"] = -g;
  const double denom = sqrt(v) / sqrt(1 - pow(b3, t)) + eps;
  if (no_prox) e.p *= 1 - kLr * kWd;
  e.p -= kLr / (1 - pow(b1, t)) * m / denom;
  e.p -= kLr * b2 / (1 - pow(b2, t)) * diff / denom;
  if (!no_prox) e.p /= 1 + kLr * kWd;
}

TEST(Formula, Adan) {
  for (bool no_prox : {false, true}) {
    expect_formula("adan",
                   hyper_of({{"beta1", 0.9},
                             {"beta2", 0.8},
                             {"beta3", 0.95},
                             {"eps", 1e-3},
                             {"no_prox", no_prox ? 1 : 0}}),
                   [=](int t, Element& e, double g) { adan(t, e, g, no_prox); });
  }
}

TEST(Formula, SophiaG) {
  Beside run("sophiag", hyper_of({{"beta1", 0.9}, {"beta2", 0.95}, {"rho", 0.04}, {"bs", 50}}));
  int clipped = 0, free = 0;
  for (int t = 1; t <= 12; ++t) {
    run.step(t, [&](int, Element& e, double g) {
      double &m = e.s["exp_avg"], h = e.s["hessian"];
      e.p *= 1 - kLr * kWd;
      m = 0.9 * m + 0.1 * g;
      const double ratio = std::abs(m) / (0.04 * 50 * h + 1e-15);
      ratio < 1 ? ++free : ++clipped;
      e.p -= kLr * sign_of(m) * std::min(ratio, 1.0);
    });
    if (t % 3 == 0) {
      run.fill_grad(100 + t);
      run.optimizer.run("hessian");
      run.by_hand(t, [](int, Element& e, double g) {
        e.s["hessian"] = 0.95 * e.s["hessian"] + 0.05 * g * g;
      });
    }
    run.expect_same("sophiag step " + std::to_string(t));
  }
  EXPECT_GT(clipped, 10);
  EXPECT_GT(free, 10);
}

}  // namespace
}  // namespace gallop::test
