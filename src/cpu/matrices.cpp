// SPDX-License-Identifier: MIT
#include "cpu/matrices.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <tuple>

#include "blas/gemm.h"
#include "cpu/thread_pool.h"
#include "optimizer/rule.h"

namespace gallop::cpu {
namespace {

// Tensors of fewer elements go together; more would only take memory.
constexpr Index kBatchElements = 1 << 22;
// Products are shared out in tiles of their result.
constexpr Index kTile = 128, kWideTile = 512;
constexpr Index kAlign = 64;  // elements

Index aligned(Index n) { return (n + kAlign - 1) / kAlign * kAlign; }
Index side_of(const View& v) { return std::min(v.rows, v.columns); }
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

// Elements of scratch that a tensor needs: its planes, one to compute into, and two squares.
Index scratch_elements(const Rule& rule, const View& v, Index n) {
  return (scratch_planes(rule) + 1) * aligned(n) + 2 * v.batches * aligned(side_of(v) * side_of(v));
}

size_t most_together(Index n) {
  return static_cast<size_t>(std::max<Index>(1, kBatchElements / std::max<Index>(1, n)));
}

// f(i) for i in [0, tasks), over the threads.
template <class F>
void for_tasks(int threads, Index tasks, F f) {
  auto share = [&](int i, int count) {
    for (Index task = i; task < tasks; task += count) f(task);
  };
  ThreadPool::instance().run(static_cast<int>(std::min<Index>(threads, tasks)), share);
}

template <class T>
class Batch final : public Linear {
 public:
  Batch(std::span<Tensor> tensors, int threads, const Norms& norms, T* memory)
      : tensors_(tensors),
        threads_(threads),
        norms_(norms),
        view_(tensors.front().view),
        wide_(view_.rows <= view_.columns),
        side_(side_of(view_)),
        count_(static_cast<Index>(tensors.size()) * view_.batches),
        spare_(memory),
        squares_(memory + static_cast<Index>(tensors.size()) * aligned(tensors.front().n)) {}

  void scale_rows(int plane, int value) override {
    for_tasks(threads_, count_ * view_.rows, [&](Index task) {
      const Index tensor = task / (view_.batches * view_.rows),
                  row = task % (view_.batches * view_.rows);
      const Tensor& t = tensors_[static_cast<size_t>(tensor)];
      const T factor = static_cast<T>(norms_.row_values(t.index, value)[row]);
      T* x = static_cast<T*>(t.state[plane]) + row * view_.columns;
      for (Index c = 0; c < view_.columns; ++c) x[c] *= factor;
    });
  }

  void gram(Square s, int plane) override {
    for_half_tiles([&](Index m, Tile t) {
      const T* x = matrix(plane, m);
      const Index k = wide_ ? view_.columns : view_.rows, stride = view_.columns;
      T* out = square(s, m);
      if (wide_) {
        product(t, k, 1, {x + t.row * stride, stride}, {x + t.column * stride, stride, true}, 0,
                out, side_);
      } else {
        product(t, k, 1, {x + t.row, stride, true}, {x + t.column, stride}, 0, out, side_);
      }
      mirror(out, t);
    });
  }

  void polynomial(Square s, double b, double c, Square from) override {
    for_half_tiles([&](Index m, Tile t) {
      const T* a = square(from, m);
      T* out = square(s, m);
      copy(t, a, out, side_);
      product(t, side_, c, {a + t.row * side_, side_}, {a + t.column, side_}, b, out, side_);
      mirror(out, t);
    });
  }

  void apply(int plane, double factor, Square s) override {
    const Index stride = view_.columns;
    for_tiles([&](Index m, Tile t) {
      const T *x = matrix(plane, m), *a = square(s, m);
      T* out = spare(m);
      copy(t, x, out, stride);
      if (wide_) {
        product(t, side_, 1, {a + t.row * side_, side_}, {x + t.column, stride}, factor, out,
                stride);
      } else {
        product(t, side_, 1, {x + t.row * stride, stride}, {a + t.column, side_}, factor, out,
                stride);
      }
    });
    swap_spare(plane);
  }

 private:
  struct Tile {
    Index row, column, rows, columns;
  };

  T* matrix(int plane, Index m) const {
    const Tensor& t = tensors_[static_cast<size_t>(m / view_.batches)];
    return static_cast<T*>(t.state[plane]) + m % view_.batches * view_.rows * view_.columns;
  }
  T* spare(Index m) const {
    return spare_ + m / view_.batches * aligned(tensors_.front().n) +
           m % view_.batches * view_.rows * view_.columns;
  }
  T* square(Square s, Index m) const {
    return squares_ + ((s == first ? 0 : count_) + m) * aligned(side_ * side_);
  }

  // f(matrix, tile) for tiles on and below the diagonal of every square.
  template <class F>
  void for_half_tiles(F f) {
    const Index tiles = (side_ + kTile - 1) / kTile, half = tiles * (tiles + 1) / 2;
    for_tasks(threads_, count_ * half, [&](Index task) {
      Index row = 0, at = task % half;
      while (at > row) at -= ++row;
      const auto length = [&](Index tile) { return std::min(kTile, side_ - tile * kTile); };
      f(task / half, Tile{row * kTile, at * kTile, length(row), length(at)});
    });
  }
  template <class F>
  void for_tiles(F f) {
    const Index down = (view_.rows + kTile - 1) / kTile;
    const Index across = (view_.columns + kWideTile - 1) / kWideTile;
    for_tasks(threads_, count_ * down * across, [&](Index task) {
      const Index at = task % (down * across), row = at / across * kTile,
                  column = at % across * kWideTile;
      f(task / (down * across), Tile{row, column, std::min(kTile, view_.rows - row),
                                     std::min(kWideTile, view_.columns - column)});
    });
  }

  static void product(const Tile& t, Index k, double alpha, blas::Factor<T> a, blas::Factor<T> b,
                      double beta, T* out, Index stride) {
    blas::gemm(t.rows, t.columns, k, static_cast<T>(alpha), a, b, static_cast<T>(beta),
               out + t.row * stride + t.column, stride);
  }
  static void copy(const Tile& t, const T* from, T* to, Index stride) {
    for (Index r = t.row; r < t.row + t.rows; ++r) {
      std::copy_n(from + r * stride + t.column, t.columns, to + r * stride + t.column);
    }
  }
  void mirror(T* out, const Tile& t) const {
    if (t.row == t.column) return;
    for (Index r = t.row; r < t.row + t.rows; ++r) {
      for (Index c = t.column; c < t.column + t.columns; ++c)
        out[c * side_ + r] = out[r * side_ + c];
    }
  }
  // What was computed into the spare plane becomes the plane.
  void swap_spare(int plane) {
    // Scratch planes of a batch lie one after the other, as the spare one does.
    T* before = static_cast<T*>(tensors_.front().state[plane]);
    for (size_t i = 0; i < tensors_.size(); ++i) {
      tensors_[i].state[plane] = spare_ + static_cast<Index>(i) * aligned(tensors_.front().n);
    }
    spare_ = before;
  }

  std::span<Tensor> tensors_;
  int threads_;
  const Norms& norms_;
  View view_;
  bool wide_;
  Index side_, count_;
  T *spare_, *squares_;
};

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
    const auto each = static_cast<size_t>(scratch_elements(rule_, t.view, t.n)) * width_of(t);
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
  for (size_t i = 0; i < batch.size(); ++i) bound_[i].tensor = &tensors_[i];
  return bound_;
}

void Matrices::stage(int pass, std::span<const Job> batch) {
  const Job& job = batch.front();
  if (!job.tensor->view.matrix || job.tensor->n == 0) return;
  const blas::OneThreadEach serial;
  const auto run = [&]<class T>(T* memory) {
    Batch<T> on(tensors_, threads_, norms_, memory);
    rule_.stage(pass, on, job.hyper, job.clock);
  };
  width_of(*job.tensor) == 8 ? run(reinterpret_cast<double*>(rest_))
                             : run(reinterpret_cast<float*>(rest_));
}

}  // namespace gallop::cpu
