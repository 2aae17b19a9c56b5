// SPDX-License-Identifier: MIT
#include "bench/products.h"

#include <algorithm>

#include "bench/ceiling.h"
#include "blas/blas.h"
#include "core/matrices.h"
#include "cpu/thread_pool.h"
#include "optimizer/impl.h"

namespace gallop::bench {
namespace {

// Counts instead of multiplying.
class Counter final : public Linear {
 public:
  explicit Counter(const View& v) : view_(v) {}
  double flops() const { return static_cast<double>(view_.batches) * flops_; }

  void scale_rows(int, int) override {}
  void gram(Square, int) override { add(shorter(), shorter(), longer()); }
  void polynomial(Square, double, double, Square) override { add(shorter(), shorter(), shorter()); }
  void apply(int, double, Square) override { add(rows(), columns(), shorter()); }
  void add_grams(Sides, int, double) override {
    if (view_.left) add(rows(), rows(), columns());
    if (view_.right) add(columns(), columns(), rows());
  }
  void rotate(int, Sides, bool) override {
    if (view_.left) add(rows(), columns(), rows());
    if (view_.right) add(rows(), columns(), columns());
  }
  void change_bases(Sides, Sides, int, int) override {}

 private:
  double rows() const { return static_cast<double>(view_.rows); }
  double columns() const { return static_cast<double>(view_.columns); }
  double shorter() const { return std::min(rows(), columns()); }
  double longer() const { return std::max(rows(), columns()); }
  void add(double m, double n, double k) { flops_ += 2 * m * n * k; }

  View view_;
  double flops_ = 0;
};

}  // namespace

double product_flops(const StepContender& c, const ShapeList& list) {
  const Rule& rule = find_rule(c.optimizer);
  if (rule.stages == 0) return 0;
  const std::vector<double> hyper = knob_values(c);
  double flops = 0;
  for (const Shape& s : list.shapes) {
    Param p;
    p.shape = s.dims;
    p.role = s.role;
    const View view = view_of(rule, p, s.elements(), hyper.data());
    if (!view.matrix) continue;
    Counter counter(view);
    for (int pass = 0; rule.stages >> pass != 0; ++pass) {
      if ((rule.stages >> pass & 1) != 0) rule.stage(pass, counter, hyper.data());
    }
    flops += counter.flops();
  }
  return flops;
}

CpuProducts::CpuProducts(bool wide, int threads)
    : wide_(wide),
      threads_(threads),
      memory_(touched_floats(3 * kSide * kSide * threads * (wide ? 2 : 1), threads, 0.0f)) {}

void CpuProducts::run(int iterations) {
  const blas::OneThreadEach serial;
  const auto multiply = [&](auto* all, int thread) {
    auto* a = all + 3 * kSide * kSide * thread;
    using T = std::remove_reference_t<decltype(*a)>;
    for (int i = 0; i < iterations; ++i) {
      blas::gemm(kSide, kSide, kSide, T(1), {a, kSide}, {a + kSide * kSide, kSide}, T(0),
                 a + 2 * kSide * kSide, kSide);
    }
  };
  auto work = [&](int thread, int) {
    wide_ ? multiply(reinterpret_cast<double*>(memory_.get()), thread)
          : multiply(memory_.get(), thread);
  };
  cpu::ThreadPool::instance().run(threads_, work);
}

void add_products(lab::Row& row, double flops, double seconds, double ceiling) {
  if (flops == 0) return;
  row.set("gflop_per_s", flops / seconds * 1e-9).set("products_gflop_per_s", ceiling * 1e-9);
  row.set("percent_of_products", 100 * flops / seconds / ceiling);
}

}  // namespace gallop::bench
