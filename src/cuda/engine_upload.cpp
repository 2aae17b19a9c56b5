// SPDX-License-Identifier: MIT
// What an engine keeps in device memory, and which kernels its steps launch.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "cuda/common.h"
#include "cuda/engine_impl.h"
#include "cuda/runtime.h"
#include "gallop/error.h"

namespace gallop::cuda {
namespace {

template <class T>
Progress device_progress(const T& from) {
  Progress p{};
  p.steps = from.steps;
  std::copy(from.scalars.begin(), from.scalars.end(), p.scalars);
  return p;
}

}  // namespace

Tensor device_tensor(const Slot& s, size_t index, const MatrixPlan* matrices) {
  Tensor t{};
  const cpu::Tensor& from = s.tensor;
  Bits64 bits = reinterpret_cast<Bits64>(from.param) | reinterpret_cast<Bits64>(from.low);
  t.param = from.param;
  t.low = from.low;
  for (int j = 0; j < detail::kMaxStates; ++j) {
    t.state[j] = from.state[j];
    if ((from.present >> j & 1) != 0 && t.state[j] == nullptr && matrices != nullptr) {
      t.state[j] = matrices->scratch(index, static_cast<size_t>(j));
    }
    t.state_storage[j] = from.state_storage[j];
    t.scale[j] = from.scale[j];
    const bool kept = (from.present >> j & 1) != 0;
    t.resets = t.resets || (kept && is_bitsandbytes(t.state_storage[j]));
    bits |= reinterpret_cast<Bits64>(t.state[j]);
  }
  t.n = from.n;
  t.id = s.id;
  t.group = static_cast<unsigned>(s.group);
  t.param_storage = from.param_storage;
  t.grad_storage = from.grad_storage;
  t.aligned = bits % 16 == 0;
  return t;
}

Group device_group(const Rule& rule, const gallop::Group& g) {
  Group out{};
  rule.hyper_members(g.hyper.data(), out.hyper);
  out.schedule = detail::schedule_data(g.options.schedule);
  out.maximize = g.options.maximize;
  return out;
}

bool Engine::Impl::capturing() const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status),
        "asking whether a stream is being captured");
  return status != cudaStreamCaptureStatusNone;
}

void Engine::Impl::refuse_capture(const char* what) const {
  if (!capturing()) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{} cannot be captured: take one step before", what));
}

void Engine::Impl::upload() {
  if (!stale) return;
  refuse_capture("the first step after parameters were added or moved");
  // Captured graphs hold addresses: what keeps its size keeps its place.
  const bool added = slots.size() != tensors.size() || replan;
  if (added && rule.stages != 0) {
    const void* look = nullptr;
    if (rule.has_bases) look = kernels.get({{Kernels::What::look_at_bases}}).front();
    matrices.assign(device, rule, look, options.mode, multiprocessors, slots);
  }
  std::vector<Tensor> t;
  std::vector<void*> g;
  for (size_t i = 0; i < slots.size(); ++i) {
    t.push_back(device_tensor(slots[i], i, matrix_plan()));
    g.push_back(slots[i].tensor.grad);
  }
  tensors.assign(device, t);
  grads.assign(device, g);
  upload_numbers();
  if (control.size() == 0) {
    control.assign(device, std::vector<Control>{{options.seed, 0, 1, 0, 0, 0, 0, 0}});
  }
  if (added || everything.launches().empty()) {
    std::vector<size_t> all(slots.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = i;
    everything =
        Table(device, multiprocessors, rule, options.mode, kernels.fits_formats(), slots, all);
    subsets.clear();
    if (has_norms()) {
      plan.assign(device, rule, slots, groups);
      tiles = Table(device, multiprocessors, rule, options.mode, kernels.fits_formats(), slots, all,
                    &plan, matrix_plan());
      replan = false;
    }
    get_kernels(has_norms() ? tiles : everything);
    partials.assign(device, std::vector<double>(std::max<size_t>(1, everything.chunk_count())));
    if (options.mode == Mode::unfused) {
      numbers.assign(device, std::vector<double>(slots.size() * kNumbers));
    }
  }
  new_grads.clear();
  stale = false;
}

void Engine::Impl::upload_numbers() {
  std::vector<Group> data;
  std::vector<Progress> p, gp;
  for (const Slot& s : slots) p.push_back(device_progress(s));
  for (const gallop::Group& group : groups) {
    data.push_back(device_group(rule, group));
    gp.push_back(device_progress(group));
  }
  group_data.assign(device, data);
  progress.assign(device, p);
  group_progress.assign(device, gp);
}

void Engine::Impl::upload_grads() {
  GradChanges changes{};
  const auto flush = [&] {
    if (changes.count == 0) return;
    check(launch_change_grads(grads.data(), changes, stream), "changing gradient pointers");
    changes.count = 0;
  };
  for (size_t i : new_grads) {
    changes.index[changes.count] = static_cast<unsigned>(i);
    changes.grad[changes.count++] = slots[i].tensor.grad;
    if (changes.count == GradChanges::kMost) flush();
  }
  flush();
  new_grads.clear();
}

const Table& Engine::Impl::table_of(std::span<const size_t> params) {
  if (params.size() == slots.size() &&
      std::is_sorted(params.begin(), params.end(), std::less_equal<>())) {
    return has_norms() ? tiles : everything;
  }
  std::vector<size_t> key(params.begin(), params.end());
  auto it = subsets.find(key);
  if (it == subsets.end()) {
    refuse_capture("the first step of a choice of parameters");
    Table table(device, multiprocessors, rule, options.mode, kernels.fits_formats(), slots, key,
                has_norms() ? &plan : nullptr, matrix_plan());
    get_kernels(table);
    it = subsets.emplace(std::move(key), std::move(table)).first;
  }
  return it->second;
}

void Engine::Impl::get_kernels(Table& table) {
  using What = Kernels::What;
  const size_t count = has_norms() ? rule.passes.size() : rule.entries.size();
  const bool unfused = options.mode == Mode::unfused;
  std::vector<Kernels::Wanted> wanted;
  std::vector<const void**> places;
  const auto want = [&](const void*& place, const Kernels::Wanted& w) {
    wanted.push_back(w);
    places.push_back(&place);
  };
  for (Table::Launch& l : table.launches()) {
    l.kernels.assign(count, nullptr);
    for (size_t i = 0; i < count; ++i) {
      const bool runs = has_norms() ? (l.passes >> i & 1) != 0 : !unfused;
      if (runs) {
        want(l.kernels[i], {What::update, static_cast<int>(i), l.present, l.kind, l.formats});
      }
    }
  }
  const unsigned present = table.launches().front().present;
  numbers_kernels.assign(rule.entries.size(), nullptr);
  between_kernels.assign(rule.passes.size(), nullptr);
  for (size_t i = 0; unfused && i < rule.entries.size(); ++i) {
    want(numbers_kernels[i], {What::numbers, static_cast<int>(i)});
  }
  for (size_t i = 0; i < rule.passes.size(); ++i) {
    const int pass = static_cast<int>(i);
    if (rule.adds_up(pass)) want(between_kernels[i], {What::between, pass});
  }
  if (has_norms()) {
    want(ending_kernel, {What::end, 0, present});
  } else if (unfused) {
    want(ending_kernel, {What::update, 0, present});
  }
  const std::vector<const void*> found = kernels.get(wanted);
  for (size_t i = 0; i < found.size(); ++i) *places[i] = found[i];
  // Loaded now, not while a step is captured.
  for (const Table::Launch& l : table.launches()) {
    for (const void* k : l.kernels) {
      if (k != nullptr) resident_blocks(k, has_norms() ? kTileThreads : threads_of(l.kind));
    }
  }
}

}  // namespace gallop::cuda
