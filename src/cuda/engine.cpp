// SPDX-License-Identifier: MIT
#include "cuda/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "cuda/common.h"
#include "cuda/matrices.h"
#include "cuda/memory.h"
#include "cuda/norms.h"
#include "cuda/runtime.h"
#include "cuda/table.h"
#include "cuda/unfused.h"
#include "gallop/error.h"
#include "optimizer/impl.h"

namespace gallop::cuda {
namespace {

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

template <class T>
Progress device_progress(const T& from) {
  Progress p{};
  p.steps = from.steps;
  std::copy(from.scalars.begin(), from.scalars.end(), p.scalars);
  return p;
}

template <class T>
void take_progress(const Progress& p, T& to) {
  to.steps = p.steps;
  std::copy(std::begin(p.scalars), std::end(p.scalars), to.scalars.begin());
}

}  // namespace

struct Engine::Impl {
  Impl(const Rule& r, const Options& o, const std::vector<Slot>& s,
       const std::vector<gallop::Group>& g)
      : rule(r),
        options(o),
        slots(s),
        groups(g),
        device(o.device.index),
        kernels(r, o.mode, device),
        scratch([this](size_t bytes) { return allocate(device, bytes); },
                [this](void* memory) { release(device, memory); }) {}

  const Rule& rule;
  const Options& options;
  const std::vector<Slot>& slots;
  const std::vector<gallop::Group>& groups;
  int device;
  Kernels kernels;
  int multiprocessors = 0;
  void* stream = nullptr;  // of the last step

  bool stale = true;   // device memory does not know all of slots and groups
  bool replan = true;  // of a rule with norms: other passes may have to run
  std::vector<size_t> new_grads;
  Buffer<Tensor> tensors;
  Buffer<void*> grads;
  Buffer<Group> group_data;
  Buffer<Progress> progress, group_progress;
  Buffer<Control> control;
  Buffer<double> partials;
  Table everything;
  NormPlan plan;            // of a rule with norms
  bool unfinished = false;  // its last launch did not end a step
  MatrixPlan matrices;      // of one over matrices
  struct Planned {
    const Table::Launch* launch;
    int pass;
    const void* kernel;
  };
  std::vector<Planned> planned;  // of the step in progress
  Table tiles;                   // of everything
  std::map<std::vector<size_t>, Table> subsets;
  // Of what launches of different tables share.
  std::vector<const void*> numbers_kernels, between_kernels;
  const void* ending_kernel = nullptr;
  std::map<const void*, int> resident;  // blocks of a kernel that fit on one multiprocessor
  Step step{};                          // of the step in progress
  Buffer<double> numbers;               // of mode unfused, kNumbers a tensor
  Scratch scratch;

  bool has_norms() const { return !rule.passes.empty(); }
  const MatrixPlan* matrix_plan() const { return rule.stages != 0 ? &matrices : nullptr; }

  bool capturing() const {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status),
          "asking whether a stream is being captured");
    return status != cudaStreamCaptureStatusNone;
  }

  // What allocates cannot be captured.
  void refuse_capture(const char* what) const {
    if (!capturing()) return;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} cannot be captured: take one step before", what));
  }

  void upload() {
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
        tiles = Table(device, multiprocessors, rule, options.mode, kernels.fits_formats(), slots,
                      all, &plan, matrix_plan());
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

  // Hyper-parameters, steps and scalars as the host has them.
  void upload_numbers() {
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

  void upload_grads() {
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

  const Table& table_of(std::span<const size_t> params) {
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

  int resident_blocks(const void* kernel, int threads) {
    auto it = resident.find(kernel);
    if (it == resident.end()) {
      int blocks = 0;
      check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, 0),
            "asking how many blocks fit");
      it = resident.emplace(kernel, std::max(blocks, 1)).first;
    }
    return it->second;
  }

  void launch(const void* kernel, Step s, const char* what, int threads = kThreads) {
    launch(kernel, s.last_chunk - s.first_chunk, &s, what, threads);
  }
  // As many blocks as fit, but no more than there is work for.
  void launch(const void* kernel, unsigned work, void* argument, const char* what,
              int threads = kThreads) {
    const unsigned most = static_cast<unsigned>(resident_blocks(kernel, threads) * multiprocessors);
    const unsigned grid = std::clamp(work, 1u, most);
    void* arguments[] = {argument};
    check(cudaLaunchKernel(kernel, dim3(grid), dim3(static_cast<unsigned>(threads)), arguments, 0,
                           static_cast<cudaStream_t>(stream)),
          what);
  }

  void use(const Table& table) {
    step.chunks = table.chunks();
    step.chunk_elements = table.chunk_elements();
    step.first_chunk = 0;
    step.last_chunk = static_cast<unsigned>(table.chunk_count());
  }

  // Of mode unfused: what is the same for all elements of a tensor.
  void compute_numbers(int entry, const Table& table) {
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

  void update_unfused(int entry, const Table& table, std::span<const size_t> params, bool finish) {
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

  // The launches of all passes in their order: batch after batch, in each pass after pass.
  void plan_passes(const Table& table) {
    planned.clear();
    const int passes = static_cast<int>(rule.passes.size());
    for (unsigned batch = 0; batch <= matrices.batches(); ++batch) {
      for (int pass = 0; pass < passes; ++pass) {
        for (const Table::Launch& l : table.launches()) {
          if (l.batch != batch || (l.passes >> pass & 1) == 0) continue;
          // Null: the pass has nothing to do, but what is made of its sums may.
          planned.push_back({&l, pass, l.kernels[static_cast<size_t>(pass)]});
        }
      }
    }
  }

  void update_norms(const Table& table, bool finish) {
    plan_passes(table);
    if (options.mode == Mode::unfused) compute_numbers(0, table);
    NormStep ns{step, plan.tensors(), plan.marks(), plan.mark_count(), false, nullptr};
    if (unfinished) plan.clear_marks(stream);
    unfinished = !finish;
    ns.step.member_count = 0;
    ns.step.finish = finish;
    if (planned.empty()) {  // nothing to update, only to count
      ns.step.first_chunk = ns.step.last_chunk = 0;
      return launch(ending_kernel, 0, &ns, "ending a step", kTileThreads);
    }
    for (size_t i = 0; i < planned.size(); ++i) {
      const auto& [l, pass, k] = planned[i];
      const bool ends = l->passes >> pass == 1;  // the step of these tensors
      ns.step.first_chunk = l->first_chunk;
      ns.step.last_chunk = l->last_chunk;
      ns.step.members = table.members() + l->first_member;
      ns.step.member_count = ends ? l->member_count : 0;
      ns.step.zero_grad = step.zero_grad && rule.is_last(l->passes, pass);
      ns.step.finish = finish && i + 1 == planned.size();
      const bool begins = i == 0 || planned[i - 1].launch->batch != l->batch;
      if (begins) {
        ns.backward = false;
      } else if (planned[i - 1].pass != pass) {
        ns.backward = !ns.backward;
      }
      if (begins && l->batch != 0) matrices.begin(l->batch, ns, stream);
      if (options.mode == Mode::unfused) {
        pass_unfused(table, l->first_member, pass, ns.step);
        ns.step.last_chunk = ns.step.first_chunk;  // nothing left to update, only to count
      }
      if (k != nullptr) {
        launch(k, ns.step.last_chunk - ns.step.first_chunk, &ns, "launching a pass", kTileThreads);
      }
      const Planned* next = i + 1 < planned.size() ? &planned[i + 1] : nullptr;
      if (next != nullptr && next->pass == pass && next->launch->batch == l->batch) continue;
      after_pass(table, pass, l->batch, ns);
    }
  }

  // Of the one tensor of a launch.
  void pass_unfused(const Table& table, unsigned member, int pass, const Step& s) {
    const size_t i = table.member(member);
    const cpu::Tensor& t = slots[i].tensor;
    if (t.n == 0 || t.grad == nullptr) return;
    const UnfusedUpdate unfused{rule, pass, s, scratch, stream};
    const Tensor on_device = device_tensor(slots[i], i, matrix_plan());
    unfused.run_pass(slots[i], static_cast<unsigned>(i), numbers.data() + i * kNumbers,
                     plan.tensor(i), on_device.state);
    if (s.zero_grad) {
      unfused.zero_grad(slots[i], static_cast<unsigned>(i), plan.tensor(i));
    }
  }

  // What is made of a pass's sums, and products of matrices.
  void after_pass(const Table& table, int pass, unsigned batch, NormStep& ns) {
    for (const Table::Launch& l : table.launches()) {
      const bool ran = l.batch == batch && (l.passes >> pass & 1) != 0;
      if (!rule.adds_up(pass) || !ran || l.member_count == 0) continue;
      void* arguments[] = {&ns};
      const void* k = between_kernels[static_cast<size_t>(pass)];
      constexpr const char* kDoing = "launching what comes between passes";
      const auto on = static_cast<cudaStream_t>(stream);
      const auto launch_shares = [&](unsigned first, unsigned blocks) {
        ns.shares = table.shares() + first;
        if (blocks == 0) return;
        check(cudaLaunchKernel(k, dim3(blocks), dim3(kThreads), arguments, 0, on), kDoing);
      };
      if (l.in_teams.empty() || !rule.adds_by_sides(pass)) {
        launch_shares(l.first_share, l.member_count);
        continue;
      }
      unsigned first = l.first_of_teams;
      for (unsigned blocks : l.in_teams) {
        ns.shares = table.shares() + first;
        check(cudaLaunchCooperativeKernel(k, dim3(blocks), dim3(kThreads), arguments, 0, on),
              kDoing);
        first += blocks;
      }
      launch_shares(first, l.beside_teams);
    }
    if (batch == 0 || (rule.stages >> pass & 1) == 0) return;
    matrices.stage(pass, batch, groups[matrices.group(batch)].hyper.data(), ns, stream);
  }

  // Finds the kernels of a table's launches; those that are not linked in are compiled.
  void get_kernels(Table& table) {
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
};

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

}  // namespace gallop::cuda
