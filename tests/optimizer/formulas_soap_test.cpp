// SPDX-License-Identifier: MIT
// SOAP against its formula written out by hand, in the bases that it keeps.
#include <algorithm>
#include <cmath>

#include "optimizer/fixture.h"

namespace gallop::test {
namespace {

using Vector = std::vector<double>;
constexpr double kLr = 0.03, kWd = 0.1, kBeta1 = 0.9, kBeta2 = 0.8, kEps = 1e-3;

Vector times(const Vector& a, const Vector& b, size_t m, size_t k, size_t n) {
  Vector out(m * n);
  for (size_t i = 0; i < m; ++i) {
    for (size_t l = 0; l < k; ++l) {
      for (size_t j = 0; j < n; ++j) out[i * n + j] += a[i * k + l] * b[l * n + j];
    }
  }
  return out;
}
Vector transposed(const Vector& a, size_t rows, size_t columns) {
  Vector out(a.size());
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < columns; ++j) out[j * rows + i] = a[i * columns + j];
  }
  return out;
}
Vector identity(size_t n) {
  Vector out(n * n);
  for (size_t i = 0; i < n; ++i) out[i * n + i] = 1;
  return out;
}
void expect_near(const Vector& got, const Vector& want, double bound, const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], bound) << what << " " << i;
}

// One fp64 tensor in SOAP.
struct Soap {
  Soap(const std::vector<int64_t>& shape, size_t r, size_t c, Hyper more = {})
      : rows(r), columns(c), optimizer("soap", one_thread()) {
    const auto n = static_cast<int64_t>(rows * columns);
    data = Buffer(DType::f64, n);
    grad = Buffer(DType::f64, n);
    data.fill_normal(1, 1);
    GroupOptions group;
    group.hyper = {
        {"lr", kLr}, {"weight_decay", kWd}, {"beta1", kBeta1}, {"beta2", kBeta2}, {"eps", kEps}};
    group.hyper.insert(group.hyper.end(), more.begin(), more.end());
    optimizer.add_group(
        {{"p", shape, data.data(), grad.data(), DType::f64, DType::f64, role_of(shape)}}, group);
  }
  void step(uint64_t seed) {
    grad.fill_normal(seed, 0.3);
    optimizer.step();
  }
  static Vector read(const Buffer& b) {
    Vector out;
    for (int64_t i = 0; i < b.size(); ++i) out.push_back(b.at(i));
    return out;
  }
  // A state, or an identity where a side has no basis.
  Vector state(const std::string& name, size_t side = 0) const {
    for (const StateView& v : optimizer.states(0)) {
      const auto* from = static_cast<const double*>(v.data);
      if (v.name == name) return {from, from + v.size};
    }
    return identity(side);
  }
  Vector left() const { return state("Q_left", rows); }
  Vector right() const { return state("Q_right", columns); }
  Vector turn(const Vector& x) const {
    return times(times(left(), x, rows, rows, columns), transposed(right(), columns, columns), rows,
                 columns, columns);
  }
  Vector turn_back(const Vector& x) const {
    return times(times(transposed(left(), rows, rows), x, rows, rows, columns), right(), rows,
                 columns, columns);
  }

  size_t rows, columns;
  Buffer data, grad;
  Optimizer optimizer;
};

void expect_orthonormal(const Vector& basis, size_t n) {
  expect_near(times(basis, transposed(basis, n, n), n, n, n), identity(n), 1e-12, "Q Q^T");
}

TEST(Soap, FirstStepMakesTheBasesAndMovesNothing) {
  Soap x({5, 7}, 5, 7);
  const Vector before = Soap::read(x.data);
  x.step(3);
  EXPECT_EQ(Soap::read(x.data), before);
  EXPECT_EQ(x.state("exp_avg"), Vector(35));
  const Vector g = Soap::read(x.grad);
  Vector gram = times(g, transposed(g, 5, 7), 5, 7, 5);
  for (double& v : gram) v *= 1 - kBeta2;
  expect_near(x.state("GG_left"), gram, 1e-14, "GG_left");
  expect_orthonormal(x.left(), 5);
  expect_orthonormal(x.right(), 7);
  // In the basis, the gram is diagonal, the largest first.
  const Vector d = times(times(x.left(), gram, 5, 5, 5), transposed(x.left(), 5, 5), 5, 5, 5);
  for (size_t i = 0; i < 5; ++i) {
    for (size_t j = 0; j < 5; ++j) EXPECT_NEAR(d[i * 5 + j], i == j ? d[i * 6] : 0, 1e-13);
    EXPECT_LE(d[i * 6], i == 0 ? 1e9 : d[(i - 1) * 6]);
  }
}

TEST(Soap, LaterStepsAreAdamInTheBases) {
  struct Case {
    std::vector<int64_t> shape;
    size_t rows, columns;
    Hyper hyper;
  };
  for (const Case& c :
       {Case{{5, 7}, 5, 7, {}}, Case{{9, 4}, 9, 4, {{"normalize_grads", 1}}},
        Case{{3, 2, 4}, 3, 8, {{"correct_bias", 0}, {"shampoo_beta", 0.6}}},
        Case{{6, 11}, 6, 11, {{"max_precond_dim", 8}}}, Case{{130, 140}, 130, 140, {}}}) {
    SCOPED_TRACE(testing::PrintToString(c.shape));
    Soap x(c.shape, c.rows, c.columns, c.hyper);
    const bool corrected = x.optimizer.get(0, "correct_bias") != 0,
               normalized = x.optimizer.get(0, "normalize_grads") != 0;
    Vector p = Soap::read(x.data), m(p.size()), v(p.size());
    x.step(1);
    for (int t = 1; t <= 3; ++t) {
      const Vector left = x.left(), right = x.right();
      x.step(static_cast<uint64_t>(t) + 1);
      const Vector h = x.turn(Soap::read(x.grad));  // the bases are not changed yet
      ASSERT_EQ(left, x.left());
      Vector n(p.size());
      double mean = 0;
      for (size_t i = 0; i < p.size(); ++i) {
        m[i] = kBeta1 * m[i] + (1 - kBeta1) * h[i];
        v[i] = kBeta2 * v[i] + (1 - kBeta2) * h[i] * h[i];
        n[i] = m[i] / (std::sqrt(v[i]) + kEps);
        mean += n[i] * n[i] / static_cast<double>(p.size());
      }
      n = x.turn_back(n);
      const double bias =
          corrected ? std::sqrt(1 - std::pow(kBeta2, t)) / (1 - std::pow(kBeta1, t)) : 1;
      for (size_t i = 0; i < p.size(); ++i) {
        p[i] -= kLr * bias * n[i] / (normalized ? std::sqrt(mean) : 1);
        p[i] -= kLr * kWd * p[i];
      }
      expect_near(Soap::read(x.data), p, 1e-11, "p");
      expect_near(x.state("exp_avg"), m, 1e-12, "m");
      expect_near(x.state("exp_avg_sq"), v, 1e-12, "v");
    }
  }
}

TEST(Soap, NewBasesTurnTheMomentAndReorderTheSquares) {
  Soap x({5, 7}, 5, 7, {{"precondition_frequency", 3}}), twin({5, 7}, 5, 7);
  for (uint64_t k = 1; k <= 3; ++k) {
    x.step(k);
    twin.step(k);
  }
  EXPECT_EQ(x.left(), twin.left());
  x.step(4);
  twin.step(4);
  EXPECT_EQ(Soap::read(x.data), Soap::read(twin.data));  // they take effect in the next step
  EXPECT_EQ(x.state("GG_left"), twin.state("GG_left"));
  EXPECT_NE(x.left(), twin.left());
  expect_orthonormal(x.left(), 5);
  expect_orthonormal(x.right(), 7);
  expect_near(x.turn_back(x.state("exp_avg")), twin.turn_back(twin.state("exp_avg")), 1e-12, "m");
  Vector ours = x.state("exp_avg_sq"), theirs = twin.state("exp_avg_sq");
  std::sort(ours.begin(), ours.end());
  std::sort(theirs.begin(), theirs.end());
  EXPECT_EQ(ours, theirs);
  // The first of the new rows is the best of the old ones after one product with the gram.
  const Vector old = twin.left(), moved = times(old, x.state("GG_left"), 5, 5, 5);
  double most = 0, norm = 0, dot = 0;
  size_t best = 0;
  for (size_t r = 0; r < 5; ++r) {
    double value = 0;
    for (size_t i = 0; i < 5; ++i) value += old[r * 5 + i] * moved[r * 5 + i];
    if (value > most) most = value, best = r;
  }
  for (size_t i = 0; i < 5; ++i) {
    norm += moved[best * 5 + i] * moved[best * 5 + i];
    dot += moved[best * 5 + i] * x.left()[i];
  }
  EXPECT_NEAR(std::abs(dot), std::sqrt(norm), 1e-12);
}

TEST(Soap, VectorsAreAdamWhoseFirstStepIsLeftOut) {
  for (bool normalized : {false, true}) {
    Soap x({6}, 1, 6, {{"normalize_grads", normalized ? 1 : 0}});
    ASSERT_EQ(x.optimizer.states(0).size(), 2u);
    Vector p = Soap::read(x.data), m(6), v(6);
    x.step(1);
    EXPECT_EQ(Soap::read(x.data), p);
    for (int t = 1; t <= 4; ++t) {
      x.step(static_cast<uint64_t>(t) + 1);
      const Vector g = Soap::read(x.grad);
      const double bias = std::sqrt(1 - std::pow(kBeta2, t)) / (1 - std::pow(kBeta1, t));
      double mean = 0;
      for (size_t i = 0; i < 6; ++i) {
        m[i] = kBeta1 * m[i] + (1 - kBeta1) * g[i];
        v[i] = kBeta2 * v[i] + (1 - kBeta2) * g[i] * g[i];
        mean += std::pow(m[i] / (std::sqrt(v[i]) + kEps), 2) / 6;
      }
      for (size_t i = 0; i < 6; ++i) {
        const double n = m[i] / (std::sqrt(v[i]) + kEps) / (normalized ? std::sqrt(mean) : 1);
        p[i] = (p[i] - kLr * bias * n) * (1 - kLr * kWd);
      }
      expect_near(Soap::read(x.data), p, 1e-13, "p");
    }
  }
}

TEST(Soap, SidesBeyondTheLimitHaveNoSquares) {
  Soap x({6, 11}, 6, 11, {{"max_precond_dim", 8}});
  std::vector<std::string> names;
  for (const StateView& v : x.optimizer.states(0)) names.push_back(v.name);
  EXPECT_EQ(names, (std::vector<std::string>{"exp_avg", "exp_avg_sq", "GG_left", "Q_left"}));
  expect_error(ErrorCode::invalid_argument, {"soap max_precond_dim", "8", "100"},
               [&] { x.optimizer.set(0, "max_precond_dim", 100); });
  x.optimizer.set(0, "max_precond_dim", 10);  // nothing hangs on it
  x.step(1);
}

TEST(Soap, ACheckpointGoesOnThroughNewBases) {
  const Folder folder;
  Soap x({5, 7}, 5, 7, {{"precondition_frequency", 2}}),
      y({5, 7}, 5, 7, {{"precondition_frequency", 2}});
  for (uint64_t k = 1; k <= 4; ++k) x.step(k);
  x.optimizer.save(folder / "soap");
  copy_bytes(y.data, x.data);
  y.optimizer.load(folder / "soap");
  for (uint64_t k = 5; k <= 9; ++k) {
    x.step(k);
    y.step(k);
  }
  EXPECT_EQ(Soap::read(x.data), Soap::read(y.data));
  EXPECT_EQ(x.left(), y.left());
}

}  // namespace
}  // namespace gallop::test
