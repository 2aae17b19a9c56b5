// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <string>
#include <type_traits>
#include <vector>

#include "blas/blas.h"
#include "core/pages.h"
#include "cpu/isa.h"
#include "cpu/thread_pool.h"
#include "gallop/error.h"
#include "gpt/cpu/attention.h"
#include "gpt/cpu/bf16_products.h"
#include "gpt/cpu/products.h"
#include "gpt/ops.h"
#include "isa_list.gen.h"

namespace gallop::gpt {
namespace cpu {

#define GALLOP_DECLARE(isa) extern const Kernels<float> kernels_gpt_##isa;
GALLOP_FOREACH_ISA(GALLOP_DECLARE)
#undef GALLOP_DECLARE
extern const Kernels<double> kernels_gpt_double;

template <>
const Kernels<float>& kernels<float>() {
  static const Kernels<float>* const all[] = {
#define GALLOP_ADDRESS(isa) &kernels_gpt_##isa,
      GALLOP_FOREACH_ISA(GALLOP_ADDRESS)
#undef GALLOP_ADDRESS
  };
  return *all[gallop::cpu::choose_isa()];
}

template <>
const Kernels<double>& kernels<double>() {
  return kernels_gpt_double;
}

namespace {

constexpr int64_t kWorthAThread = 8192;  // elements

// The first of equal ones.
template <class T>
bool is_largest(const T* logits, int64_t width, int64_t at) {
  const T mine = logits[at];
  if (std::isnan(mine)) return false;
  return std::none_of(logits, logits + at, [=](T x) { return x >= mine; }) &&
         std::none_of(logits + at + 1, logits + width, [=](T x) { return x > mine; });
}

template <class T>
class CpuOps final : public Ops {
 public:
  CpuOps(const Config& config, int threads, bool bf16)
      : config_(config),
        bf16_(bf16),
        rms_(config.norm == Norm::rms),
        threads_(threads > 0 ? threads : gallop::cpu::default_threads()),
        kernels_(kernels<T>()),
        attention_{kernels_, threads_} {
    if (config.positions == Positions::rope) turns_ = rope_turns<T>(config);
  }

  // ---- memory ----
  void* allocate(size_t bytes) override {
    const detail::Pages pages = detail::map_pages(std::max<size_t>(bytes, 1));
    if (pages.data == nullptr) {
      throw Error(ErrorCode::out_of_memory,
                  fmt::format("{} bytes of memory were not to be had", bytes));
    }
    pages_.push_back(pages);
    return pages.data;
  }
  void release(void* memory) noexcept override {
    const auto at = std::find_if(pages_.begin(), pages_.end(),
                                 [&](const detail::Pages& p) { return p.data == memory; });
    if (at == pages_.end()) return;
    detail::unmap(*at);
    pages_.erase(at);
  }
  // What the system can give without taking it from others, or all where it does not say.
  size_t free_memory() override {
    std::ifstream file("/proc/meminfo");
    std::string name;
    for (size_t kib = 0; file >> name >> kib; file.ignore(256, '\n')) {
      if (name == "MemAvailable:") return kib << 10;
    }
    return SIZE_MAX;
  }
  void upload(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void download(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void zero(Tensor t) override { std::memset(t.data, 0, t.bytes()); }

  // ---- time ----
  void run(int, const std::function<void()>& work) override { work(); }
  void mark(int moment) override {
    if (moments_.size() <= static_cast<size_t>(moment)) {
      moments_.resize(static_cast<size_t>(moment) + 1);
    }
    moments_[static_cast<size_t>(moment)] = Clock::now();
  }
  double between(int first, int last) override {
    return std::chrono::duration<double>(moments_.at(static_cast<size_t>(last)) -
                                         moments_.at(static_cast<size_t>(first)))
        .count();
  }
  void* stream() override { return nullptr; }
  void aside(const std::function<void()>& work) override { work(); }
  bool has_aside() override { return false; }
  void mark_aside(int) override {}
  void wait_aside(int) override {}
  void* begin_update() override { return nullptr; }
  void end_updates() override {}
  void mark_updates(int) override {}
  void wait_updates(int) override {}
  std::string algorithms() override { return {}; }
  void set_algorithms(const std::string&) override {}

  // ---- layers ----
  void embed(const Tokens& on, Tensor wte, Tensor wpe, Tensor x) override {
    const int64_t width = x.columns;
    over_rows(x.rows, width, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        const T* token = wte.as<T>() + on.inputs[r] * width;
        T* to = x.as<T>() + r * width;
        if (wpe) {
          kernels_.add(token, wpe.as<T>() + r % on.time * width, to, width);
        } else {
          std::copy(token, token + width, to);
        }
      }
    });
  }

  void embed_backward(const Tokens& on, Tensor dx, Tensor dwte, bool add_wte, Tensor dwpe,
                      bool add) override {
    const int64_t width = dx.columns;
    if (!add_wte) {
      over_rows(dwte.rows, width, [&](int64_t first, int64_t last) {
        std::fill(dwte.as<T>() + first * width, dwte.as<T>() + last * width, T(0));
      });
    }
    over_rows(on.counts[0], width * 8, [&](int64_t first, int64_t last) {
      for (int64_t k = first; k < last; ++k) {
        T* to = dwte.as<T>() + on.distinct[k] * width;
        for (int32_t i = on.starts[k]; i < on.starts[k + 1]; ++i) {
          kernels_.add(to, dx.as<T>() + on.order[i] * width, to, width);
        }
      }
    });
    if (!dwpe) return;
    over_rows(dwpe.rows, width * on.batch, [&](int64_t first, int64_t last) {
      for (int64_t t = first; t < last; ++t) {
        T* to = dwpe.as<T>() + t * width;
        if (!add) std::fill(to, to + width, T(0));
        for (int64_t b = 0; b < on.batch && t < on.time; ++b) {
          kernels_.add(to, dx.as<T>() + (b * on.time + t) * width, to, width);
        }
      }
    });
  }

  void norm(Tensor x, Tensor weight, Tensor bias, Tensor y, Tensor stats) override {
    const int64_t width = x.columns;
    over_rows(x.rows, width, [&](int64_t first, int64_t last) {
      kernels_.norm(x.as<T>() + first * width, weight.as<T>(), bias.as<T>(),
                    y.as<T>() + first * width, stats.as<T>() + 2 * first, last - first, width, rms_,
                    static_cast<T>(config_.epsilon));
    });
  }

  void norm_backward(const NormBackward& n) override {
    const int64_t width = n.x.columns;
    over_columns(n.x.rows, width, [&](int64_t first, int64_t last) {  // before y takes dy's place
      kernels_.norm_weights(n.x.as<T>(), n.stats.as<T>(), n.dy.as<T>(), n.dweight.as<T>(),
                            n.dbias.as<T>(), n.x.rows, width, first, last, rms_, n.add);
    });
    over_rows(n.x.rows, width, [&](int64_t first, int64_t last) {
      const int64_t at = first * width;
      kernels_.norm_backward(n.x.as<T>() + at, n.stats.as<T>() + 2 * first, n.weight.as<T>(),
                             n.bias.as<T>(), n.dy.as<T>() + at,
                             n.plus ? n.plus.as<T>() + at : nullptr, n.dx.as<T>() + at,
                             n.y ? n.y.as<T>() + at : nullptr, last - first, width, rms_);
    });
  }
  Extent norm_scratch(int64_t, int64_t) override { return {}; }

  void linear(Tensor x, Tensor weight, Tensor bias, Tensor plus, Tensor y) override {
    if (plus || bias) {
      over_rows(y.rows, y.columns, [&](int64_t first, int64_t last) {
        T* to = y.as<T>() + first * y.columns;
        const int64_t n = (last - first) * y.columns;
        if (plus) {
          std::copy(plus.as<T>() + first * y.columns, plus.as<T>() + first * y.columns + n, to);
        } else {
          std::fill(to, to + n, T(0));
        }
        if (bias) kernels_.add_rows(bias.as<T>(), to, last - first, y.columns);
      });
    }
    multiply(y.rows, y.columns, x.columns, {x.as<T>(), x.columns},
             {weight.as<T>(), weight.columns, true}, plus || bias ? T(1) : T(0), y.as<T>(),
             y.columns);
  }
  void linear_backward_x(Tensor dy, Tensor weight, Tensor dx) override {
    multiply(dx.rows, dx.columns, dy.columns, {dy.as<T>(), dy.columns},
             {weight.as<T>(), weight.columns}, T(0), dx.as<T>(), dx.columns);
  }
  void linear_backward_weight(Tensor dy, Tensor x, Tensor dweight, Tensor dbias,
                              bool add) override {
    multiply(dweight.rows, dweight.columns, dy.rows, {dy.as<T>(), dy.columns, true},
             {x.as<T>(), x.columns}, add ? T(1) : T(0), dweight.as<T>(), dweight.columns);
    if (!dbias) return;
    over_columns(dy.rows, dy.columns, [&](int64_t first, int64_t last) {
      kernels_.column_sums(dy.as<T>(), dbias.as<T>(), dy.rows, dy.columns, first, last, add);
    });
  }

  void add(Tensor x, Tensor y, Tensor sum) override {
    over_rows(x.rows, x.columns, [&](int64_t first, int64_t last) {
      const int64_t at = first * x.columns;
      kernels_.add(x.as<T>() + at, y.as<T>() + at, sum.as<T>() + at, (last - first) * x.columns);
    });
  }

  void rope(Tensor qkv, const AttentionShape& s, bool back) override {
    over_rows(qkv.rows, qkv.columns, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {  // queries and keys lie side by side
        kernels_.turn(qkv.as<T>() + r * qkv.columns, turns_.data() + r % s.time * s.width,
                      2 * s.heads, s.width, back ? T(-1) : T(1));
      }
    });
  }

  void attention(Attention how, const AttentionShape& s, Tensor qkv, Tensor out, Tensor saved,
                 Tensor scratch) override {
    attention_.forward(how, s, qkv, out, saved, scratch);
  }
  void attention_backward(Attention how, const AttentionShape& s, Tensor qkv, Tensor out,
                          Tensor saved, Tensor dout, Tensor dqkv, Tensor scratch) override {
    attention_.backward(how, s, qkv, out, saved, dout, dqkv, scratch);
  }
  Extent attention_saved(Attention how, const AttentionShape& s, DType) override {
    return attention_.saved(how, s);
  }
  Extent attention_scratch(Attention how, const AttentionShape& s, DType, bool back) override {
    return attention_.scratch(how, s, back);
  }

  void activation(Tensor f, Tensor h) override {
    over_rows(h.rows, f.columns * 4, [&](int64_t first, int64_t last) {
      const T* from = f.as<T>() + first * f.columns;
      T* to = h.as<T>() + first * h.columns;
      if (config_.activation == Activation::swiglu) {
        kernels_.swiglu(from, to, last - first, h.columns);
      } else {
        kernels_.gelu(from, to, (last - first) * h.columns);
      }
    });
  }
  void activation_backward(Tensor f, Tensor dh, Tensor h) override {
    over_rows(h.rows, f.columns * 4, [&](int64_t first, int64_t last) {
      T* from = f.as<T>() + first * f.columns;
      const T* d = dh.as<T>() + first * h.columns;
      T* to = h.as<T>() + first * h.columns;
      if (config_.activation == Activation::swiglu) {
        kernels_.swiglu_backward(from, d, to, last - first, h.columns);
      } else {
        kernels_.gelu_backward(from, d, to, (last - first) * h.columns);
      }
    });
  }

  int64_t logits_columns(int64_t vocabulary) override { return vocabulary; }
  void cross_entropy(const Tokens& on, int64_t start, Tensor logits, int64_t width, Tensor losses,
                     bool gradient, const LossScale* scale) override {
    const T factor = static_cast<T>(scale != nullptr ? scale->scale : 1.0f) /
                     static_cast<T>(std::max(on.counts[1], 1));
    over_rows(logits.rows, width * 4, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        T* row = logits.as<T>() + r * width;
        const int32_t target = on.targets[start + r];
        if (target < 0) {
          if (gradient) std::fill(row, row + width, T(0));
          losses.as<T>()[r] = 0;
        } else {
          losses.as<T>()[r] = kernels_.cross_entropy(row, width, target, factor, gradient);
        }
      }
    });
  }
  void find_hits(const Tokens& on, int64_t start, Tensor logits, int64_t width,
                 Tensor hits) override {
    over_rows(logits.rows, width, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        const int32_t target = on.targets[start + r];
        hits.as<T>()[r] =
            target >= 0 && is_largest(logits.as<T>() + r * width, width, target) ? T(1) : T(0);
      }
    });
  }
  void mean(const Tokens& on, Tensor values, Tensor mean) override {
    double sum = 0;
    for (int64_t r = 0; r < values.rows; ++r) sum += static_cast<double>(values.as<T>()[r]);
    mean.as<T>()[0] = static_cast<T>(sum / std::max(on.counts[1], 1));
  }
  void advance(LossScale* scale, const int64_t* skipped) override { scale->advance(*skipped); }

 private:
  using Clock = std::chrono::steady_clock;

  // Few rows are not worth what rounding and packing the other factor takes.
  void multiply(int64_t m, int64_t n, int64_t k, blas::Factor<T> a, blas::Factor<T> b, T beta, T* c,
                int64_t stride) const {
    constexpr int64_t kWorthRounding = 16;
    if constexpr (std::is_same_v<T, float>) {
      if (bf16_ && m >= kWorthRounding) {
        return product_bf16(threads_, m, n, k, a, b, beta, c, stride);
      }
    }
    product<T>(threads_, m, n, k, a, b, beta, c, stride);
  }

  // f(first, last) over all rows, one share a thread; cost: of a row, in elements.
  template <class F>
  void over_rows(int64_t rows, int64_t cost, F f) const {
    const int64_t worth = std::max<int64_t>(1, rows * cost / kWorthAThread);
    auto work = [&](int i, int n) {
      const int64_t first = rows * i / n, last = rows * (i + 1) / n;
      if (first < last) f(first, last);
    };
    gallop::cpu::ThreadPool::instance().run(
        static_cast<int>(std::min<int64_t>({threads_, worth, std::max<int64_t>(rows, 1)})), work);
  }
  template <class F>
  void over_columns(int64_t rows, int64_t columns, F f) const {
    constexpr int64_t kStrip = 64;  // as the kernels take them
    over_rows((columns + kStrip - 1) / kStrip, rows * kStrip, [&](int64_t first, int64_t last) {
      f(first * kStrip, std::min(last * kStrip, columns));
    });
  }

  Config config_;
  bool bf16_;
  bool rms_;
  int threads_;
  const Kernels<T>& kernels_;
  AttentionOn<T> attention_;
  std::vector<T> turns_;  // [context, width of a head]: cos, sin of each pair
  std::vector<detail::Pages> pages_;
  std::vector<Clock::time_point> moments_;
  blas::OneThreadEach serial_;
};

}  // namespace
}  // namespace cpu

template <class T>
std::unique_ptr<Ops> cpu_ops(const Config& config, int threads, bool bf16) {
  return std::make_unique<cpu::CpuOps<T>>(config, threads, bf16);
}
template std::unique_ptr<Ops> cpu_ops<float>(const Config&, int, bool);
template std::unique_ptr<Ops> cpu_ops<double>(const Config&, int, bool);

bool cpu_has_bf16() { return cpu::has_bf16_products(); }

}  // namespace gallop::gpt
