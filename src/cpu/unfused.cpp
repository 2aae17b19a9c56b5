// SPDX-License-Identifier: MIT
// Mode unfused: decode everything into arrays, apply the rule operator by operator, encode again.
#include <cmath>
#include <memory>

#include "cpu/array.h"
#include "cpu/backend.h"

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

struct Field {
  void* data;
  void* low;
  const Codec* codec;
  Bits64 key;

  Block at(Index b, Index n) const {
    const Index first = b * kBlock;
    return {static_cast<char*>(data) + first * codec->data_bytes,
            low == nullptr ? nullptr : static_cast<char*>(low) + first * codec->low_bytes,
            static_cast<int>(std::min<Index>(kBlock, n - first)),
            block_key(key, static_cast<Bits64>(b))};
  }
  Buffer decode(Index n, int threads) const {
    // Codecs write whole blocks, so the last one needs room.
    Buffer out(new float[static_cast<size_t>((n + kBlock - 1) / kBlock * kBlock)]);
    for_blocks(n, threads, [&](Index b) { codec->load(at(b, n), out.get() + b * kBlock); });
    return out;
  }
  void encode(const float* values, Index n, int threads) const {
    for_blocks(n, threads, [&](Index b) { codec->store(at(b, n), values + b * kBlock); });
  }
};

template <class T>
Array<T> prepared(Array<T> g, const KernelArgs& a) {
  const T scale = static_cast<T>(a.grad_scale), limit = static_cast<T>(a.grad_limit),
          factor = static_cast<T>(a.grad_factor);
  if (scale != 1) g = g * Array<T>(scale);
  if (std::isfinite(limit)) g = max(min(g, Array<T>(limit)), Array<T>(-limit));
  if (factor != 1) g = g * Array<T>(factor);
  return g;
}

template <class T>
void apply_rule(const Rule& rule, int entry, Array<T>* p_g_states, const double* coef) {
  if constexpr (sizeof(T) == 8) {
    rule.unfused_f64(entry, p_g_states, coef);
  } else {
    rule.unfused_f32(entry, p_g_states, coef);
  }
}

// data[0] is the parameter, data[1] the gradient or null, data[2 + j] state j or null. What the
// entry writes is left in data.
template <class T>
void update_arrays(const Rule& rule, int entry, ArrayEngine& engine, T** data,
                   const KernelArgs& a) {
  Array<T> arrays[2 + detail::kMaxStates];
  for (int i = 0; i < 2 + detail::kMaxStates; ++i) {
    if (data[i] != nullptr) arrays[i] = Array<T>(engine, data[i]);
  }
  if (data[1] != nullptr) arrays[1] = prepared(arrays[1], a);
  apply_rule(rule, entry, arrays, a.coef);
  const unsigned writes = rule.entries[static_cast<size_t>(entry)].writes;
  if (writes & kWritesParam) arrays[0].copy_to(engine, data[0]);
  for (int j = 0; j < detail::kMaxStates; ++j) {
    if (data[2 + j] != nullptr && (writes >> j & 1)) arrays[2 + j].copy_to(engine, data[2 + j]);
  }
}

}  // namespace

void Backend::update_unfused(int entry, const Job& job) {
  const Tensor& t = *job.tensor;
  if (t.n == 0) return;
  const KernelArgs a = arguments(entry, job, 0, (t.n + kBlock - 1) / kBlock);
  const Entry& e = rule_.entries[static_cast<size_t>(entry)];
  const auto kept = [&](int j) { return (t.present >> j & 1) != 0; };
  const auto written = [&](int j) { return kept(j) && (e.writes >> j & 1) != 0; };
  if (t.param_storage == Storage::f64) {
    ArrayEngine engine(tools_.array_f64, t.n, 8, useful_threads(t.n), scratch_);
    double* data[2 + detail::kMaxStates] = {static_cast<double*>(t.param),
                                            e.grad ? static_cast<double*>(t.grad) : nullptr};
    for (int j = 0; j < detail::kMaxStates; ++j) data[2 + j] = static_cast<double*>(t.state[j]);
    return update_arrays(rule_, entry, engine, data, a);
  }

  ArrayEngine engine(tools_.array_f32, t.n, 4, useful_threads(t.n), scratch_);
  Field fields[2 + detail::kMaxStates] = {{t.param, t.low, a.param_codec, a.param_key},
                                          {e.grad ? t.grad : nullptr, nullptr, a.grad_codec, 0}};
  for (int j = 0; j < detail::kMaxStates; ++j) {
    fields[2 + j] = {kept(j) ? t.state[j] : nullptr, nullptr, a.state_codec[j], a.state_key[j]};
  }
  Buffer buffers[2 + detail::kMaxStates];
  float* data[2 + detail::kMaxStates] = {};
  const Codec* plain = &tools_.codecs[static_cast<size_t>(Storage::f32)];
  for (int i = 0; i < 2 + detail::kMaxStates; ++i) {
    if (fields[i].data == nullptr) continue;
    if (fields[i].codec != plain) buffers[i] = fields[i].decode(t.n, threads_);
    data[i] = buffers[i] ? buffers[i].get() : static_cast<float*>(fields[i].data);
  }
  update_arrays(rule_, entry, engine, data, a);
  if (buffers[0] && (e.writes & kWritesParam)) fields[0].encode(data[0], t.n, threads_);
  for (int j = 0; j < detail::kMaxStates; ++j) {
    if (buffers[2 + j] && written(j)) fields[2 + j].encode(data[2 + j], t.n, threads_);
  }
}

}  // namespace gallop::cpu
