// SPDX-License-Identifier: MIT
#include "cuda/matrices.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "cuda/common.h"
#include "cuda/runtime.h"
#include "gallop/error.h"
#include "optimizer/impl.h"

namespace gallop::cuda {
namespace {

// Enough for the matrices of a batch to fill the device; more would only take memory.
constexpr Index kBatchElements = Index{1} << 26;

Index aligned(Index n) { return (n + 255) / 256 * 256; }
size_t width_of(bool wide) { return wide ? 8 : 2; }
Index shorter_side(const View& v) { return std::min(v.rows, v.columns); }

}  // namespace

// The operations of a stage on one batch. Matrices lie in rows, which cuBLASLt takes for the
// columns of their transposes.
class BatchOnDevice final : public Linear {
 public:
  BatchOnDevice(MatrixPlan& plan, const MatrixPlan::Batch& batch, const NormTensor* norms,
                void* stream, bool for_real)
      : plan_(plan), batch_(batch), norms_(norms), stream_(stream), real_(for_real) {
    const Index plane = batch.count * batch.apart * static_cast<Index>(width_of(batch.wide));
    std::byte* at = plan.scratch_.data();
    for (int p = 0; p < plan.planes_; ++p, at += plane) planes_.push_back(at);
    spare_ = at;
    at += plane;
    const Index side = shorter_side(batch.view), square = aligned(side * side);
    for (std::byte*& s : squares_) {
      s = at;
      at += batch.count * batch.view.batches * square * static_cast<Index>(width_of(batch.wide));
    }
  }

  int products_into(int plane) const { return into_[index_of(plane)]; }
  // The plane must end where passes look for it: an odd number of products begins in the spare one.
  void expect(std::vector<int> into) { expected_ = std::move(into); }

  void scale_rows(int plane, int value) override {
    const size_t p = index_of(plane);
    const bool aside = p < expected_.size() && expected_[p] % 2 == 1;
    std::byte* out = aside ? spare_ : planes_[p];
    if (real_) {
      check(launch_scale_rows(norms_, plan_.members_.data() + batch_.first_member, batch_.count,
                              value, planes_[p], out, batch_.apart, batch_.wide, stream_),
            "scaling matrices");
    }
    if (aside) std::swap(planes_[p], spare_);
  }
  void gram(Square s, int plane) override {
    const View& v = batch_.view;
    const bool wide = v.rows <= v.columns;
    const Index n = shorter_side(v), k = std::max(v.rows, v.columns);
    multiply({n, n, k, wide, !wide, matrix_stride(), matrix_stride(), square_stride(), count(),
              batch_.wide},
             1, planes_[index_of(plane)], planes_[index_of(plane)], 0, squares_[s], squares_[s]);
  }
  void polynomial(Square s, double b, double c, Square a) override {
    const Index n = shorter_side(batch_.view);
    multiply({n, n, n, false, false, square_stride(), square_stride(), square_stride(), count(),
              batch_.wide},
             c, squares_[a], squares_[a], b, squares_[a], squares_[s]);
  }
  void apply(int plane, double x, Square s) override {
    const View& v = batch_.view;
    const size_t p = index_of(plane);
    if (v.rows <= v.columns) {
      multiply({v.columns, v.rows, v.rows, false, false, matrix_stride(), square_stride(),
                matrix_stride(), count(), batch_.wide},
               1, planes_[p], squares_[s], x, planes_[p], spare_);
    } else {
      multiply({v.columns, v.rows, v.columns, false, false, square_stride(), matrix_stride(),
                matrix_stride(), count(), batch_.wide},
               1, squares_[s], planes_[p], x, planes_[p], spare_);
    }
    std::swap(planes_[p], spare_);
    ++into_[p];
  }
  void add_grams(Sides, int, double) override { refuse(); }
  void eigenbases(Sides, Sides) override { refuse(); }
  void refine_bases(Sides, Sides, int) override { refuse(); }
  void rotate(int, Sides, bool) override { refuse(); }

  const std::vector<int>& into() const { return into_; }

 private:
  [[noreturn]] static void refuse() {
    throw Error(ErrorCode::unsupported, "bases of matrices are for the CPU only so far");
  }
  size_t index_of(int plane) const {
    size_t index = 0;
    for (int j = 0; j < plane; ++j)
      index += plan_.rule_->info.states[static_cast<size_t>(j)].scratch;
    return index;
  }
  int count() const { return static_cast<int>(batch_.count * batch_.view.batches); }
  // Tensors of several matrices have no room between them.
  Index matrix_stride() const {
    const View& v = batch_.view;
    return v.batches == 1 ? batch_.apart : v.rows * v.columns;
  }
  Index square_stride() const {
    const Index n = shorter_side(batch_.view);
    return aligned(n * n);
  }
  void multiply(const Product& p, double alpha, const void* a, const void* b, double beta,
                const void* c, void* d) {
    real_ ? plan_.matmul_->run(p, alpha, a, b, beta, c, d, stream_) : plan_.matmul_->prepare(p);
  }

  MatrixPlan& plan_;
  const MatrixPlan::Batch& batch_;
  const NormTensor* norms_;
  void* stream_;
  bool real_;
  std::vector<std::byte*> planes_;
  std::byte *spare_, *squares_[2];
  std::vector<int> into_ = std::vector<int>(8), expected_;
};

void MatrixPlan::assign(int device, const Rule& rule, Mode mode, const std::vector<Slot>& slots) {
  rule_ = &rule;
  planes_ = static_cast<int>(std::count_if(rule.info.states.begin(), rule.info.states.end(),
                                           [](const StateInfo& s) { return s.scratch; }));
  of_slot_.assign(slots.size(), {});
  batches_.clear();
  std::map<std::tuple<size_t, bool, long long, long long, long long>, std::vector<size_t>> alike;
  for (size_t i = 0; i < slots.size(); ++i) {
    const cpu::Tensor& t = slots[i].tensor;
    if (!t.view.matrix || t.n == 0) continue;
    alike[{slots[i].group, t.param_storage == Storage::f64, t.view.batches, t.view.rows,
           t.view.columns}]
        .push_back(i);
  }
  std::vector<unsigned> members;
  Index bytes = 0;
  for (const auto& [key, tensors] : alike) {
    const cpu::Tensor& t = slots[tensors.front()].tensor;
    const bool wide = std::get<1>(key);
    const Index apart = t.view.batches == 1 ? aligned(t.n) : t.n;
    const auto most =
        mode == Mode::multi ? static_cast<size_t>(std::max<Index>(1, kBatchElements / t.n)) : 1;
    for (size_t first = 0; first < tensors.size(); first += most) {
      const size_t count = std::min(most, tensors.size() - first);
      batches_.push_back({t.view, wide, apart, static_cast<unsigned>(members.size()),
                          static_cast<unsigned>(count), std::get<0>(key)});
      for (size_t i = 0; i < count; ++i) {
        of_slot_[tensors[first + i]] = {batches(), static_cast<unsigned>(i)};
        members.push_back(static_cast<unsigned>(tensors[first + i]));
      }
      const Index n = static_cast<Index>(count), side = shorter_side(t.view);
      const Index elements =
          (planes_ + 1) * n * apart + 2 * n * t.view.batches * aligned(side * side);
      bytes = std::max(bytes, elements * static_cast<Index>(width_of(wide)));
    }
  }
  members_.assign(device, members);
  scratch_.resize(device, static_cast<size_t>(bytes));
  if (!batches_.empty() && !matmul_) matmul_.emplace(device);
}

void* MatrixPlan::scratch(size_t slot, size_t state) const {
  const Place& place = of_slot_[slot];
  if (place.batch == 0 || !rule_->info.states[state].scratch) return nullptr;
  const Batch& b = batches_[place.batch - 1];
  Index plane = 0;
  for (size_t j = 0; j < state; ++j) plane += rule_->info.states[j].scratch;
  return scratch_.data() +
         (plane * b.count + place.at) * b.apart * static_cast<Index>(width_of(b.wide));
}

void MatrixPlan::stage(int pass, unsigned number, const double* hyper, const NormTensor* norms,
                       void* stream) {
  const Batch& b = batches_[number - 1];
  const Clock clock{1, false, 1};  // stages on GPUs do not depend on it
  BatchOnDevice trial(*this, b, norms, stream, false);
  rule_->stage(pass, trial, hyper, clock);
  BatchOnDevice on(*this, b, norms, stream, true);
  on.expect(trial.into());
  rule_->stage(pass, on, hyper, clock);
}

}  // namespace gallop::cuda
