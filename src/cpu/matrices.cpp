// SPDX-License-Identifier: MIT
#include "cpu/matrices.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <tuple>

#include "blas/blas.h"
#include "cpu/matrix_batch.h"
#include "optimizer/rule.h"

namespace gallop::cpu {
namespace {

// Tensors of fewer elements go together; more would only take memory.
constexpr Index kBatchElements = 1 << 22;
size_t width_of(const Tensor& t) { return t.param_storage == Storage::f64 ? 8 : 4; }

auto shape_key(const Tensor& t) {
  return std::tuple(t.view.matrix, width_of(t), t.view.batches, t.view.rows, t.view.columns);
}

bool same_batch(const Job& a, const Job& b) {
  if (!a.tensor->view.matrix) return !b.tensor->view.matrix;
  return shape_key(*a.tensor) == shape_key(*b.tensor) && a.coef == b.coef;
}

int scratch_planes(const Rule& rule) {
  return static_cast<int>(std::count_if(rule.info.states.begin(), rule.info.states.end(),
                                        [](const StateInfo& s) { return s.scratch; }));
}

bool has_pairs(const Rule& rule) {
  return std::any_of(rule.info.states.begin(), rule.info.states.end(),
                     [](const StateInfo& s) { return is_square(s.per); });
}

// Elements of scratch that a tensor needs: its planes, one to compute into, squares, and work.
Index scratch_elements(const Rule& rule, const View& v, Index n, bool wide) {
  const Index work = wide ? refine_work<double>(v) : refine_work<float>(v);
  return (scratch_planes(rule) + 1) * aligned(n) +
         v.batches *
             (2 * aligned(shorter_side(v) * shorter_side(v)) + (has_pairs(rule) ? work : 0));
}

size_t most_together(Index n) {
  return static_cast<size_t>(std::max<Index>(1, kBatchElements / std::max<Index>(1, n)));
}

}  // namespace

void Matrices::Free::operator()(void* p) const { std::free(p); }

void Matrices::reserve(std::span<const Tensor* const> tensors) {
  sorted_.reserve(tensors.size());
  bound_.reserve(tensors.size());
  tensors_.reserve(tensors.size());
  std::vector<const Tensor*> matrices;
  for (const Tensor* t : tensors) {
    if (t->view.matrix) matrices.push_back(t);
  }
  std::sort(matrices.begin(), matrices.end(),
            [](const Tensor* a, const Tensor* b) { return shape_key(*a) < shape_key(*b); });
  size_t bytes = 0;
  for (size_t first = 0, last = 0; first < matrices.size(); first = last) {
    const Tensor& t = *matrices[first];
    while (last < matrices.size() && shape_key(*matrices[last]) == shape_key(t)) ++last;
    const size_t together = std::min(last - first, most_together(t.n));
    const auto each =
        static_cast<size_t>(scratch_elements(rule_, t.view, t.n, width_of(t) == 8)) * width_of(t);
    bytes = std::max(bytes, together * each);
  }
  if (bytes == 0) return;
  scratch_.reset(static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64)));
  if (scratch_ == nullptr) throw std::bad_alloc();
}

void Matrices::sort(std::span<const Job> jobs) {
  sorted_.assign(jobs.begin(), jobs.end());
  const auto key = [](const Job& j) {
    return std::tuple(
        j.tensor->view.matrix ? shape_key(*j.tensor) : decltype(shape_key(*j.tensor)){}, j.coef,
        j.tensor->index);
  };
  std::sort(sorted_.begin(), sorted_.end(),
            [&](const Job& a, const Job& b) { return key(a) < key(b); });
}

size_t Matrices::batch_at(size_t first, bool apart) const {
  if (apart) return 1;
  const Job& job = sorted_[first];
  const size_t most = job.tensor->view.matrix ? most_together(job.tensor->n) : sorted_.size();
  size_t last = first + 1;
  while (last < sorted_.size() && last - first < most && same_batch(job, sorted_[last])) ++last;
  return last - first;
}

std::span<const Job> Matrices::bind(std::span<const Job> batch) {
  if (!batch.front().tensor->view.matrix) return batch;
  bound_.assign(batch.begin(), batch.end());
  tensors_.clear();
  for (const Job& job : batch) tensors_.push_back(*job.tensor);
  rest_ = scratch_.get();
  const size_t plane =
      static_cast<size_t>(aligned(tensors_.front().n)) * width_of(tensors_.front());
  for (size_t j = 0; j < rule_.info.states.size(); ++j) {
    if (!rule_.info.states[j].scratch) continue;
    for (Tensor& t : tensors_) {
      t.state[j] = rest_;
      rest_ += plane;
    }
  }
  spare_ = rest_;
  rest_ += plane * tensors_.size();
  for (size_t i = 0; i < batch.size(); ++i) bound_[i].tensor = &tensors_[i];
  return bound_;
}

void Matrices::stage(int pass, std::span<const Job> batch) {
  const Job& job = batch.front();
  if (!job.tensor->view.matrix || job.tensor->n == 0) return;
  const blas::OneThreadEach serial;
  const auto run = [&]<class T>(T* memory) {
    T* spare = reinterpret_cast<T*>(spare_);
    Batch<T> on(rule_, tensors_, threads_, norms_, rule_.bases(job.hyper, job.clock), spare,
                memory);
    rule_.stage(pass, on, job.hyper);
    spare_ = reinterpret_cast<std::byte*>(spare);
  };
  width_of(*job.tensor) == 8 ? run(reinterpret_cast<double*>(rest_))
                             : run(reinterpret_cast<float*>(rest_));
}

}  // namespace gallop::cpu
