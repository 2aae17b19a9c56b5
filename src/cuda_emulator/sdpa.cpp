// SPDX-License-Identifier: MIT
// In place of cuDNN: what src/gpt/cuda/sdpa.cpp does, in double.
#include "gpt/cuda/sdpa.h"

#include <cmath>
#include <vector>

#include "core/convert.h"
#include "cuda/runtime.h"
#include "cuda_emulator/stream.h"

namespace gallop::cuda {
namespace {

struct View {  // of one head of a sequence
  Half* data;
  int64_t stride;
  bool bf16;
  double get(int64_t t, int64_t c) const {
    const Half h = data[t * stride + c];
    return bf16 ? from_bf16(h) : from_f16(h);
  }
  void put(int64_t t, int64_t c, double x) const {
    const float narrow = static_cast<float>(x);
    data[t * stride + c] = bf16 ? to_bf16_nearest(narrow) : to_f16_nearest(narrow);
  }
};

View view(const SdpaShape& s, const void* data, int64_t stride, int64_t batch, int64_t head) {
  return {static_cast<Half*>(const_cast<void*>(data)) + batch * s.time * stride + head * s.width,
          stride, s.bf16};
}

double dot(const SdpaShape& s, const View& a, int64_t i, const View& b, int64_t j) {
  double sum = 0;
  for (int64_t c = 0; c < s.width; ++c) sum += a.get(i, c) * b.get(j, c);
  return sum;
}

int64_t seen(const SdpaShape& s, int64_t i) { return s.causal ? i + 1 : s.time; }

template <class F>
void for_each_head(const SdpaShape& s, F f) {
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) f(b, h);
  }
}

}  // namespace

struct Sdpa::Impl {};

Sdpa::Sdpa(int) : impl_(new Impl) {}
Sdpa::~Sdpa() = default;

bool Sdpa::supports(const SdpaShape& s) { return s.width % 8 == 0 && s.width <= 256; }
size_t Sdpa::workspace_bytes(const SdpaShape&) { return 256; }
std::string Sdpa::describe(const SdpaShape& s) {
  return supports(s) ? "plain loops" : "heads are multiples of 8 wide, up to 256";
}

void Sdpa::forward(const SdpaShape& s, const void* q, const void* k, const void* v, void* o,
                   float* stats, void*, void* stream) {
  const auto work = [=] {
    for_each_head(s, [&](int64_t b, int64_t h) {
      const View vq = view(s, q, s.row_stride_qkv, b, h), vk = view(s, k, s.row_stride_qkv, b, h),
                 vv = view(s, v, s.row_stride_qkv, b, h), vo = view(s, o, s.row_stride_o, b, h);
      for (int64_t i = 0; i < s.time; ++i) {
        std::vector<double> p;
        double sum = 0;
        for (int64_t j = 0; j < seen(s, i); ++j) {
          p.push_back(std::exp(s.scale * dot(s, vq, i, vk, j)));
          sum += p.back();
        }
        for (int64_t c = 0; c < s.width; ++c) {
          double out = 0;
          for (int64_t j = 0; j < seen(s, i); ++j) {
            out += p[static_cast<size_t>(j)] * vv.get(j, c);
          }
          vo.put(i, c, out / sum);
        }
        stats[(b * s.heads + h) * s.time + i] = static_cast<float>(std::log(sum));
      }
    });
  };
  check(emulator::put_on(static_cast<cudaStream_t>(stream), work), "attention");
}

void Sdpa::backward(const SdpaShape& s, const void* q, const void* k, const void* v, const void* o,
                    const void* d_o, const float* stats, void* dq, void* dk, void* dv, void*,
                    void* stream) {
  const auto work = [=] {
    for_each_head(s, [&](int64_t b, int64_t h) {
      const auto of = [&](const void* data) { return view(s, data, s.row_stride_qkv, b, h); };
      const View vq = of(q), vk = of(k), vv = of(v), vo = view(s, o, s.row_stride_o, b, h),
                 go = view(s, d_o, s.row_stride_o, b, h);
      const size_t n = static_cast<size_t>(s.time * s.width);
      std::vector<double> gq(n), gk(n), gv(n);
      for (int64_t i = 0; i < s.time; ++i) {
        const double delta = dot(s, vo, i, go, i);
        for (int64_t j = 0; j < seen(s, i); ++j) {
          const double p = std::exp(s.scale * dot(s, vq, i, vk, j) -
                                    static_cast<double>(stats[(b * s.heads + h) * s.time + i]));
          const double ds = p * (dot(s, go, i, vv, j) - delta) * s.scale;
          for (int64_t c = 0; c < s.width; ++c) {
            const size_t at_i = static_cast<size_t>(i * s.width + c),
                         at_j = static_cast<size_t>(j * s.width + c);
            gv[at_j] += p * go.get(i, c);
            gk[at_j] += ds * vq.get(i, c);
            gq[at_i] += ds * vk.get(j, c);
          }
        }
      }
      for (int64_t t = 0; t < s.time; ++t) {
        for (int64_t c = 0; c < s.width; ++c) {
          const size_t at = static_cast<size_t>(t * s.width + c);
          of(dq).put(t, c, gq[at]);
          of(dk).put(t, c, gk[at]);
          of(dv).put(t, c, gv[at]);
        }
      }
    });
  };
  check(emulator::put_on(static_cast<cudaStream_t>(stream), work), "attention's gradient");
}

}  // namespace gallop::cuda
