// SPDX-License-Identifier: MIT
#include "gpt/ranges.h"

#include <fmt/format.h>

#include "cuda/nvtx.h"
#include "gpt/trace.h"

namespace gallop::gpt {

Ranges::Ranges(int64_t layers) : layers_(layers), watched_(cuda::watched()) {}

std::string_view Ranges::name_of(Phase phase) {
  return phase == Phase::forward ? "forward" : "backward";
}

std::string Ranges::name_of(int64_t layer) const {
  if (layer < 0) return "embedding";
  return layer < layers_ ? fmt::format("layer {}", layer) : "head";
}

void Ranges::begin(std::string_view name, int64_t layer) {
  if (unseen()) return;
  if (watched_) cuda::push_range(std::string(name));
  if (trace_ != nullptr) trace_->begin(name, layer);
}

void Ranges::end() {
  if (watched_) cuda::pop_range();
  if (trace_ != nullptr) trace_->end();
}

void Ranges::begin(Phase, int64_t layer) {
  if (!unseen()) begin(name_of(layer), layer);
}

void Ranges::end(Phase, int64_t) { end(); }

}  // namespace gallop::gpt
