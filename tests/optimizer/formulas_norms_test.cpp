// SPDX-License-Identifier: MIT
// Rules with norms against their formulas written out by hand over whole tensors, in double.
#include <fmt/format.h>

#include <cmath>

#include "optimizer/fixture.h"

namespace gallop::test {
namespace {

using Vector = std::vector<double>;
constexpr double kLr = 0.03, kWd = 0.1;

double square_sum(const Vector& x) {
  double sum = 0;
  for (double v : x) sum += v * v;
  return sum;
}

// One fp64 tensor in an optimizer and as plain numbers.
struct Tensors {
  Tensors(const std::string& rule, Hyper hyper, const std::vector<int64_t>& shape)
      : optimizer(rule, one_thread()) {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    data = Buffer(DType::f64, n);
    grad = Buffer(DType::f64, n);
    data.fill_normal(1, 1);
    hyper.emplace_back("lr", kLr);
    hyper.emplace_back("weight_decay", kWd);
    GroupOptions group;
    group.hyper = std::move(hyper);
    optimizer.add_group(
        {{"p", shape, data.data(), grad.data(), DType::f64, DType::f64, Role::other}}, group);
    p = read(data);
    m.resize(p.size());
    v.resize(p.size());
  }
  static Vector read(const Buffer& b) {
    Vector out;
    for (int64_t i = 0; i < b.size(); ++i) out.push_back(b.at(i));
    return out;
  }
  // f(t, g) changes p, m and v as the formula says; compared after every step.
  template <class F>
  void expect(F f, int steps = 5) {
    for (int t = 1; t <= steps; ++t) {
      grad.fill_normal(static_cast<uint64_t>(t) + 7, 0.3);
      f(t, read(grad));
      optimizer.step();
      for (size_t i = 0; i < p.size(); ++i) {
        ASSERT_NEAR(data.at(static_cast<int64_t>(i)), p[i], 1e-12 * std::abs(p[i]) + 1e-15)
            << "step " << t << " element " << i;
      }
    }
  }

  Buffer data, grad;
  Optimizer optimizer;
  Vector p, m, v;
};

TEST(NormFormula, Lars) {
  Tensors x("lars", {{"momentum", 0.8}, {"trust", 0.02}}, {5, 7});
  x.expect([&](int, const Vector& g) {
    const double pn = std::sqrt(square_sum(x.p)), gn = std::sqrt(square_sum(g));
    const double local = 0.02 * pn / (gn + kWd * pn + 1e-8);
    for (size_t i = 0; i < g.size(); ++i) {
      x.m[i] = 0.8 * x.m[i] + local * (g[i] + kWd * x.p[i]);
      x.p[i] -= kLr * x.m[i];
    }
  });
}

TEST(NormFormula, LarsRatioIsOneWhereANormIsZero) {
  Tensors x("lars", {}, {9});
  for (int64_t i = 0; i < 9; ++i) x.data.set(i, 0);
  x.p.assign(9, 0);
  x.expect(
      [&](int, const Vector& g) {
        for (size_t i = 0; i < g.size(); ++i) x.p[i] -= kLr * g[i];
      },
      1);
}

TEST(NormFormula, StableAdamW) {
  // A large first gradient and small later ones: the clipping must act in some steps only.
  Tensors x("stable_adamw", {{"beta2", 0.9}}, {33});
  x.expect([&](int t, const Vector& g) {
    const double bc1 = 1 - std::pow(0.9, t), bc2 = 1 - std::pow(0.9, t);
    double sum = 0;
    for (size_t i = 0; i < g.size(); ++i) {
      x.v[i] = 0.9 * x.v[i] + 0.1 * g[i] * g[i];
      sum += g[i] * g[i] / std::max(x.v[i] / bc2, 1e-16);
    }
    const double rate = kLr / std::max(1.0, std::sqrt(sum / static_cast<double>(g.size())));
    for (size_t i = 0; i < g.size(); ++i) {
      x.m[i] += 0.1 * (g[i] - x.m[i]);
      x.p[i] -= rate * (kWd * x.p[i] + x.m[i] / bc1 / (std::sqrt(x.v[i] / bc2) + 1e-8));
    }
  });
}

struct LambCase {
  double clip, unbiased, decoupled, averaging;
};

TEST(NormFormula, Lamb) {
  for (const LambCase& c : {LambCase{0, 1, 1, 1}, {0.5, 1, 1, 1}, {0, 0, 1, 0}, {0.5, 1, 0, 1}}) {
    SCOPED_TRACE(fmt::format("clip {} unbiased {} decoupled {} averaging {}", c.clip, c.unbiased,
                             c.decoupled, c.averaging));
    Tensors x("lamb",
              {{"max_grad_norm", c.clip},
               {"bias_correction", c.unbiased},
               {"adam_w_mode", c.decoupled},
               {"grad_averaging", c.averaging}},
              {6, 11});
    x.expect([&](int t, const Vector& gradient) {
      const double norm = std::sqrt(square_sum(gradient));
      const double clip = c.clip > 0 && norm > c.clip ? norm / c.clip : 1;
      const double bc1 = c.unbiased != 0 ? 1 - std::pow(0.9, t) : 1;
      const double bc2 = c.unbiased != 0 ? 1 - std::pow(0.999, t) : 1;
      Vector u(gradient.size());
      for (size_t i = 0; i < u.size(); ++i) {
        const double g = gradient[i] / clip + (c.decoupled != 0 ? 0 : kWd * x.p[i]);
        x.m[i] = 0.9 * x.m[i] + (c.averaging != 0 ? 0.1 : 1) * g;
        x.v[i] = 0.999 * x.v[i] + 0.001 * g * g;
        u[i] =
            x.m[i] / bc1 / (std::sqrt(x.v[i] / bc2) + 1e-6) + (c.decoupled != 0 ? kWd * x.p[i] : 0);
      }
      const double ratio = std::sqrt(square_sum(x.p) / square_sum(u));
      for (size_t i = 0; i < u.size(); ++i) x.p[i] -= kLr * ratio * u[i];
    });
  }
}

TEST(NormFormula, LambTrustsNoRatioWithoutDecay) {
  Tensors x("lamb", {{"max_grad_norm", 0}}, {4, 3});
  x.optimizer.set(0, "weight_decay", 0);
  x.expect([&](int t, const Vector& g) {
    for (size_t i = 0; i < g.size(); ++i) {
      x.m[i] = 0.9 * x.m[i] + 0.1 * g[i];
      x.v[i] = 0.999 * x.v[i] + 0.001 * g[i] * g[i];
      x.p[i] -= kLr * (x.m[i] / (1 - std::pow(0.9, t))) /
                (std::sqrt(x.v[i] / (1 - std::pow(0.999, t))) + 1e-6);
    }
  });
}

// delta decides: at 100 every channel is projected, at 0 nothing is, in between sometimes the
// whole.
TEST(NormFormula, AdamPProjectsAllChannelsTheWholeOrNothing) {
  constexpr size_t kRows = 4, kColumns = 9;
  int by_row = 0, whole = 0, neither = 0;
  for (double delta : {100.0, 1.0, 0.0}) {
    SCOPED_TRACE(delta);
    Tensors x("adamp", {{"delta", delta}, {"wd_ratio", 0.25}}, {kRows, 3, 3});
    const auto part = [](const Vector& v, size_t row, size_t rows) {
      const auto from = v.begin() + static_cast<long>(row * kColumns);
      return Vector(from, from + static_cast<long>(rows * kColumns));
    };
    const auto dot = [](const Vector& a, const Vector& b) {
      double sum = 0;
      for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
      return sum;
    };
    const auto near_orthogonal = [&](const Vector& p, const Vector& g) {
      const double lengths = std::sqrt(square_sum(p) * square_sum(g));
      return std::abs(dot(p, g)) / lengths < delta / std::sqrt(static_cast<double>(p.size()));
    };
    x.expect(
        [&](int t, const Vector& g) {
          const double bc1 = 1 - std::pow(0.9, t), bc2 = 1 - std::pow(0.999, t);
          bool channels = true;
          for (size_t r = 0; r < kRows; ++r) {
            channels = channels && near_orthogonal(part(x.p, r, 1), part(g, r, 1));
          }
          const bool layer = !channels && near_orthogonal(x.p, g);
          ++(channels ? by_row : layer ? whole : neither);
          const size_t rows = channels ? 1 : kRows;  // projected together
          const Vector before = x.p;
          for (size_t r = 0; r < kRows; r += rows) {
            const Vector p = part(before, r, rows);
            Vector u(p.size());
            for (size_t c = 0; c < p.size(); ++c) {
              const size_t i = r * kColumns + c;
              x.m[i] = 0.9 * x.m[i] + 0.1 * g[i];
              x.v[i] = 0.999 * x.v[i] + 0.001 * g[i] * g[i];
              u[c] = x.m[i] / (std::sqrt(x.v[i]) / std::sqrt(bc2) + 1e-8);
            }
            const double length = std::sqrt(square_sum(p)) + 1e-8, along = dot(p, u) / length;
            const double ratio = channels || layer ? 0.25 : 1;
            for (size_t c = 0; c < p.size(); ++c) {
              if (channels || layer) u[c] -= p[c] / length * along;
              x.p[r * kColumns + c] = p[c] * (1 - kLr * kWd * ratio) - kLr / bc1 * u[c];
            }
          }
        },
        10);
  }
  EXPECT_GE(by_row, 10);
  EXPECT_GE(neither, 10);
  EXPECT_GT(whole, 0);
}

TEST(NormFormula, AdafactorOfSeveralMatricesInOneTensor) {
  constexpr size_t kBatches = 3, kRows = 4, kColumns = 5;
  Tensors x("adafactor", {{"relative_step", 0}, {"beta1", 0.7}}, {kBatches, kRows, kColumns});
  Vector row(kBatches * kRows), column(kBatches * kColumns);
  x.expect([&](int t, const Vector& g) {
    const double n = kBatches * kRows * kColumns, w = std::pow(t, -0.8);
    const double a = kLr * std::max(1e-3, std::sqrt(square_sum(x.p) / n));
    Vector u(g.size());
    for (size_t b = 0; b < kBatches; ++b) {
      const auto at = [&](size_t r, size_t c) { return (b * kRows + r) * kColumns + c; };
      double mean = 0;
      for (size_t r = 0; r < kRows; ++r) {
        double sum = 0;
        for (size_t c = 0; c < kColumns; ++c) sum += g[at(r, c)] * g[at(r, c)] + 1e-30;
        double& state = row[b * kRows + r];
        state = (1 - w) * state + w * sum / kColumns;
        mean += state / kRows;
      }
      for (size_t c = 0; c < kColumns; ++c) {
        double sum = 0;
        for (size_t r = 0; r < kRows; ++r) sum += g[at(r, c)] * g[at(r, c)] + 1e-30;
        double& state = column[b * kColumns + c];
        state = (1 - w) * state + w * sum / kRows;
        for (size_t r = 0; r < kRows; ++r) {
          u[at(r, c)] = g[at(r, c)] / std::sqrt(row[b * kRows + r] / mean) / std::sqrt(state);
        }
      }
    }
    const double scale = a / std::max(1.0, std::sqrt(square_sum(u) / n));
    for (size_t i = 0; i < g.size(); ++i) {
      x.m[i] = 0.7 * x.m[i] + 0.3 * scale * u[i];
      x.p[i] = x.p[i] - kWd * a * x.p[i] - x.m[i];
    }
  });
  ASSERT_EQ(x.optimizer.states(0).size(), 3u);
  EXPECT_EQ(x.optimizer.states(0)[0].size, int64_t{kBatches * kRows});
  EXPECT_EQ(x.optimizer.states(0)[1].size, int64_t{kBatches * kColumns});
}

TEST(NormFormula, AdafactorRefusesARateBesideItsOwn) {
  expect_error(ErrorCode::invalid_argument, {"adafactor", "lr with relative_step"}, [] {
    Optimizer o("adafactor");
    o.add_group({}, {{{"lr", 0.1}}, {}});
  });
  expect_error(ErrorCode::invalid_argument, {"warmup_init without relative_step"}, [] {
    Optimizer o("adafactor");
    o.add_group({}, {{{"relative_step", 0}, {"warmup_init", 1}}, {}});
  });
}

// Groups may run different passes; each zeroes its gradients in its own last one.
TEST(NormFormula, GradientsAreZeroedWhicheverPassIsTheLast) {
  for (Mode mode : kModes) {
    Plan plan{plain("adamp")};
    plan.options.mode = mode;
    plan.options.zero_grad = true;
    plan.sizes = {{255, 256}, {257, 1003}, {256}, {1003}};
    Plan kept = plan;
    kept.options = one_thread();
    World w(plan), twin(kept);
    for (World* world : {&w, &twin}) {
      world->optimizer.set(1, "nesterov", 1);
      world->optimizer.set(2, "delta", 100);
      world->optimizer.set(3, "delta", 100);
      world->optimizer.set(3, "nesterov", 1);
      world->fill_grads(1);
      world->optimizer.step();
    }
    for (const Buffer& grad : w.grads) {
      for (int64_t i = 0; i < grad.size(); ++i) ASSERT_EQ(grad.at(i), 0) << to_string(mode);
    }
    EXPECT_EQ(difference(w.snapshot(), twin.snapshot()), "");
  }
}

// The order of additions is the tensor's, not the threads'.
TEST(NormFormula, ManyUnitsGiveTheSameBitsForAnyNumberOfThreads) {
  for (const char* rule : {"adamp", "adafactor", "lamb"}) {
    SCOPED_TRACE(rule);
    Snapshot first;
    for (int threads : {1, 2, 5}) {
      Plan plan{plain(rule)};
      plan.options.threads = threads;
      plan.sizes = {{200000, 70001}, {3}};
      World w(plan);
      for (uint64_t k = 0; k < 2; ++k) {
        w.fill_grads(k);
        w.optimizer.step();
      }
      if (threads == 1) first = w.snapshot();
      ASSERT_EQ(difference(first, w.snapshot()), "") << threads;
    }
  }
}

}  // namespace
}  // namespace gallop::test
