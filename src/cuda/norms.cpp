// SPDX-License-Identifier: MIT
#include "cuda/norms.h"

#include <algorithm>

#include "cuda/runtime.h"
#include "optimizer/impl.h"

namespace gallop::cuda {
namespace {

// Hands out places in an array, first counting, then for real.
template <class T>
struct Places {
  T* base;
  Index used = 0;
  T* take(Index n) {
    T* at = base == nullptr ? nullptr : base + used;
    used += n;
    return at;
  }
};

// Larger tiles leave fewer sums of columns behind, smaller ones more equal shares.
Index tile_size(const Rule& rule, Index n) {
  const bool columns = std::any_of(rule.sums.begin(), rule.sums.end(),
                                   [](const Sum& s) { return s.over == Over::column; });
  return columns && n >= Index{1} << 20 ? 1 << 15 : 1 << 14;
}

void cut(const View& v, Index elements, Index tile, NormTensor& n) {
  n.view = v;
  n.columns = v.matrix ? v.columns : kTileColumns;
  n.rows = v.matrix ? v.rows : (elements + n.columns - 1) / n.columns;
  const Index width = std::min<Index>(n.columns, kTileColumns);
  const Index rows = std::clamp<Index>(tile / width / kWarps, 1, 64) * kWarps;
  n.tile_rows = static_cast<unsigned>(rows);
  n.row_tiles = static_cast<unsigned>((n.rows + rows - 1) / rows);
  n.column_tiles = static_cast<unsigned>((n.columns + kTileColumns - 1) / kTileColumns);
  n.tiles = static_cast<unsigned>(v.batches) * n.row_tiles * n.column_tiles;
}

void place(const Rule& rule, NormTensor& n, Places<double>& numbers, Places<float>& narrow) {
  const View& v = n.view;
  const Index rows = v.matrix ? v.batches * v.rows : 0;
  const Index columns = v.matrix ? v.batches * v.columns : 0;
  n.tensor_values = numbers.take(detail::kMaxTensorValues);
  n.tile_sums = numbers.take(Index{n.tiles} * detail::kMaxSums);
  n.left_sums = numbers.take(rows > 0 ? 2 * kMostParts : 0);
  for (int i = 0; i < rule.values.row; ++i) n.row_values[i] = numbers.take(rows);
  for (int i = 0; i < rule.values.column; ++i) {
    n.column_values[i] = numbers.take(columns);
    n.narrow[i] = narrow.take((columns + 3) / 4 * 4);  // for 16-byte accesses
  }
  for (size_t q = 0; q < rule.sums.size(); ++q) {
    if (rule.sums[q].over == Over::row) n.row_partials[q] = numbers.take(rows * n.column_tiles);
    if (rule.sums[q].over != Over::column) continue;
    n.column_partials[q] = numbers.take(columns * n.row_tiles);
    n.column_sums[q] = numbers.take(columns);
  }
  for (size_t j = 0; j < rule.info.states.size(); ++j) {
    const StatePer per = rule.info.states[j].per;
    if (per == StatePer::row) n.states[j] = numbers.take(rows);
    if (per == StatePer::column) n.states[j] = numbers.take(columns);
  }
}

}  // namespace

void NormPlan::assign(int device, const Rule& rule, const std::vector<Slot>& slots,
                      const std::vector<gallop::Group>& groups) {
  host_.assign(slots.size(), {});
  passes_.clear();
  variants_.clear();
  for (size_t i = 0; i < slots.size(); ++i) {
    variants_.push_back(rule.variant_of(slots[i].tensor.present));
    const cpu::Tensor& t = slots[i].tensor;
    if (t.n > 0) cut(t.view, t.n, tile_size(rule, t.n), host_[i]);
    passes_.push_back(
        rule.active_passes(groups[slots[i].group].hyper.data(), slots[i].tensor.view.matrix));
  }
  by_sides_ = std::any_of(rule.sums.begin(), rule.sums.end(),
                          [](const Sum& s) { return s.over != Over::tensor; });
  marks_.resize(device, (1 + slots.size()) * detail::kMaxPasses);
  for (size_t i = 0; i < slots.size(); ++i) {
    host_[i].meetings = marks_.data() + (1 + i) * detail::kMaxPasses;
  }
  Places<double> numbers{nullptr};
  Places<float> narrow{nullptr};
  for (NormTensor& n : host_) place(rule, n, numbers, narrow);
  numbers_.resize(device, static_cast<size_t>(numbers.used));
  narrow_.resize(device, static_cast<size_t>(narrow.used));
  numbers = {numbers_.data()};
  narrow = {narrow_.data()};
  for (NormTensor& n : host_) place(rule, n, numbers, narrow);
  tensors_.assign(device, host_);
}

Index NormPlan::tile_elements(size_t slot) const {
  const NormTensor& n = host_[slot];
  return std::min<Index>(n.tile_rows, n.rows) * std::min<Index>(n.columns, kTileColumns);
}

void NormPlan::clear_marks(void* stream) const {
  check(cudaMemsetAsync(marks_.data(), 0, marks_.size() * sizeof(unsigned),
                        static_cast<cudaStream_t>(stream)),
        "clearing marks");
}

unsigned NormPlan::parts(size_t slot) const {
  const View& v = host_[slot].view;
  if (!by_sides_ || !v.matrix || v.batches > 1) return 1;
  // Threads go through rows and columns one after the other, and each waits for memory. But few
  // blocks run side by side.
  const Index vectors = v.rows + v.columns;
  return static_cast<unsigned>(vectors < 16384 ? std::clamp<Index>(vectors / 1024, 1, 4)
                                               : std::min<Index>(vectors / 1536, kMostParts));
}

}  // namespace gallop::cuda
