// SPDX-License-Identifier: MIT
// States in any format, to and from fp32 on the host.
#include <algorithm>
#include <cmath>

#include "core/quantise.h"
#include "cpu/isa.h"
#include "optimizer/impl.h"

namespace gallop {
namespace {

using cpu::Storage;

const cpu::Codec& codec_of(Storage s) {
  return cpu::toolkits().front()->codecs[static_cast<size_t>(s)];
}

// Calls f(block, first element) for every block.
template <class F>
void for_blocks(const cpu::Codec& codec, void* data, void* scales, int64_t n, F f) {
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t b = first / kBlock;
    f(cpu::Block{static_cast<char*>(data) + b * codec.data_bytes,
                 static_cast<char*>(scales) + b * codec.low_bytes,
                 static_cast<int>(std::min<int64_t>(kBlock, n - first)), 0},
      first);
  }
}

}  // namespace

std::vector<float> decoded(Storage storage, const void* data, const void* scales, int64_t n) {
  const auto size = static_cast<size_t>(n);
  if (storage == Storage::f64) {
    const auto* in = static_cast<const double*>(data);
    return {in, in + size};
  }
  const cpu::Codec& codec = codec_of(storage);
  std::vector<float> out((size + kBlock - 1) / kBlock * kBlock);
  for_blocks(codec, const_cast<void*>(data), const_cast<void*>(scales), n,
             [&](const cpu::Block& block, int64_t first) {
               codec.load(block, &out[static_cast<size_t>(first)]);
             });
  out.resize(size);
  return out;
}

void encode(Storage storage, const std::vector<float>& values, void* data, void* scales) {
  if (storage == Storage::f64) {
    std::copy(values.begin(), values.end(), static_cast<double*>(data));
    return;
  }
  const cpu::Codec& codec = codec_of(storage);
  for_blocks(codec, data, scales, static_cast<int64_t>(values.size()),
             [&](cpu::Block block, int64_t first) {
               float copy[kBlock] = {};
               std::copy_n(&values[static_cast<size_t>(first)], block.n, copy);
               for (float& x : copy) {
                 if (is_quantised(storage) && !std::isfinite(x)) x = 0;
               }
               codec.store(block, copy);
             });
}

}  // namespace gallop
