// SPDX-License-Identifier: MIT
#include "gpt/trace.h"

#include <chrono>
#include <utility>

#include "cuda/memory.h"
#include "gpt/trace_gpu.h"

namespace gallop::gpt {
namespace {

bool is_phase(std::string_view name) {
  return name == "forward" || name == "backward" || name == "optimizer";
}

}  // namespace

Trace::Trace(TraceOptions options)
    : options_(std::move(options)),
      file_(options_.path),
      gpu_(options_.device.kind == Device::Kind::cuda && !cuda::emulated()) {
  now();  // throws where CUPTI is not to be had
}

Trace::~Trace() {
  try {
    stop();
  } catch (...) {  // nobody asks for what it recorded
  }
}

// On a GPU by the clock that its kernels are timed with.
int64_t Trace::now() const {
  if (gpu_) return cuda::trace_now();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Trace::begin(std::string_view name, int64_t layer) {
  if (steps_ == options_.steps) stop();
  if (stopped_) return open_.push_back(-1);
  if (gpu_ && !recording_) cuda::start_trace();
  recording_ = true;
  Range r;
  r.name = name;
  r.parent = open_.empty() ? -1 : open_.back();
  if (r.parent >= 0) r.place = ranges_[static_cast<size_t>(r.parent)].place;
  if (name == "step") {
    r.place.step = steps_ + 1;
    batches_ = 0;
  }
  if (name == "batch") r.place.batch = batches_++;
  if (is_phase(name)) r.place.phase = name;
  if (layer != kNoLayer) r.place.layer = layer;
  open_.push_back(static_cast<int>(ranges_.size()));
  ranges_.push_back(std::move(r));
  ranges_.back().begin_ns = now();
}

void Trace::end() {
  const int at = open_.back();
  open_.pop_back();
  if (at < 0 || stopped_) return;
  Range& r = ranges_[static_cast<size_t>(at)];
  r.end_ns = now();
  if (r.name == "step") ++steps_;
}

void Trace::stop() {
  if (!std::exchange(stopped_, true)) end_ns_ = now();
  if (!std::exchange(recording_, false) || !gpu_) return;
  cuda::synchronize(options_.device.index);
  activities_ = cuda::stop_trace();
}

Traced Trace::finish() {
  stop();
  for (int at : open_) {
    if (at >= 0) ranges_[static_cast<size_t>(at)].end_ns = end_ns_;
  }
  Traced t;
  t.title = options_.title;
  t.layers = options_.layers;
  t.steps = steps_;
  t.ranges = std::move(ranges_);
  t.kernels = place_kernels(std::move(activities_), t.ranges);
  const std::string json = to_json(t);
  file_.write(json.data(), json.size());
  file_.commit();
  return t;
}

}  // namespace gallop::gpt
