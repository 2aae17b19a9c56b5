// SPDX-License-Identifier: MIT
#include "gpt/arena.h"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace gallop::gpt {
namespace {

constexpr int kFakeBits = 44;  // dry runs: the buffer's number above, what is added to it below

bool meet(const Buffer& a, const Buffer& b) { return a.first < b.last && b.first < a.last; }

}  // namespace

std::string_view to_string(MemoryClass c) {
  constexpr std::string_view names[] = {"parameters",  "gradients", "state",
                                        "activations", "logits",    "workspace"};
  return names[static_cast<int>(c)];
}

void place(Plan& plan) {
  std::vector<size_t> order(plan.buffers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return plan.buffers[a].bytes > plan.buffers[b].bytes;
  });
  std::vector<const Buffer*> placed;  // by offset
  plan.bytes = 0;
  for (size_t i : order) {
    Buffer& buffer = plan.buffers[i];
    size_t at = 0;
    for (const Buffer* other : placed) {
      if (!meet(buffer, *other)) continue;
      if (at + whole_places(buffer.bytes) <= other->offset) break;
      at = std::max(at, other->offset + whole_places(other->bytes));
    }
    buffer.offset = at;
    plan.bytes = std::max(plan.bytes, at + whole_places(buffer.bytes));
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), &buffer,
                         [](const Buffer* a, const Buffer* b) { return a->offset < b->offset; }),
        &buffer);
  }
}

std::array<size_t, kMemoryClasses> at_peak(const Plan& plan) {
  std::vector<std::array<int64_t, kMemoryClasses>> change(static_cast<size_t>(plan.moments) + 2);
  for (const Buffer& b : plan.buffers) {
    const int64_t bytes = static_cast<int64_t>(whole_places(b.bytes));
    change[static_cast<size_t>(b.first)][static_cast<size_t>(b.cls)] += bytes;
    change[static_cast<size_t>(b.last)][static_cast<size_t>(b.cls)] -= bytes;
  }
  std::array<int64_t, kMemoryClasses> now{}, most{};
  const auto total = [](const auto& of) {
    return std::accumulate(of.begin(), of.end(), int64_t{0});
  };
  for (const auto& moment : change) {
    for (size_t c = 0; c < now.size(); ++c) now[c] += moment[c];
    if (total(now) > total(most)) most = now;
  }
  std::array<size_t, kMemoryClasses> out{};
  std::copy(most.begin(), most.end(), out.begin());
  return out;
}

void Arena::plan(int kind) {
  current_ = &plans_[kind];
  *current_ = {};
  planning_ = true;
}

void Arena::planned() {
  for (Buffer& b : current_->buffers) {
    if (b.last == 0) b.last = current_->moments + 1;  // never given back
  }
  place(*current_);
  planning_ = false;
  current_ = nullptr;
}

size_t Arena::bytes() const {
  size_t most = 0;
  for (const auto& [kind, plan] : plans_) most = std::max(most, plan.bytes);
  return most;
}

void Arena::begin(int kind) {
  current_ = &plans_.at(kind);
  next_ = 0;
}

Tensor Arena::take(std::string_view name, MemoryClass cls, int64_t layer, DType type, int64_t rows,
                   int64_t columns) {
  Tensor t{nullptr, type, rows, columns};
  if (planning_) {
    current_->buffers.push_back(
        {std::string(name), cls, layer, t.bytes(), 0, ++current_->moments, 0});
    // NOLINTNEXTLINE(performance-no-int-to-ptr): a number in disguise, never followed
    t.data = reinterpret_cast<void*>(current_->buffers.size() << kFakeBits);
    return t;
  }
  assert(next_ < current_->buffers.size() && current_->buffers[next_].bytes == t.bytes());
  t.data = memory_ + current_->buffers[next_++].offset;
  return t;
}

void Arena::give(Tensor& tensor) {
  if (planning_ && tensor) {
    const size_t number = reinterpret_cast<size_t>(tensor.data) >> kFakeBits;
    current_->buffers[number - 1].last = ++current_->moments;
  }
  tensor = {};
}

}  // namespace gallop::gpt
