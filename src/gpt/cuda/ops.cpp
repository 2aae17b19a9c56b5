// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <vector>

#include "cuda/matmul.h"
#include "cuda/memory.h"
#include "cuda/runtime.h"
#include "cuda/timing.h"
#include "gallop/error.h"
#include "gpt/cuda/attention.h"
#include "gpt/cuda/kernels.h"
#include "gpt/cuda/sizes.h"
#include "gpt/cuda/staging.h"
#include "gpt/ops.h"

namespace gallop::gpt {
namespace cuda {
namespace {

using gallop::cuda::check;
using gallop::cuda::Graph;
using gallop::cuda::Matmul;
using gallop::cuda::Product;
using gallop::cuda::Stream;

void require(const Config& config, int device) {
  gallop::cuda::require_device(device);
  if (config.width > kWidestNorm) {
    throw Error(ErrorCode::unsupported, fmt::format("a width of {} on a GPU, expected at most {}",
                                                    config.width, kWidestNorm));
  }
}

bool aligned(std::initializer_list<const void*> all) {
  for (const void* p : all) {
    if (reinterpret_cast<uintptr_t>(p) % 256 != 0) return false;
  }
  return true;
}

class GpuOps final : public Ops {
 public:
  GpuOps(const Config& config, const GpuOptions& options)
      : config_((require(config, options.device), config)),
        options_(options),
        stream_(options.device, Stream::Priority::high),
        side_(options.device),
        updates_(options.device, Stream::Priority::low),
        staging_(options.device),
        matmul_(options.device),
        attention_(options, matmul_) {
    for (cudaEvent_t* event : {&forked_, &updated_, &done_[0], &done_[1]}) {
      check(cudaEventCreate(event), "making an event");
    }
    if (config.positions == Positions::rope) {
      const std::vector<float> turns = rope_turns<float>(config);
      turns_ =
          static_cast<float*>(gallop::cuda::allocate(options.device, turns.size() * sizeof(float)));
      gallop::cuda::copy_to_device(options.device, turns_, turns.data(),
                                   turns.size() * sizeof(float));
    }
  }

  ~GpuOps() override {
    for (auto& [moment, event] : events_) cudaEventDestroy(event);
    for (auto& [place, event] : of_places_) cudaEventDestroy(event);
    for (cudaEvent_t event : {forked_, updated_, done_[0], done_[1]}) cudaEventDestroy(event);
    if (turns_ != nullptr) gallop::cuda::release(options_.device, turns_);
  }

  // ---- memory ----
  void* allocate(size_t bytes) override {
    return gallop::cuda::allocate(options_.device, std::max<size_t>(bytes, 1));
  }
  void release(void* memory) noexcept override { gallop::cuda::release(options_.device, memory); }
  size_t free_memory() override {
    const gallop::cuda::DeviceScope scope(options_.device);
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "asking for the memory's size");
    return free;
  }
  void upload(void* to, const void* from, size_t bytes) override {
    staging_.upload(to, from, bytes, on());
  }
  void download(void* to, const void* from, size_t bytes) override {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, on()), "reading from the GPU");
    stream_.wait();
  }
  void zero(Tensor t) override {
    check(cudaMemsetAsync(t.data, 0, t.bytes(), on()), "writing zeros");
  }

  // ---- time ----
  // Kernel by kernel the first time: libraries choose their ways then, and some rules begin.
  void run(int program, const std::function<void()>& work) override {
    auto [at, first] = graphs_.try_emplace(program);
    used_aside_ = false;
    if (first || !options_.graphs) return work();
    if (!at->second) {
      capturing_ = true;
      at->second = std::make_unique<Graph>(stream_, work);
      capturing_ = false;
    }
    at->second->launch();
  }
  void mark(int moment) override {
    auto [at, first] = events_.try_emplace(moment);
    if (first) check(cudaEventCreate(&at->second), "making an event");
    check(capturing_ ? cudaEventRecordWithFlags(at->second, on(), cudaEventRecordExternal)
                     : cudaEventRecord(at->second, on()),
          "timing");
  }
  double between(int first, int last) override {
    check(cudaEventSynchronize(events_.at(last)), "waiting for the device");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, events_.at(first), events_.at(last)), "timing");
    return ms * 1e-3;
  }
  void* stream() override { return now_->handle(); }
  void aside(const std::function<void()>& work) override {
    if (!options_.graphs) return work();
    check(cudaEventRecord(forked_, on()), "going on beside");
    now_ = &side_;
    check(cudaStreamWaitEvent(on(), forked_, 0), "going on beside");
    work();
    now_ = &stream_;
    used_aside_ = true;
  }
  void* begin_update() override {
    const auto stream = static_cast<cudaStream_t>(updates_.handle());
    check(cudaEventRecord(forked_, on()), "updating");
    check(cudaStreamWaitEvent(stream, forked_, 0), "updating");
    if (used_aside_) {
      check(cudaEventRecord(forked_, static_cast<cudaStream_t>(side_.handle())), "updating");
      check(cudaStreamWaitEvent(stream, forked_, 0), "updating");
    }
    return stream;
  }
  void end_updates() override {
    check(cudaEventRecord(updated_, static_cast<cudaStream_t>(updates_.handle())), "updating");
    check(cudaStreamWaitEvent(on(), updated_, 0), "updating");
  }
  void mark_updates(int place) override {
    check(cudaEventRecord(event_of(place), static_cast<cudaStream_t>(updates_.handle())),
          "updating");
  }
  // Gradients are made aside, where there is such a thing.
  void wait_updates(int place) override {
    const Stream& writes = options_.graphs ? side_ : stream_;
    check(cudaStreamWaitEvent(static_cast<cudaStream_t>(writes.handle()), event_of(place), 0),
          "updating");
  }
  std::string algorithms() override { return matmul_.choices(); }
  void set_algorithms(const std::string& line) override {
    if (!line.empty()) matmul_.choose(line);
  }
  bool has_aside() override { return options_.graphs; }
  void mark_aside(int slot) override {
    if (!used_aside_) return;
    check(cudaEventRecord(done_[slot], static_cast<cudaStream_t>(side_.handle())),
          "going on beside");
  }
  void wait_aside(int slot) override {
    if (used_aside_) check(cudaStreamWaitEvent(on(), done_[slot], 0), "going on beside");
  }

  // ---- layers ----
  void embed(const Tokens& tokens, Tensor wte, Tensor wpe, Tensor x) override {
    cuda::embed(tokens, wte, wpe, x, stream());
  }
  void embed_backward(const Tokens& tokens, Tensor dx, Tensor dwte, bool add_wte, Tensor dwpe,
                      bool add) override {
    cuda::embed_backward(tokens, dx, dwte, add_wte, dwpe, add, stream());
  }
  void norm(Tensor x, Tensor weight, Tensor bias, Tensor y, Tensor stats) override {
    cuda::norm(x, weight, bias, y, stats, rms(), static_cast<float>(config_.epsilon), stream());
  }
  void norm_backward(const NormBackward& n) override {
    cuda::norm_backward(n, rms(), stream());
    aside([&] { norm_weights(n, stream()); });
  }
  Extent norm_scratch(int64_t rows, int64_t width) override {
    return cuda::norm_scratch(rows, width);
  }

  // Row-major matrices are the transposes of what cuBLASLt sees: y^T = weight x^T.
  void linear(Tensor x, Tensor weight, Tensor bias, Tensor plus, Tensor y) override {
    Product p = product(y.columns, y.rows, x.columns, x, weight, y);
    p.transpose_a = true;
    p.ld_a = weight.columns, p.ld_b = x.columns, p.ld_c = y.columns;
    p.bias = static_cast<bool>(bias);
    matmul_.run(p, 1, weight.data, x.data, plus ? 1 : 0, plus ? plus.data : y.data, y.data,
                stream(), bias.data);
  }
  void linear_backward_x(Tensor dy, Tensor weight, Tensor dx) override {
    Product p = product(dx.columns, dx.rows, dy.columns, dy, weight, dx);
    p.ld_a = weight.columns, p.ld_b = dy.columns, p.ld_c = dx.columns;
    matmul_.run(p, 1, weight.data, dy.data, 0, dx.data, dx.data, stream());
  }
  void linear_backward_weight(Tensor dy, Tensor x, Tensor dweight, Tensor dbias,
                              bool add) override {
    Product p = product(dweight.columns, dweight.rows, dy.rows, dy, x, dweight);
    p.transpose_b = true;
    p.ld_a = x.columns, p.ld_b = dy.columns, p.ld_c = dweight.columns;
    matmul_.run(p, 1, x.data, dy.data, add ? 1 : 0, dweight.data, dweight.data, stream());
    if (dbias) column_sums(dy, dbias, add, stream());
  }

  void add(Tensor x, Tensor y, Tensor sum) override { cuda::add(x, y, sum, stream()); }
  void rope(Tensor qkv, const AttentionShape& s, bool back) override {
    cuda::rope(qkv, turns_, s.time, s.heads, s.width, back, stream());
  }
  void attention(Attention how, const AttentionShape& s, Tensor qkv, Tensor out, Tensor saved,
                 Tensor scratch) override {
    attention_.forward(how, s, qkv, out, saved, scratch, stream());
  }
  void attention_backward(Attention how, const AttentionShape& s, Tensor qkv, Tensor out,
                          Tensor saved, Tensor dout, Tensor dqkv, Tensor scratch) override {
    attention_.backward(how, s, qkv, out, saved, dout, dqkv, scratch, stream());
  }
  Extent attention_saved(Attention how, const AttentionShape& s, DType type) override {
    return attention_.saved(how, s, type);
  }
  Extent attention_scratch(Attention how, const AttentionShape& s, DType type, bool back) override {
    return attention_.scratch(how, s, type, back);
  }
  void activation(Tensor f, Tensor h) override { cuda::activation(f, h, swiglu(), stream()); }
  void activation_backward(Tensor f, Tensor dh, Tensor h) override {
    cuda::activation_backward(f, dh, h, swiglu(), stream());
  }
  int64_t logits_columns(int64_t vocabulary) override { return cuda::logits_columns(vocabulary); }
  void cross_entropy(const Tokens& tokens, int64_t first, Tensor logits, int64_t vocabulary,
                     Tensor losses, bool gradient, const LossScale* scale) override {
    cuda::cross_entropy(tokens, first, logits, vocabulary, losses, gradient, scale, stream());
  }
  void find_hits(const Tokens& tokens, int64_t first, Tensor logits, int64_t vocabulary,
                 Tensor hits) override {
    cuda::find_hits(tokens, first, logits, vocabulary, hits, stream());
  }
  void mean(const Tokens& tokens, Tensor values, Tensor mean) override {
    cuda::mean(tokens, values, mean, stream());
  }
  void advance(LossScale* scale, const int64_t* skipped) override {
    cuda::advance(scale, skipped, stream());
  }

 private:
  cudaStream_t on() const { return static_cast<cudaStream_t>(now_->handle()); }
  cudaEvent_t event_of(int place) {
    auto [at, first] = of_places_.try_emplace(place);
    if (first) check(cudaEventCreate(&at->second), "making an event");
    return at->second;
  }
  bool rms() const { return config_.norm == Norm::rms; }
  bool swiglu() const { return config_.activation == Activation::swiglu; }

  Product product(int64_t m, int64_t n, int64_t k, Tensor left, Tensor right, Tensor out) const {
    Product p{};
    p.m = m, p.n = n, p.k = k;
    p.count = 1;
    p.element = element_of(left.type, options_.tf32);
    p.wide = out.type == DType::f32 && left.type != DType::f32;
    p.aligned = aligned({left.data, right.data, out.data});
    return p;
  }

  Config config_;
  GpuOptions options_;
  Stream stream_, side_, updates_;
  Stream* now_ = &stream_;  // where work goes
  cudaEvent_t forked_ = nullptr, updated_ = nullptr, done_[2] = {};
  bool used_aside_ = false;
  Staging staging_;
  Matmul matmul_;
  AttentionOnGpu attention_;
  float* turns_ = nullptr;
  std::map<int, std::unique_ptr<Graph>> graphs_;
  std::map<int, cudaEvent_t> events_, of_places_;
  bool capturing_ = false;
};

}  // namespace
}  // namespace cuda

std::unique_ptr<Ops> gpu_ops(const Config& config, const GpuOptions& options) {
  return std::make_unique<cuda::GpuOps>(config, options);
}

}  // namespace gallop::gpt
