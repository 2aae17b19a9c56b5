// SPDX-License-Identifier: MIT
// Muon against its formula written out by hand, and against AdamW where it is that.
#include <cmath>

#include "optimizer/fixture.h"

namespace gallop::test {
namespace {

using Vector = std::vector<double>;
constexpr double kLr = 0.03, kWd = 0.1, kMomentum = 0.9;

// u orthogonalised by five steps of Newton-Schulz, transposed first if it is tall.
Vector orthogonal(Vector u, size_t rows, size_t columns) {
  const bool tall = rows > columns;
  const size_t n = tall ? columns : rows, k = tall ? rows : columns;
  Vector x(u.size());
  double norm = 0;
  for (double v : u) norm += v * v;
  norm = std::max(std::sqrt(norm), 1e-7);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < k; ++j)
      x[i * k + j] = u[tall ? j * columns + i : i * columns + j] / norm;
  }
  for (int step = 0; step < 5; ++step) {
    Vector a(n * n), b(n * n), next(x.size());
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) {
        for (size_t l = 0; l < k; ++l) a[i * n + j] += x[i * k + l] * x[j * k + l];
      }
    }
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) {
        b[i * n + j] = -4.775 * a[i * n + j];
        for (size_t l = 0; l < n; ++l) b[i * n + j] += 2.0315 * a[i * n + l] * a[l * n + j];
      }
    }
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < k; ++j) {
        next[i * k + j] = 3.4445 * x[i * k + j];
        for (size_t l = 0; l < n; ++l) next[i * k + j] += b[i * n + l] * x[l * k + j];
      }
    }
    x = next;
  }
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < k; ++j) u[tall ? j * columns + i : i * columns + j] = x[i * k + j];
  }
  return u;
}

struct Case {
  std::vector<int64_t> shape;
  size_t batches, rows, columns;
};
const Case kCases[] = {{{5, 9}, 1, 5, 9},        {{9, 5}, 1, 9, 5},    {{6, 6}, 1, 6, 6},
                       {{1, 7}, 1, 1, 7},        {{3, 4, 5}, 3, 4, 5}, {{4, 3, 2, 2}, 1, 4, 12},
                       {{140, 150}, 1, 140, 150}};

void expect_formula(const Case& c, bool nesterov, bool match_rms) {
  const auto n = static_cast<int64_t>(c.batches * c.rows * c.columns);
  Buffer data(DType::f64, n), grad(DType::f64, n);
  data.fill_normal(1, 1);
  Optimizer optimizer("muon", one_thread());
  GroupOptions group;
  group.hyper = {{"lr", kLr},
                 {"weight_decay", kWd},
                 {"momentum", kMomentum},
                 {"nesterov", nesterov ? 1 : 0},
                 {"adjust_lr_fn", match_rms ? 1 : 0}};
  optimizer.add_group(
      {{"p", c.shape, data.data(), grad.data(), DType::f64, DType::f64, Role::hidden}}, group);
  const auto rows = static_cast<double>(c.rows), columns = static_cast<double>(c.columns);
  const double adjust = match_rms ? 0.2 * std::sqrt(std::max(rows, columns))
                                  : std::sqrt(std::max(1., rows / columns));
  const size_t size = c.rows * c.columns;
  Vector p, buffer(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) p.push_back(data.at(i));
  for (uint64_t t = 0; t < 3; ++t) {
    grad.fill_normal(t + 7, 0.3);
    optimizer.step();
    for (size_t b = 0; b < c.batches; ++b) {
      Vector u(size);
      for (size_t i = 0; i < size; ++i) {
        const double g = grad.at(static_cast<int64_t>(b * size + i));
        double& m = buffer[b * size + i];
        m = kMomentum * m + (1 - kMomentum) * g;
        u[i] = nesterov ? kMomentum * m + (1 - kMomentum) * g : m;
      }
      u = orthogonal(u, c.rows, c.columns);
      for (size_t i = 0; i < size; ++i) {
        double& to = p[b * size + i];
        to = to * (1 - kLr * kWd) - kLr * adjust * u[i];
      }
    }
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_NEAR(data.at(i), p[static_cast<size_t>(i)], 1e-11) << "step " << t << " element " << i;
    }
  }
}

TEST(Muon, FollowsItsFormulaInEveryShape) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(testing::PrintToString(c.shape));
    expect_formula(c, true, false);
    expect_formula(c, false, true);
  }
}

// The point of it: all singular values come out near one.
TEST(Muon, UpdatesAreNearlyOrthogonal) {
  constexpr int64_t kRows = 24, kColumns = 60;
  Buffer data(DType::f32, kRows * kColumns), grad(DType::f32, kRows * kColumns);
  for (int64_t i = 0; i < data.size(); ++i) data.set(i, 0);
  grad.fill_normal(3, 1e-6);
  Optimizer optimizer("muon");
  optimizer.add_group({{"p", {kRows, kColumns}, data.data(), grad.data()}}, {{{"lr", 1}}, {}});
  optimizer.step();
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kRows; ++j) {
      double dot = 0;
      for (int64_t c = 0; c < kColumns; ++c)
        dot += data.at(i * kColumns + c) * data.at(j * kColumns + c);
      EXPECT_NEAR(dot, i == j ? 1 : 0, i == j ? 0.6 : 0.4) << i << " " << j;
    }
  }
}

TEST(Muon, EverythingElseIsAdamWToTheBit) {
  constexpr int64_t kSize = 6 * 50;
  const Schedule schedule = parse_schedule("cosine:warmup=2,total=10");
  for (Role role : {Role::embedding, Role::head, Role::norm, Role::bias}) {
    SCOPED_TRACE(to_string(role));
    Buffer data(DType::f32, kSize), twin(DType::f32, kSize), grad(DType::f32, kSize);
    data.fill_normal(1, 1);
    twin.fill_normal(1, 1);
    Optimizer muon("muon"), adamw("adamw");
    GroupOptions ours, theirs;
    ours.schedule = theirs.schedule = schedule;
    ours.hyper = {
        {"adam_lr", 2e-3}, {"adam_beta2", 0.97}, {"adam_eps", 1e-9}, {"adam_weight_decay", 0.02}};
    theirs.hyper = {{"lr", 2e-3}, {"beta2", 0.97}, {"eps", 1e-9}, {"weight_decay", 0.02}};
    Buffer matrix(DType::f32, 4);
    muon.add_group({{"p", {6, 50}, data.data(), grad.data(), DType::f32, DType::f32, role},
                    {"matrix", {2, 2}, matrix.data()}},
                   ours);
    adamw.add_group({{"p", {6, 50}, twin.data(), grad.data()}}, theirs);
    for (uint64_t t = 0; t < 4; ++t) {
      grad.fill_normal(t + 9, 0.3);
      muon.step();
      adamw.step();
    }
    for (int64_t i = 0; i < kSize; ++i) ASSERT_EQ(data.at(i), twin.at(i)) << i;
    ASSERT_EQ(muon.states(0).size(), 2u);
    EXPECT_EQ(muon.states(0)[0].name, "exp_avg");
  }
}

TEST(Muon, KeepsOneMomentumPerHiddenMatrixAndNoScratch) {
  Buffer data(DType::f32, 12), grad(DType::f32, 12);
  Optimizer o("muon");
  o.add_group({{"p", {3, 4}, data.data(), grad.data()}});
  ASSERT_EQ(o.states(0).size(), 1u);
  EXPECT_EQ(o.states(0)[0].name, "momentum_buffer");
  EXPECT_LT(o.state_bytes(), 200);
}

TEST(Muon, RefusesVectorsThatDoNotSayWhatTheyAre) {
  Buffer data(DType::f32, 4), grad(DType::f32, 4);
  for (Role role : {Role::other, Role::hidden}) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{4}, std::vector<int64_t>{}}) {
      Optimizer o("muon");
      expect_error(
          ErrorCode::invalid_argument, {"parameter 'w'", "muon is for matrices", "role"}, [&] {
            o.add_group({{"w", shape, data.data(), grad.data(), DType::f32, DType::f32, role}});
          });
      EXPECT_EQ(o.size(), 0u);
    }
  }
}

TEST(Muon, SaysWhenNothingIsLeftForIt) {
  Buffer data(DType::f32, 4), grad(DType::f32, 4);
  data.fill_normal(1, 1);
  const Buffer before = data;
  Optimizer o("muon");
  o.add_group({{"w", {4}, data.data(), grad.data(), DType::f32, DType::f32, Role::norm}});
  expect_error(ErrorCode::invalid_argument, {"muon", "none of the 1 parameters", "adamw"},
               [&] { o.step(); });
  EXPECT_EQ(o.steps(0), 0);
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(data.at(i), before.at(i));
  Buffer matrix(DType::f32, 4);
  o.add_group({{"matrix", {2, 2}, matrix.data()}});
  EXPECT_TRUE(o.step());
}

TEST(Muon, AZeroGradientMovesNothingButDecay) {
  Buffer data(DType::f32, 20), grad(DType::f32, 20);
  data.fill_normal(1, 1);
  const Buffer before = data;
  for (int64_t i = 0; i < 20; ++i) grad.set(i, 0);
  Optimizer o("muon");
  o.add_group({{"p", {4, 5}, data.data(), grad.data()}},
              {{{"lr", 0.5}, {"weight_decay", 0.5}}, {}});
  o.step();
  for (int64_t i = 0; i < 20; ++i) EXPECT_FLOAT_EQ(data.at(i), before.at(i) * 0.75);
}

// Matrices of one shape go through products together; more than one batch's worth of them, with
// different numbers of steps behind them.
TEST(Muon, BatchesChangeNoBits) {
  const Plan plan{plain("muon")};
  Snapshot first;
  for (const auto& [mode, threads] :
       {std::pair(Mode::multi, 1), {Mode::multi, 3}, {Mode::single, 2}}) {
    Plan p = plan;
    p.options.mode = mode;
    p.options.threads = threads;
    p.sizes = {std::vector<int64_t>(22, 200000), {1003, 256, 1003, 7}};
    World w(p);
    for (uint64_t k = 0; k < 2; ++k) {
      w.fill_grads(k);
      k == 0 ? w.take_grad(3) : w.give_grad(3);
      w.optimizer.step();
    }
    if (first.parts.empty()) first = w.snapshot();
    ASSERT_EQ(difference(first, w.snapshot()), "") << to_string(mode) << " " << threads;
  }
}

}  // namespace
}  // namespace gallop::test
