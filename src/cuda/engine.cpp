// SPDX-License-Identifier: MIT
#include "cuda/engine.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>

#include "cuda/common.h"
#include "cuda/engine_impl.h"
#include "cuda/runtime.h"
#include "cuda/unfused.h"

namespace gallop::cuda {
namespace {

template <class T>
void take_progress(const Progress& p, T& to) {
  to.steps = p.steps;
  std::copy(std::begin(p.scalars), std::end(p.scalars), to.scalars.begin());
}

}  // namespace

int Engine::Impl::resident_blocks(const void* kernel, int threads) {
  auto it = resident.find(kernel);
  if (it == resident.end()) {
    int blocks = 0;
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, 0),
          "asking how many blocks fit");
    it = resident.emplace(kernel, std::max(blocks, 1)).first;
  }
  return it->second;
}

void Engine::Impl::launch(const void* kernel, Step s, const char* what, int threads) {
  launch(kernel, s.last_chunk - s.first_chunk, &s, what, threads);
}

void Engine::Impl::launch(const void* kernel, unsigned work, void* argument, const char* what,
                          int threads) {
  const unsigned most = static_cast<unsigned>(resident_blocks(kernel, threads) * multiprocessors);
  const unsigned grid = std::clamp(work, 1u, most);
  void* arguments[] = {argument};
  check(cudaLaunchKernel(kernel, dim3(grid), dim3(static_cast<unsigned>(threads)), arguments, 0,
                         static_cast<cudaStream_t>(stream)),
        what);
}

void Engine::Impl::use(const Table& table) {
  step.chunks = table.chunks();
  step.chunk_elements = table.chunk_elements();
  step.first_chunk = 0;
  step.last_chunk = static_cast<unsigned>(table.chunk_count());
}

void Engine::Impl::compute_numbers(int entry, const Table& table) {
  Step s = step;
  s.members = table.members();
  s.member_count = static_cast<unsigned>(table.member_count());
  if (s.member_count == 0) return;
  constexpr unsigned kFew = 64;  // tensors a block: each has a thread to itself
  double* out = numbers.data();
  void* arguments[] = {&s, &out};
  check(cudaLaunchKernel(numbers_kernels[static_cast<size_t>(entry)],
                         dim3((s.member_count + kFew - 1) / kFew), dim3(kFew), arguments, 0,
                         static_cast<cudaStream_t>(stream)),
        "computing coefficients");
}

void Engine::Impl::update_unfused(int entry, const Table& table, std::span<const size_t> params,
                                  bool finish) {
  compute_numbers(entry, table);
  Step s = step;
  s.members = table.members();
  s.member_count = static_cast<unsigned>(params.size());
  const bool needs_grad = rule.entries[static_cast<size_t>(entry)].grad;
  const UnfusedUpdate unfused{rule, entry, s, scratch, stream};
  for (size_t i : params) {
    if (needs_grad && slots[i].tensor.grad == nullptr) continue;
    unfused.run(slots[i], static_cast<unsigned>(i), numbers.data() + i * kNumbers);
  }
  if (needs_grad && s.zero_grad) launch(zero_grads_kernel(), s, "zeroing gradients");
  if (entry != 0) return;
  s.last_chunk = s.first_chunk;  // nothing left to update, only to count
  s.finish = finish;
  launch(ending_kernel, s, "ending a step");
}

Engine::Engine(const Rule& rule, const Options& options, const std::vector<Slot>& slots,
               const std::vector<gallop::Group>& groups)
    : impl_(new Impl(rule, options, slots, groups)) {
  check(cudaDeviceGetAttribute(&impl_->multiprocessors, cudaDevAttrMultiProcessorCount,
                               impl_->device),
        fmt::format("asking cuda:{}", impl_->device));
}

Engine::~Engine() = default;

void Engine::changed() { impl_->stale = impl_->replan = true; }

void Engine::grad_changed(size_t slot) {
  if (!impl_->stale) impl_->new_grads.push_back(slot);
}

void Engine::group_changed(size_t g) {
  if (impl_->stale) return;
  const DeviceScope scope(impl_->device);
  check(launch_change_group(impl_->group_data.data() + g,
                            device_group(impl_->rule, impl_->groups[g]), impl_->stream),
        "changing hyper-parameters");
}

void Engine::begin(const StepArgs& args, bool needs_norm) {
  Impl& m = *impl_;
  const DeviceScope scope(m.device);
  m.stream = args.stream;
  m.upload();
  if (m.matrices.bases_missing(m.slots)) m.refuse_capture("a step that makes bases of matrices");
  m.upload_grads();
  m.step = {};
  m.step.tensors = m.tensors.data();
  m.step.grads = m.grads.data();
  m.step.groups = m.group_data.data();
  m.step.progress = m.progress.data();
  m.step.group_progress = m.group_progress.data();
  m.step.control = m.control.data();
  m.step.partials = m.partials.data();
  m.step.group_count = static_cast<unsigned>(m.groups.size());
  m.step.zero_grad = m.options.zero_grad;
  m.step.needs_norm = needs_norm;
  m.step.skip_nonfinite = m.options.skip_nonfinite;
  m.step.divisor = args.grad_scale * args.accumulation;
  m.step.grad_scale = args.device_grad_scale;
  m.step.found_inf = args.device_found_inf;
  m.step.clip_value = m.options.clip_value;
  m.step.clip_norm = m.options.clip_norm;
  if (!needs_norm) return;
  m.use(m.everything);
  m.launch(square_sum_kernel(), m.step, "summing the gradients' squares");
}

void Engine::update(int entry, std::span<const size_t> params, bool finish) {
  Impl& m = *impl_;
  const DeviceScope scope(m.device);
  const Table& table = m.table_of(params);
  m.use(table);
  if (m.has_norms()) return m.update_norms(table, finish);
  if (m.options.mode == Mode::unfused) return m.update_unfused(entry, table, params, finish);
  size_t left = table.launches().size();
  for (const Table::Launch& l : table.launches()) {
    Step s = m.step;
    s.first_chunk = l.first_chunk;
    s.last_chunk = l.last_chunk;
    s.members = table.members() + l.first_member;
    s.member_count = l.member_count;
    s.finish = finish && --left == 0;
    m.launch(l.kernels[static_cast<size_t>(entry)], s, "launching a step", threads_of(l.kind));
  }
}

void Engine::count_skipped() {
  const DeviceScope scope(impl_->device);
  check(launch_count_skipped(impl_->control.data(), impl_->stream), "counting a skipped step");
}

void Engine::zero_grads() {
  Impl& m = *impl_;
  const DeviceScope scope(m.device);
  m.upload();
  m.upload_grads();
  Step s{};
  s.tensors = m.tensors.data();
  s.grads = m.grads.data();
  s.chunks = m.everything.chunks();
  s.chunk_elements = m.everything.chunk_elements();
  s.last_chunk = static_cast<unsigned>(m.everything.chunk_count());
  m.launch(zero_grads_kernel(), s, "zeroing gradients");
}

std::optional<Engine::Totals> Engine::pull(std::vector<Slot>& slots,
                                           std::vector<gallop::Group>& groups) {
  Impl& m = *impl_;
  if (m.stale) return std::nullopt;
  const DeviceScope scope(m.device);
  check(cudaDeviceSynchronize(), "waiting for the device");
  const std::vector<Progress> p = m.progress.to_host(), gp = m.group_progress.to_host();
  for (size_t i = 0; i < p.size(); ++i) take_progress(p[i], slots[i]);
  for (size_t g = 0; g < gp.size(); ++g) take_progress(gp[g], groups[g]);
  const Control c = m.control.to_host().front();
  return Totals{c.skipped, static_cast<int64_t>(c.not_finite), c.norm};
}

void Engine::push(int64_t skipped, int64_t not_finite, uint64_t seed) {
  Impl& m = *impl_;
  const DeviceScope scope(m.device);
  m.control.assign(m.device, std::vector<Control>{
                                 {seed, 0, 1, skipped, static_cast<Bits64>(not_finite), 0, 0, 0}});
  if (m.has_norms()) return changed();  // a checkpoint may ask for other passes
  if (!m.stale) m.upload_numbers();
}

const int64_t* Engine::skipped_at() const {
  static_assert(sizeof(Control::skipped) == sizeof(int64_t));
  return reinterpret_cast<const int64_t*>(&impl_->control.data()->skipped);
}

}  // namespace gallop::cuda
