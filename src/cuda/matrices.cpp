// SPDX-License-Identifier: MIT
#include "cuda/matrices.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "blas/blas.h"
#include "cpu/isa.h"
#include "cpu/thread_pool.h"
#include "cuda/bases.h"
#include "cuda/common.h"
#include "cuda/runtime.h"
#include "gallop/error.h"
#include "optimizer/impl.h"

namespace gallop::cuda {
namespace {

// Enough for the matrices of a batch to fill the device; more would only take memory.
constexpr Index kBatchElements = Index{1} << 26;
// Of blocks that refine bases: each needs memory of its own.
constexpr unsigned kMostTeams = 8;

Index aligned(Index n) { return (n + 255) / 256 * 256; }
Index width_of(Element e) { return e == Element::f64 ? 8 : e == Element::f32 ? 4 : 2; }
Index shorter_side(const View& v) { return std::min(v.rows, v.columns); }
Index longer_side(const View& v) { return std::max(v.rows, v.columns); }

// Into how many blocks of columns a symmetric product is cut. Small products would not fill the
// device; with four parts, large ones were slower than with two.
Index symmetric_parts(Index n) { return n >= 1024 && n % 256 == 0 ? 2 : 1; }

bool has_bases(const Rule& rule) { return rule.has_bases; }

}  // namespace

// The operations of a stage on one batch. Matrices lie in rows, which cuBLASLt takes for the
// columns of their transposes.
class BatchOnDevice final : public Linear {
 public:
  BatchOnDevice(MatrixPlan& plan, const MatrixPlan::Batch& batch, const NormStep& step,
                void* stream, bool for_real)
      : plan_(plan), batch_(batch), step_(step), stream_(stream), real_(for_real) {
    const Index plane = batch.count * batch.apart * width();
    std::byte* at = plan.scratch_.data();
    for (int p = 0; p < plan.planes_; ++p, at += plane) planes_.push_back(at);
    spare_ = at;
    squares_ = at + plane;
  }

  // The plane must end where passes look for it: an odd number of products begins in the spare one.
  void expect(std::vector<int> into) { expected_ = std::move(into); }
  const std::vector<int>& into() const { return into_; }

  void scale_rows(int plane, int value) override {
    const size_t p = index_of(plane);
    const bool aside = p < expected_.size() && expected_[p] % 2 == 1;
    std::byte* out = aside ? spare_ : planes_[p];
    if (real_) {
      check(launch_scale_rows(step_.norms, members(), batch_.count, value, planes_[p], out,
                              batch_.apart, batch_.element == Element::f64, stream_),
            "scaling matrices");
    }
    if (aside) std::swap(planes_[p], spare_);
  }
  void gram(Square s, int plane) override {
    const View& v = batch_.view;
    const bool of_rows = v.rows <= v.columns;
    const std::byte* x = planes_[index_of(plane)];
    multiply_symmetric(s, longer_side(v), !of_rows, of_rows, 1, {x, matrix_stride()}, 0, {});
  }
  void polynomial(Square s, double b, double c, Square a) override {
    multiply_symmetric(s, shorter_side(batch_.view), false, false, c, {square(a), square_stride()},
                       b, square(a));
  }
  void apply(int plane, double x, Square s) override {
    const View& v = batch_.view;
    const size_t p = index_of(plane);
    const Array planes{planes_[p], matrix_stride()}, squares{square(s), square_stride()};
    const bool left = v.rows <= v.columns;
    multiply({v.rows, v.columns, shorter_side(v)}, 1, left ? squares : planes,
             left ? planes : squares, x, planes_[p], {spare_, matrix_stride()}, count());
    std::swap(planes_[p], spare_);
    ++into_[p];
  }

  void add_grams(Sides g, int plane, double weight) override {
    for (bool left : {true, false}) {
      if (!has(left)) continue;
      const Index n = side(left);
      for_matrices([&](unsigned member, Index matrix) {
        const std::byte* x = plane_matrix(index_of(plane), member, matrix);
        multiply({n, n, side(!left), !left, left, false}, 1, {x, 0}, {x, 0}, 0, {}, {squares_, 0},
                 1);
        if (!real_) return;
        check(launch_add_square(states(), member, matrix, left ? g.left : g.right, left, weight,
                                squares_, stream_),
              "averaging products");
      });
    }
  }
  void rotate(int plane, Sides b, bool back) override {
    const View& v = batch_.view;
    const size_t p = index_of(plane);
    for (bool left : {true, false}) {
      if (!has(left)) continue;
      for_matrices([&](unsigned member, Index matrix) {
        const Array x{plane_matrix(p, member, matrix), 0};
        const Array basis{pair(left ? b.left : b.right, left, member, matrix), 0};
        std::byte* out = spare_ + offset(member, matrix);
        multiply({v.rows, v.columns, side(left), left && back, !left && !back, false}, 1,
                 left ? basis : x, left ? x : basis, 0, {}, {out, 0}, 1);
      });
      std::swap(planes_[p], spare_);
    }
    if (has(true) && has(false)) return;
    std::swap(planes_[p], spare_);
    if (!real_) return;
    check(cudaMemcpyAsync(planes_[p], spare_,
                          static_cast<size_t>(batch_.count * batch_.apart * width()),
                          cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(stream_)),
          "copying matrices");
  }
  void change_bases(Sides b, Sides g, int turned, int sorted) override {
    if (!real_) return;
    plan_.make_bases(batch_, b, g, stream_);
    const unsigned teams = plan_.teams(batch_);
    const auto blocks = std::max(1u, static_cast<unsigned>(plan_.multiprocessors_) / teams);
    check(cudaMemsetAsync(plan_.met_.data(), 0, plan_.met_.size() * sizeof(unsigned),
                          static_cast<cudaStream_t>(stream_)),
          "refining bases");
    check(launch_refine({states(), b, g, turned, sorted, spare_, batch_.apart, squares_, teams,
                         blocks, plan_.met_.data()},
                        stream_),
          "refining bases");
  }

 private:
  // Row-major, as everything here: rows x columns, with `terms` products each.
  struct Form {
    Index rows, columns, terms;
    bool transpose_a = false, transpose_b = false;
    bool aligned = true;
  };
  struct Array {
    const void* data;
    Index stride;  // elements from matrix to matrix
    Index ld = 0;  // from row to row; 0: the rows are dense
  };

  size_t index_of(int plane) const {
    size_t index = 0;
    for (int j = 0; j < plane; ++j)
      index += plan_.rule_->info.states[static_cast<size_t>(j)].scratch;
    return index;
  }
  Index width() const { return width_of(batch_.element); }
  int count() const { return static_cast<int>(batch_.count * batch_.view.batches); }
  Index side(bool left) const { return left ? batch_.view.rows : batch_.view.columns; }
  bool has(bool left) const { return left ? batch_.view.left : batch_.view.right; }
  const unsigned* members() const { return plan_.members_.data() + batch_.first_member; }
  BaseStates states() const {
    return {step_.step.tensors, members(),   plan_.changes_.data() + batch_.first_member,
            batch_.count,       batch_.view, batch_.element == Element::f64};
  }
  // Tensors of several matrices have no room between them.
  Index matrix_stride() const {
    const View& v = batch_.view;
    return v.batches == 1 ? batch_.apart : v.rows * v.columns;
  }
  Index square_stride() const {
    const Index n = shorter_side(batch_.view);
    return aligned(n * n);
  }
  std::byte* square(Square s) const {
    return squares_ + (s == square1 ? 0 : count() * square_stride() * width());
  }
  Index offset(unsigned member, Index matrix) const {
    return (member * batch_.apart + matrix * batch_.view.rows * batch_.view.columns) * width();
  }
  std::byte* plane_matrix(size_t p, unsigned member, Index matrix) const {
    return planes_[p] + offset(member, matrix);
  }
  std::byte* pair(int state, bool left, unsigned member, Index matrix) const {
    const size_t slot = plan_.host_members_[batch_.first_member + member];
    return static_cast<std::byte*>((*plan_.slots_)[slot].tensor.state[state]) +
           matrix * side(left) * side(left) * width();
  }
  template <class F>
  void for_matrices(F f) const {
    for (unsigned member = 0; member < batch_.count; ++member) {
      for (Index matrix = 0; matrix < batch_.view.batches; ++matrix) f(member, matrix);
    }
  }
  // out = alpha op(a) op(b) + beta plus; plus lies as out does.
  void multiply(const Form& f, double alpha, Array a, Array b, double beta, const void* plus,
                Array out, int matrices) {
    const auto ld = [](const Array& of, Index dense) { return of.ld != 0 ? of.ld : dense; };
    const Product p{f.columns,
                    f.rows,
                    f.terms,
                    f.transpose_b,
                    f.transpose_a,
                    ld(b, f.transpose_b ? f.terms : f.columns),
                    ld(a, f.transpose_a ? f.rows : f.terms),
                    ld(out, f.columns),
                    b.stride,
                    a.stride,
                    out.stride,
                    matrices,
                    batch_.element,
                    f.aligned};
    void* to = const_cast<void*>(out.data);
    if (!real_) return plan_.matmul_->prepare(p);
    plan_.matmul_->run(p, alpha, b.data, a.data, beta, beta == 0 ? to : plus, to, stream_);
  }

  // s = alpha op(x) op(x) + beta plus, all symmetric. Of large ones, only blocks of columns from
  // the diagonal down are multiplied, and the rest mirrored.
  void multiply_symmetric(Square s, Index terms, bool transpose_a, bool transpose_b, double alpha,
                          Array x, double beta, const void* plus) {
    const Index n = shorter_side(batch_.view);
    const Index parts = batch_.element == Element::bf16 ? symmetric_parts(n) : 1, side = n / parts;
    const auto at = [&](const void* data, Index elements) {
      return static_cast<const std::byte*>(data) + elements * width();
    };
    const Index ld_a = transpose_a ? n : terms, ld_b = transpose_b ? terms : n;
    for (Index first = 0; first < n; first += side) {
      const Index corner = first * (n + 1);
      multiply({n - first, side, terms, transpose_a, transpose_b}, alpha,
               {at(x.data, transpose_a ? first : first * ld_a), x.stride, ld_a},
               {at(x.data, transpose_b ? first * ld_b : first), x.stride, ld_b}, beta,
               plus == nullptr ? nullptr : at(plus, corner),
               {at(square(s), corner), square_stride(), n}, count());
    }
    if (parts == 1 || !real_) return;
    check(
        launch_mirror(square(s), n, side, square_stride(), static_cast<unsigned>(count()), stream_),
        "mirroring matrices");
  }

  MatrixPlan& plan_;
  const MatrixPlan::Batch& batch_;
  const NormStep& step_;
  void* stream_;
  bool real_;
  std::vector<std::byte*> planes_;
  std::byte *spare_, *squares_;
  std::vector<int> into_ = std::vector<int>(8), expected_;
};

unsigned MatrixPlan::teams(const Batch& b) const {
  const Index matrices = b.count * b.view.batches;
  return static_cast<unsigned>(
      std::min<Index>({matrices, Index{kMostTeams}, Index{multiprocessors_}}));
}

// Planes, one to compute into, and squares or what teams need.
Index MatrixPlan::scratch_elements(const Batch& b) const {
  const Index planes = b.apart * b.count * (planes_ + 1);
  if (!has_bases(*rule_)) {
    const Index side = shorter_side(b.view);
    return planes + 2 * aligned(side * side) * b.view.batches * b.count;
  }
  return planes + teams(b) * refining_work(b.view);
}

void MatrixPlan::assign(int device, const Rule& rule, const void* look_at_bases, Mode mode,
                        int multiprocessors, const std::vector<Slot>& slots) {
  device_ = device;
  multiprocessors_ = multiprocessors;
  rule_ = &rule;
  look_at_bases_ = look_at_bases;
  slots_ = &slots;
  size_t first_plane = rule.info.states.size();
  planes_ = 0;
  for (size_t j = rule.info.states.size(); j-- > 0;) {
    if (!rule.info.states[j].scratch) continue;
    first_plane = j;
    ++planes_;
  }
  of_slot_.assign(slots.size(), {});
  has_bases_.assign(slots.size(), false);
  batches_.clear();
  std::map<std::tuple<size_t, bool, long long, long long, long long>, std::vector<size_t>> alike;
  for (size_t i = 0; i < slots.size(); ++i) {
    const cpu::Tensor& t = slots[i].tensor;
    has_bases_[i] = slots[i].steps > 0;
    if (!t.view.matrix || t.n == 0) continue;
    alike[{slots[i].group, t.param_storage == Storage::f64, t.view.batches, t.view.rows,
           t.view.columns}]
        .push_back(i);
  }
  host_members_.clear();
  Index bytes = 0;
  for (const auto& [key, tensors] : alike) {
    const cpu::Tensor& t = slots[tensors.front()].tensor;
    const Storage storage = t.state_storage[first_plane];
    const Element element = storage == Storage::f64   ? Element::f64
                            : storage == Storage::f32 ? Element::f32
                                                      : Element::bf16;
    const Index apart = t.view.batches == 1 ? aligned(t.n) : t.n;
    const auto most =
        !one_by_one(mode) ? static_cast<size_t>(std::max<Index>(1, kBatchElements / t.n)) : 1;
    const size_t parts = (tensors.size() + most - 1) / most;
    const size_t each = (tensors.size() + parts - 1) / parts;
    for (size_t first = 0; first < tensors.size(); first += each) {
      const size_t count = std::min(each, tensors.size() - first);
      batches_.push_back({t.view, element, apart, static_cast<unsigned>(host_members_.size()),
                          static_cast<unsigned>(count), std::get<0>(key)});
      for (size_t i = 0; i < count; ++i) {
        of_slot_[tensors[first + i]] = {batches(), static_cast<unsigned>(i)};
        host_members_.push_back(static_cast<unsigned>(tensors[first + i]));
      }
      bytes = std::max(bytes, scratch_elements(batches_.back()) * width_of(element));
    }
  }
  members_.assign(device, host_members_);
  changes_.resize(device, host_members_.size());
  met_.resize(device, kMostTeams);
  scratch_.resize(device, static_cast<size_t>(bytes));
  if (!batches_.empty() && !matmul_) matmul_.emplace(device);
}

void* MatrixPlan::scratch(size_t slot, size_t state) const {
  const Place& place = of_slot_[slot];
  if (place.batch == 0 || !rule_->info.states[state].scratch) return nullptr;
  const Batch& b = batches_[place.batch - 1];
  Index plane = 0;
  for (size_t j = 0; j < state; ++j) plane += rule_->info.states[j].scratch;
  return scratch_.data() + (plane * b.count + place.at) * b.apart * width_of(b.element);
}

void MatrixPlan::begin(unsigned number, const NormStep& step, void* stream) {
  if (!has_bases(*rule_)) return;
  const Batch& b = batches_[number - 1];
  NormStep s = step;
  s.step.members = members_.data() + b.first_member;
  s.step.member_count = b.count;
  int* out = changes_.data() + b.first_member;
  void* arguments[] = {&s, &out};
  constexpr unsigned kFew = 64;
  check(cudaLaunchKernel(look_at_bases_, dim3((b.count + kFew - 1) / kFew), dim3(kFew), arguments,
                         0, static_cast<cudaStream_t>(stream)),
        "looking at bases");
}

void MatrixPlan::stage(int pass, unsigned number, const double* hyper, const NormStep& step,
                       void* stream) {
  const Batch& b = batches_[number - 1];
  BatchOnDevice trial(*this, b, step, stream, false);
  rule_->stage(pass, trial, hyper);
  BatchOnDevice on(*this, b, step, stream, true);
  on.expect(trial.into());
  rule_->stage(pass, on, hyper);
}

bool MatrixPlan::bases_missing(const std::vector<Slot>& slots) const {
  if (rule_ == nullptr || !has_bases(*rule_)) return false;
  return std::any_of(host_members_.begin(), host_members_.end(),
                     [&](unsigned i) { return !has_bases_[i] && slots[i].tensor.grad != nullptr; });
}

std::vector<size_t> MatrixPlan::without_bases(const Batch& b) const {
  std::vector<size_t> out;
  for (unsigned i = 0; i < b.count; ++i) {
    const size_t slot = host_members_[b.first_member + i];
    if (!has_bases_[slot] && (*slots_)[slot].tensor.grad != nullptr) out.push_back(i);
  }
  return out;
}

// Eigenvectors are for the host, which has them once in a training.
void MatrixPlan::make_bases(const Batch& b, Linear::Sides bases, Linear::Sides grams,
                            void* stream) {
  std::vector<size_t> missing = without_bases(b);
  if (missing.empty()) return;
  check(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), "waiting for the device");
  std::vector<int> change(b.count);
  copy_to_host(device_, change.data(), changes_.data() + b.first_member,
               change.size() * sizeof(int));
  std::erase_if(missing, [&](size_t i) { return change[i] != static_cast<int>(Bases::make); });

  struct Task {
    void* to;
    Index n;
    std::vector<float> narrow;  // the square, in one or the other
    std::vector<double> wide;
    void* data() { return narrow.empty() ? static_cast<void*>(wide.data()) : narrow.data(); }
  };
  std::vector<Task> tasks;
  const bool wide = b.element == Element::f64;
  const Index width = width_of(b.element);
  for (size_t i : missing) {
    const size_t slot = host_members_[b.first_member + i];
    const cpu::Tensor& t = (*slots_)[slot].tensor;
    has_bases_[slot] = true;
    for (bool left : {true, false}) {
      if (!(left ? b.view.left : b.view.right)) continue;
      const Index n = left ? b.view.rows : b.view.columns;
      for (Index m = 0; m < b.view.batches; ++m) {
        const Index at = m * n * n * width;
        Task task{
            static_cast<std::byte*>(t.state[left ? bases.left : bases.right]) + at, n, {}, {}};
        wide ? task.wide.resize(static_cast<size_t>(n * n))
             : task.narrow.resize(static_cast<size_t>(n * n));
        copy_to_host(device_, task.data(),
                     static_cast<std::byte*>(t.state[left ? grams.left : grams.right]) + at,
                     static_cast<size_t>(n * n * width));
        tasks.push_back(std::move(task));
      }
    }
  }
  const blas::OneThreadEach serial;
  auto share = [&](int part, int parts) {
    for (size_t i = static_cast<size_t>(part); i < tasks.size(); i += static_cast<size_t>(parts)) {
      wide ? blas::eigenbasis(tasks[i].n, tasks[i].wide.data())
           : blas::eigenbasis(tasks[i].n, tasks[i].narrow.data());
    }
  };
  cpu::ThreadPool::instance().run(cpu::default_threads(), share);
  for (Task& task : tasks) {
    copy_to_device(device_, task.to, task.data(), static_cast<size_t>(task.n * task.n * width));
  }
}

}  // namespace gallop::cuda
