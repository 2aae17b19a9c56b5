// SPDX-License-Identifier: MIT
#include "cpu/backend.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

#include "core/quantise.h"
#include "cpu/isa.h"
#include "cpu/thread_pool.h"
#include "cpu/walk.h"

namespace gallop::cpu {
namespace {

// A thread costs about as much to wake as it takes to update this many elements.
constexpr Index kMinBlocksPerThread = 16;
// Gradients are zeroed while their cache lines are still in the first-level caches.
constexpr Index kZeroingBlocks = 16;
// Fixed, so that sums do not depend on how the work is shared out.
constexpr Index kSumBlocks = 64;

Index blocks_of(Index n) { return (n + kBlock - 1) / kBlock; }

// Of an element of a parameter or gradient.
Index bytes_of(Storage s) { return bytes_for(s, 1); }

Index elements(const Tensor& t, Index first_block, Index blocks) {
  return std::min(t.n - first_block * kBlock, blocks * kBlock);
}

// What the threads' own caches hold from one pass to the next. Larger groups, for the last level,
// were slower.
Index cached_bytes(int threads) {
  return std::max<Index>(sysconf(_SC_LEVEL2_CACHE_SIZE), Index{1} << 20) * threads / 2;
}

Index bytes_of(const Tensor& t) {
  Index bytes = bytes_for(t.param_storage, t.n) + bytes_for(t.grad_storage, t.n);
  for (int j = 0; j < detail::kMaxStates; ++j) {
    if (t.present >> j & 1) bytes += bytes_for(t.state_storage[j], t.n);
  }
  return bytes;
}

void* offset(void* p, Index bytes) { return p == nullptr ? p : static_cast<char*>(p) + bytes; }

}  // namespace

Path Tensor::path() const {
  if (param_storage == Storage::f64) return Path::f64;
  bool plain = param_storage == Storage::f32 && grad_storage == Storage::f32, codes = false;
  for (int j = 0; j < detail::kMaxStates; ++j) {
    if ((present >> j & 1) == 0) continue;
    plain = plain && state_storage[j] == Storage::f32;
    codes = codes || is_quantised(state_storage[j]);
  }
  return codes ? Path::quantised : plain ? Path::f32 : Path::blocks;
}

Backend::Backend(const Rule& rule, int threads)
    : rule_(rule),
      isa_(choose_isa()),
      threads_(threads > 0 ? threads : default_threads()),
      tools_(*toolkits()[static_cast<size_t>(isa_)]),
      scratch_(
          [](size_t bytes) {
            void* data = std::aligned_alloc(64, (bytes + 127) / 64 * 64);
            if (data == nullptr) throw std::bad_alloc();
            return data;
          },
          [](void* data) { std::free(data); }),
      norms_(rule),
      matrices_(rule, threads_, norms_) {}

std::string_view Backend::isa() const { return tools_.isa; }

void Backend::get_kernels() {
  if (kernels_ == nullptr) kernels_ = &rule_.cpu_kernels(isa_);
}

void Backend::reserve(std::span<const Tensor* const> tensors) {
  Index blocks = 0;
  for (const Tensor* t : tensors) blocks += blocks_of(t->n);
  ends_.reserve(tensors.size());
  partials_.reserve(tensors.size() + static_cast<size_t>(blocks / kSumBlocks));
  if (!rule_.passes.empty()) norms_.reserve(tensors);
  if (rule_.stages != 0) matrices_.reserve(tensors);
}

int Backend::useful_threads(Index elements) const {
  const Index useful = std::max<Index>(1, elements / (kMinBlocksPerThread * kBlock));
  return static_cast<int>(std::min<Index>(threads_, useful));
}

template <class F>
void Backend::share_out(std::span<const Job> jobs, Index unit, bool backward, F f) {
  const auto units = [unit](const Job& job) {
    return (blocks_of(job.tensor->n) + unit - 1) / unit;
  };
  ends_.clear();
  Index total = 0;
  for (const Job& job : jobs) ends_.push_back(total += units(job));
  // Contiguous, equal shares: a thread meets the same elements, in its own cache, step after step.
  auto share = [&](int i, int count) {
    const Index first = total * i / count, last = total * (i + 1) / count;
    if (first == last) return;
    const auto job_at = [&](Index at) {
      return std::upper_bound(ends_.begin(), ends_.end(), at) - ends_.begin();
    };
    const Index low = job_at(first), high = job_at(last - 1);
    for (Index k = 0; k <= high - low; ++k) {
      const auto index = static_cast<size_t>(backward ? high - k : low + k);
      const Index end = ends_[index], start = end - units(jobs[index]);
      const Index from = std::max(first, start), to = std::min(last, end);
      if (from < to) f(jobs[index], Piece{(from - start) * unit, (to - from) * unit, from});
    }
  };
  ThreadPool::instance().run(useful_threads(total * unit * kBlock), share);
}

KernelArgs Backend::arguments(int entry, const Job& job, Index first_block, Index blocks) const {
  const Tensor& t = *job.tensor;
  const Index first = first_block * kBlock;
  auto codec = [&](Storage s) { return &tools_.codecs[static_cast<size_t>(s)]; };
  KernelArgs a;
  a.plain_param = t.param_storage == Storage::f32;
  a.plain_grad = t.grad_storage == Storage::f32;
  a.quantised = 0;
  a.resets = false;
  a.param_codec = codec(t.param_storage);
  a.grad_codec = codec(t.grad_storage);
  a.param = offset(t.param, first * bytes_of(t.param_storage));
  a.low = offset(t.low, first_block * a.param_codec->low_bytes);
  a.grad = offset(t.grad, first * bytes_of(t.grad_storage));
  const Bits64 stream = static_cast<Bits64>(entry) * (detail::kMaxStates + 1);
  for (int j = 0; j < detail::kMaxStates; ++j) {
    const Storage storage = t.state_storage[j];
    const Bits64 number = stream + 1 + static_cast<Bits64>(j);
    a.state_codec[j] = codec(storage);
    a.state[j] = offset(t.state[j], bytes_for(storage, first));
    a.scale[j] = offset(t.scale[j], 4 * scales_for(storage, first));
    a.state_key[j] = combine(job.key, number);
    a.state_dither[j] = dither_of_stream(job.dither, static_cast<Bits32>(number));
    if ((t.present >> j & 1) == 0 || !is_quantised(storage)) continue;
    a.quantised |= 1u << j;
    a.resets = a.resets || (is_bitsandbytes(storage) && rule_.passes.empty());
  }
  a.not_finite = &not_finite_;
  a.param_key = combine(job.key, stream);
  a.n = elements(t, first_block, blocks);
  a.first_block = first_block;
  a.coef = job.coef;
  a.grad_scale = job.grad_scale;
  a.grad_limit = job.grad_limit;
  a.grad_factor = job.grad_factor;
  return a;
}

Kernel Backend::kernel_of(int number, const Job& job) const {
  const Tensor& t = *job.tensor;
  if (t.fitted != nullptr) return t.fitted->of(number, job.coef);
  return rule_.cpu_kernel(*kernels_, number, t.present, t.path());
}

void Backend::update_piece(int entry, const Job& job, Piece piece, bool zero_grad) const {
  const Tensor& t = *job.tensor;
  const Kernel kernel = kernel_of(entry, job);
  const auto run = [&](Index first, Index blocks, Index next) {
    KernelArgs a = arguments(entry, job, first, blocks);
    a.next = next * kBlock;
    kernel(a);
    if (!zero_grad) return;
    std::memset(offset(t.grad, first * kBlock * bytes_of(t.grad_storage)), 0,
                static_cast<size_t>(a.n * bytes_of(t.grad_storage)));
  };
  walk(piece.first, piece.first + piece.blocks, backward_, [&](Index first, Index n, Index next) {
    const Index stride = zero_grad ? kZeroingBlocks : n, end = first + n;
    for (; end - first > stride; first += stride, next -= stride) run(first, stride, stride);
    run(first, end - first, next);
  });
}

// One pass over the units of all jobs, shared out by their number.
void Backend::run_pass(int pass, std::span<const Job> jobs, bool zero_grad) {
  ends_.clear();
  Index total = 0, all = 0;
  for (const Job& job : jobs) {
    const bool runs = norms_.wants(job, pass);
    total += runs ? static_cast<Index>(norms_.units(job.tensor->index).size()) : 0;
    all += runs ? job.tensor->n : 0;
    ends_.push_back(total);
  }
  auto share = [&](int i, int count) {
    const Index last = total * (i + 1) / count;
    for (Index at = total * i / count; at < last; ++at) {
      const auto j =
          static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), at) - ends_.begin());
      const Job& job = jobs[j];
      const Tensor& t = *job.tensor;
      const auto units = norms_.units(t.index);
      const Norms::Unit& unit = units[units.size() - static_cast<size_t>(ends_[j] - at)];
      const Index first = unit.first / kBlock;
      KernelArgs a = arguments(pass, job, first, blocks_of(unit.n));
      const NormArgs norms = norms_.arguments(t.index, unit, t.path());
      a.norms = &norms;
      const Kernel kernel = kernel_of(2 * pass + static_cast<int>(t.view.matrix), job);
      if (kernel != nullptr) kernel(a);
      if (zero_grad && rule_.is_last(job.passes, pass)) {
        std::memset(offset(t.grad, unit.first * bytes_of(t.grad_storage)), 0,
                    static_cast<size_t>(a.n * bytes_of(t.grad_storage)));
      }
    }
  };
  if (total > 0) ThreadPool::instance().run(useful_threads(all), share);
}

// f(job, part, parts, mine) for every job and every part, over the threads; mine: in one part only.
template <class F>
void Backend::for_each(std::span<const Job> jobs, F f) {
  Index elements = 0;
  for (const Job& job : jobs) elements += job.tensor->n;
  auto each = [&](int part, int parts) {
    for (size_t i = 0; i < jobs.size(); ++i)
      f(jobs[i], part, parts, i % static_cast<size_t>(parts) == static_cast<size_t>(part));
  };
  ThreadPool::instance().run(useful_threads(elements), each);
}

void Backend::update_with_norms(std::span<const Job> jobs, bool zero_grad) {
  unsigned wanted = 0;
  for (const Job& job : jobs) wanted |= job.passes;
  for (int pass = 0; wanted >> pass != 0; ++pass) {
    if ((wanted >> pass & 1) == 0) continue;
    run_pass(pass, jobs, zero_grad);
    if (rule_.adds_up(pass)) {
      const auto runs = [&](const Job& job) { return norms_.wants(job, pass); };
      for_each(jobs, [&](const Job& job, int part, int parts, bool mine) {
        if (!runs(job)) return;
        if (norms_.many_vectors(job.tensor->index)) return norms_.collect(pass, job, part, parts);
        if (mine) norms_.collect(pass, job);
      });
      for_each(jobs, [&](const Job& job, int, int, bool mine) {
        if (mine && runs(job)) norms_.between(pass, job);
      });
    }
    if ((rule_.stages >> pass & 1) != 0) matrices_.stage(pass, jobs);
  }
}

// As many tensors go through all passes together as the caches hold.
void Backend::update_in_groups(std::span<const Job> jobs, bool zero_grad) {
  const Index most = cached_bytes(threads_);
  while (!jobs.empty()) {
    size_t count = 0;
    Index bytes = 0;
    do {
      bytes += bytes_of(*jobs[count++].tensor);
    } while (count < jobs.size() && bytes + bytes_of(*jobs[count].tensor) <= most);
    update_with_norms(jobs.first(count), zero_grad);
    jobs = jobs.subspan(count);
  }
}

// Of a rule with norms: jobs that go through its stages together.
void Backend::update_batch(std::span<const Job> jobs, Mode mode, bool zero_grad) {
  if (!one_by_one(mode)) {
    return rule_.stages != 0 ? update_with_norms(jobs, zero_grad)
                             : update_in_groups(jobs, zero_grad);
  }
  for (const Job& job : jobs) {
    if (mode == Mode::single) {
      update_with_norms({&job, 1}, zero_grad);
    } else {
      update_norms_unfused(job);
      if (zero_grad) zero_grads({&job, 1});
    }
  }
}

void Backend::update(int entry, std::span<const Job> jobs, Mode mode, bool zero_grad) {
  if (rule_.stages != 0) {
    return matrices_.for_batches(jobs, one_by_one(mode), [&](std::span<const Job> batch) {
      update_batch(batch, mode, zero_grad);
    });
  }
  if (!rule_.passes.empty()) return update_batch(jobs, mode, zero_grad);
  backward_ = !backward_;
  const auto update = [&](const Job& job, Piece p) { update_piece(entry, job, p, zero_grad); };
  if (!one_by_one(mode)) return share_out(jobs, 1, backward_, update);
  for (size_t i = 0; i < jobs.size(); ++i) {
    const Job& job = jobs[backward_ ? jobs.size() - 1 - i : i];
    if (mode == Mode::single) {
      share_out({&job, 1}, 1, backward_, update);
    } else {
      update_unfused(entry, job);
      if (zero_grad) zero_grads({&job, 1});
    }
  }
}

double Backend::square_sum(std::span<const Job> jobs) {
  Index chunks = 0;
  for (const Job& job : jobs) chunks += (blocks_of(job.tensor->n) + kSumBlocks - 1) / kSumBlocks;
  partials_.resize(static_cast<size_t>(chunks));
  share_out(jobs, kSumBlocks, false, [&](const Job& job, Piece piece) {
    const Tensor& t = *job.tensor;
    const double scale_and_limit[] = {job.grad_scale, job.grad_limit};
    const Codec* codec = &tools_.codecs[static_cast<size_t>(t.grad_storage)];
    double* out = &partials_[static_cast<size_t>(piece.unit)];
    for (Index first = piece.first; first < piece.first + piece.blocks; first += kSumBlocks) {
      const Index n = elements(t, first, kSumBlocks);
      const void* data = offset(t.grad, first * kBlock * bytes_of(t.grad_storage));
      *out++ = t.grad_storage == Storage::f64 ? tools_.square_sum_f64(data, n, scale_and_limit)
                                              : tools_.square_sum(codec, data, n, scale_and_limit);
    }
  });
  double sum = 0;
  for (double p : partials_) sum += p;
  return sum;
}

void Backend::zero_grads(std::span<const Job> jobs) {
  share_out(jobs, 1, false, [](const Job& job, Piece piece) {
    const Tensor& t = *job.tensor;
    const Index bytes = bytes_of(t.grad_storage);
    std::memset(offset(t.grad, piece.first * kBlock * bytes), 0,
                static_cast<size_t>(elements(t, piece.first, piece.blocks) * bytes));
  });
}

}  // namespace gallop::cpu
