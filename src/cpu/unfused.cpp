// SPDX-License-Identifier: MIT
// Mode unfused: decode everything into arrays, apply the rule operator by operator, encode again.
#include <atomic>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "core/array.h"
#include "core/quantise.h"
#include "cpu/backend.h"
#include "cpu/thread_pool.h"
#include "optimizer/unfused.h"

namespace gallop::cpu {
namespace {

using Buffer = std::unique_ptr<float[]>;

// Calls f(block) for every block of a tensor of n elements, over the threads.
template <class F>
void for_blocks(Index n, int threads, F f) {
  auto share = [&](int i, int count) {
    const Index blocks = (n + kBlock - 1) / kBlock;
    for (Index b = blocks * i / count; b < blocks * (i + 1) / count; ++b) f(b);
  };
  ThreadPool::instance().run(threads, share);
}

class CpuArrays final : public ArrayEngine {
 public:
  CpuArrays(ArrayOp op, Index n, size_t element_bytes, int threads, Scratch& scratch)
      : op_(op),
        n_(n),
        bytes_(static_cast<size_t>(n) * element_bytes),
        threads_(threads),
        scratch_(scratch) {}

  void pass(Op op, void* out, const Operand* in) override {
    auto share = [&](int i, int count) {
      const Index blocks = (n_ + kBlock - 1) / kBlock;
      const Index first = blocks * i / count * kBlock;
      const Index last = std::min(n_, blocks * (i + 1) / count * kBlock);
      if (first < last) op_(op, out, in, first, last - first);
    };
    ThreadPool::instance().run(threads_, share);
  }
  void* take() override { return scratch_.take(bytes_); }
  void share(void* memory) override { scratch_.share(memory); }
  void give(void* memory) override { scratch_.give(memory); }

 private:
  ArrayOp op_;
  Index n_;
  size_t bytes_;
  int threads_;
  Scratch& scratch_;
};

struct Field {
  void* data;
  void* low;
  const Codec* codec;
  Bits64 key;
  bool quantised = false;
  Bits32 dither = 0;

  Block at(Index b, Index n) const {
    const Index first = b * kBlock;
    const auto index = static_cast<Bits64>(b);
    return {
        static_cast<char*>(data) + b * codec->data_bytes,
        low == nullptr ? nullptr : static_cast<char*>(low) + b * codec->low_bytes,
        static_cast<int>(std::min<Index>(kBlock, n - first)),
        quantised ? dither_at(dither, static_cast<Bits32>(index * kBlock)) : block_key(key, index)};
  }
  Buffer decode(Index n, int threads) const {
    // Codecs write whole blocks, so the last one needs room.
    Buffer out(new float[static_cast<size_t>((n + kBlock - 1) / kBlock * kBlock)]);
    for_blocks(n, threads, [&](Index b) { codec->load(at(b, n), out.get() + b * kBlock); });
    return out;
  }
  // False: something is not finite, and is not stored.
  bool encode(const float* values, Index n, int threads) const {
    std::atomic<bool> all = true;
    for_blocks(n, threads, [&](Index b) {
      if (!codec->store(at(b, n), values + b * kBlock)) all = false;
    });
    return all;
  }
};

template <class T>
UnfusedNumbers<T> numbers_of(const Rule& rule, const KernelArgs& a) {
  UnfusedNumbers<T> n;
  for (int i = 0; i < rule.coefs; ++i) n.coef[i] = static_cast<T>(a.coef[i]);
  const T scale = static_cast<T>(a.grad_scale), limit = static_cast<T>(a.grad_limit),
          factor = static_cast<T>(a.grad_factor);
  n.scaled = scale != 1;
  n.clamped = std::isfinite(limit);
  n.factored = factor != 1;
  n.scale = scale;
  n.limit = limit;
  n.factor = factor;
  return n;
}

}  // namespace

template <class Apply>
void Backend::with_arrays(int entry, const Job& job, bool grad, unsigned writes, Apply apply) {
  const Tensor& t = *job.tensor;
  const KernelArgs a = arguments(entry, job, 0, (t.n + kBlock - 1) / kBlock);
  const auto states = static_cast<int>(rule_.info.states.size());
  const auto kept = [&](int j) {
    return j < states && (t.present >> j & 1) != 0 &&
           rule_.info.states[static_cast<size_t>(j)].per == StatePer::element;
  };
  if (t.param_storage == Storage::f64) {
    CpuArrays engine(tools_.array_f64, t.n, 8, useful_threads(t.n), scratch_);
    double* data[2 + detail::kMaxStates] = {static_cast<double*>(t.param),
                                            grad ? static_cast<double*>(t.grad) : nullptr};
    for (int j = 0; j < detail::kMaxStates; ++j) {
      data[2 + j] = kept(j) ? static_cast<double*>(t.state[j]) : nullptr;
    }
    return apply(engine, data, numbers_of<double>(rule_, a));
  }

  CpuArrays engine(tools_.array_f32, t.n, 4, useful_threads(t.n), scratch_);
  Field fields[2 + detail::kMaxStates] = {{t.param, t.low, a.param_codec, a.param_key},
                                          {grad ? t.grad : nullptr, nullptr, a.grad_codec, 0}};
  for (int j = 0; j < detail::kMaxStates; ++j) {
    fields[2 + j] = {
        kept(j) ? t.state[j] : nullptr, t.scale[j],       a.state_codec[j], a.state_key[j],
        (a.quantised >> j & 1) != 0,    a.state_dither[j]};
  }
  Buffer buffers[2 + detail::kMaxStates];
  float* data[2 + detail::kMaxStates] = {};
  const Codec* plain = &tools_.codecs[static_cast<size_t>(Storage::f32)];
  for (int i = 0; i < 2 + detail::kMaxStates; ++i) {
    if (fields[i].data == nullptr) continue;
    if (fields[i].codec != plain) buffers[i] = fields[i].decode(t.n, threads_);
    data[i] = buffers[i] ? buffers[i].get() : static_cast<float*>(fields[i].data);
  }
  std::vector<std::pair<Index, float>> aside;  // as bitsandbytes: not updated, states begin anew
  for (Index i = 0; grad && a.resets && i < t.n; ++i) {
    if (!is_finite(data[1][i])) aside.emplace_back(i, data[0][i]);
  }
  apply(engine, data, numbers_of<float>(rule_, a));
  for (const auto& [i, before] : aside) {
    data[0][i] = before;
    for (int j = 0; j < detail::kMaxStates; ++j) {
      if (data[2 + j] != nullptr) data[2 + j][i] = 0;
    }
  }
  not_finite_ += static_cast<long long>(aside.size());
  if (buffers[0] && (writes & kWritesParam)) fields[0].encode(data[0], t.n, threads_);
  const auto encode = [&] {
    bool all = true;
    for (int j = 0; j < detail::kMaxStates; ++j) {
      if (!buffers[2 + j] || (writes >> j & 1) == 0) continue;
      if (!fields[2 + j].encode(data[2 + j], t.n, threads_)) all = false;
    }
    return all;
  };
  if (encode()) return;
  for (Index i = 0; i < t.n; ++i) {
    bool dropped = false;
    for (int j = 0; j < detail::kMaxStates; ++j) {
      if (((a.quantised & writes) >> j & 1) == 0) continue;
      float& x = data[2 + j][i];
      if (is_finite(x)) continue;
      x = 0;
      dropped = true;
    }
    not_finite_ += dropped ? 1 : 0;
  }
  encode();
}

void Backend::update_unfused(int entry, const Job& job) {
  if (job.tensor->n == 0) return;
  const Entry& e = rule_.entries[static_cast<size_t>(entry)];
  with_arrays(entry, job, e.grad, e.writes, [&](auto& engine, auto* data, const auto& numbers) {
    update_arrays(rule_, entry, engine, data, numbers);
  });
}

template <class T>
void Backend::pass_over_arrays(int pass, const Tensor& t, ArrayEngine& engine, T* const* data,
                               const UnfusedNumbers<T>& numbers) {
  Seen<Array<T>> x;
  std::vector<Temporary<T>> spread;
  const auto spread_out = [&](Over over, int value) {
    spread.emplace_back(engine);
    norms_.spread(over, value, t.index, spread.back().get());
    return Array<T>(engine, spread.back().get());
  };
  for (int v = 0; v < rule_.values.tensor; ++v) {
    x.tensor[v] = static_cast<T>(norms_.tensor_value(t.index, v));
  }
  for (int v = 0; t.view.matrix && v < rule_.values.row; ++v) x.row[v] = spread_out(Over::row, v);
  for (int v = 0; t.view.matrix && v < rule_.values.column; ++v) {
    x.column[v] = spread_out(Over::column, v);
  }
  gallop::pass_over_arrays(
      rule_, pass, t.view.matrix, engine, data, numbers, x,
      [&](int q, const T* summands) { norms_.add_up(q, summands, t.index, in_blocks(t.path())); });
}

void Backend::update_norms_unfused(const Job& job) {
  if (job.tensor->n == 0) return;
  for (int pass = 0; job.passes >> pass != 0; ++pass) {
    if (!norms_.wants(job, pass)) continue;
    const Pass& p = rule_.passes[static_cast<size_t>(pass)];
    with_arrays(pass, job, p.grad, p.writes, [&](auto& engine, auto* data, const auto& numbers) {
      pass_over_arrays(pass, *job.tensor, engine, data, numbers);
    });
    if (rule_.adds_up(pass)) {
      norms_.collect(pass, job);
      norms_.between(pass, job);
    }
    if ((rule_.stages >> pass & 1) != 0) matrices_.stage(pass, {&job, 1});
  }
}

}  // namespace gallop::cpu
