// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "bench/nvml.h"
#include "bench/products.h"
#include "bench/step_bench.h"
#include "bench/warmup.h"
#include "check/data.h"
#include "cuda/matmul.h"
#include "cuda/memory.h"
#include "cuda/timing.h"
#include "gallop/error.h"
#include "optimizer/rule.h"

namespace gallop::bench {
namespace {

constexpr double kSampleSeconds = 2e-3;
constexpr int kMostInFlight = 200;  // far fewer launches than a stream's queue holds

struct DeviceBytes {
  DeviceBytes(int gpu, size_t bytes) : device(gpu), data(cuda::allocate(gpu, bytes)) {}
  ~DeviceBytes() { cuda::release(device, data); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  int device;
  void* data;
};

// Ordinary numbers, not zeros: a pattern of normal values, again and again.
std::unique_ptr<DeviceBytes> filled(int device, DType type, int64_t n, uint64_t seed,
                                    double scale) {
  const size_t bytes = static_cast<size_t>(n) * size_of(type);
  auto memory = std::make_unique<DeviceBytes>(device, bytes + 16);
  check::Buffer pattern(type, std::min<int64_t>(n, 1 << 20));
  pattern.fill_normal(seed, scale);
  size_t done = static_cast<size_t>(pattern.size()) * size_of(type);
  if (done > 0) cuda::copy_to_device(device, memory->data, pattern.data(), done);
  for (; done < bytes; done *= 2) {  // the rest from what is there
    cuda::copy_to_device(device, static_cast<char*>(memory->data) + done, memory->data,
                         std::min(done, bytes - done));
  }
  return memory;
}

class Runner {
 public:
  Runner(const StepContender& c, const StepBench& b, cuda::Stream& stream)
      : stream_(stream), optimizer_(c.optimizer, step_options(c, 1, b.device)) {
    std::vector<Param> params;
    for (const Shape& s : b.shapes.shapes) {
      const int64_t n = s.elements();
      memory_.push_back(filled(b.device.index, c.formats.param, n, 1, 1.0));
      void* data = memory_.back()->data;
      memory_.push_back(filled(b.device.index, c.formats.grad, n, 2, 0.01 * c.grad_scale));
      params.push_back(
          {s.name, s.dims, data, memory_.back()->data, c.formats.param, c.formats.grad, s.role});
    }
    optimizer_.add_group(std::move(params), group_options(c));
    args_.stream = stream_.handle();
    if (c.grad_scale != 1) {  // from device memory, where a scaler that never waits has it
      const float numbers[] = {static_cast<float>(c.grad_scale), 0};
      memory_.push_back(std::make_unique<DeviceBytes>(b.device.index, sizeof numbers));
      cuda::copy_to_device(b.device.index, memory_.back()->data, numbers, sizeof numbers);
      args_.device_grad_scale = static_cast<const float*>(memory_.back()->data);
      args_.device_found_inf = args_.device_grad_scale + 1;
    }
    step();
    stream_.wait();
    graph_ = std::make_unique<cuda::Graph>(stream_, [this] { step(); });
  }

  const Optimizer& optimizer() const { return optimizer_; }
  cuda::Graph& graph() { return *graph_; }
  void step() { optimizer_.step(args_); }

 private:
  cuda::Stream& stream_;
  std::vector<std::unique_ptr<DeviceBytes>> memory_;
  Optimizer optimizer_;
  StepArgs args_;
  std::unique_ptr<cuda::Graph> graph_;
};

void refuse_emulated() {
  if (!cuda::emulated()) return;
  throw Error(
      ErrorCode::unsupported,
      "this build emulates a GPU for tests, whose times mean nothing; expected one by nvcc");
}

// One large product in the precision that a contender's are in.
class GpuProducts {
 public:
  GpuProducts(const StepContender& c, int device, cuda::Stream& stream)
      : stream_(stream), matmul_(device) {
    const Rule& rule = find_rule(c.optimizer);
    const bool exact = std::any_of(rule.info.states.begin(), rule.info.states.end(),
                                   [](const StateInfo& s) { return s.scratch && s.exact; });
    const bool wide = c.formats.param == DType::f64;
    product_.element = wide ? cuda::Element::f64 : exact ? cuda::Element::f32 : cuda::Element::bf16;
    const DType type = wide ? DType::f64 : exact ? DType::f32 : DType::bf16;
    for (uint64_t i = 0; i < 3; ++i) memory_.push_back(filled(device, type, kSide * kSide, i, 1));
  }
  void run() {
    matmul_.run(product_, 1, memory_[0]->data, memory_[1]->data, 0, memory_[2]->data,
                memory_[2]->data, stream_.handle());
  }
  static double flops() { return 2.0 * kSide * kSide * kSide; }

 private:
  static constexpr int64_t kSide = 8192;
  cuda::Stream& stream_;
  cuda::Matmul matmul_;
  cuda::Product product_{
      kSide, kSide, kSide, false, false, kSide, kSide, kSide, 0, 0, 0, 1, cuda::Element::bf16,
      true};
  std::vector<std::unique_ptr<DeviceBytes>> memory_;
};

// Two arrays, one copied to the other.
struct Copy {
  Copy(int device, size_t size) : bytes(size), from(device, size), to(device, size) {}
  size_t bytes;
  DeviceBytes from, to;
};

}  // namespace

double measure_gpu_copy(int device) {
  refuse_emulated();
  cuda::Stream stream(device);
  const Copy copy(device, size_t{1} << 31);
  std::vector<double> seconds;
  for (int i = 0; i < 12; ++i) {
    const auto run = [&] { stream.copy(copy.to.data, copy.from.data, copy.bytes); };
    seconds.push_back(stream.time(run).device_s);
  }
  return 2e-9 * static_cast<double>(copy.bytes) / median(seconds);
}

std::vector<lab::Row> run_gpu_step_bench(const StepBench& b) {
  refuse_emulated();
  cuda::Stream stream(b.device.index);
  // As much as a step moves, but far more than the cache and not all of the memory.
  const size_t l2 = cuda::l2_bytes(b.device.index);
  const size_t moved = static_cast<size_t>(b.shapes.elements()) * 14;
  Copy copy(b.device.index, std::clamp(moved, 8 * l2, 64 * l2));
  std::vector<std::unique_ptr<Runner>> runners;
  std::vector<Contender> contenders;
  std::vector<double> host(b.contenders.size(), INFINITY);
  // One sample: as many runs as fill it, timed together; cold: one by one, the cache overwritten.
  const auto timed = [&](std::string name, std::function<void()> work, double* host_s) {
    stream.time(work);
    const double once = stream.time(work).device_s;
    const int runs = std::clamp(static_cast<int>(kSampleSeconds / once), 1, kMostInFlight);
    return Contender{std::move(name), [&, work = std::move(work), runs, host_s] {
                       if (b.cold) stream.copy(copy.to.data, copy.from.data, 2 * l2);
                       const int count = b.cold ? 1 : runs;
                       const cuda::Stream::Times t = stream.time([&] {
                         for (int i = 0; i < count; ++i) work();
                       });
                       if (host_s != nullptr) *host_s = std::min(*host_s, t.host_s / count);
                       return t.device_s / count;
                     }};
  };
  for (size_t i = 0; i < b.contenders.size(); ++i) {
    const StepContender& c = b.contenders[i];
    if (c.bare) {
      throw Error(ErrorCode::invalid_argument,
                  "mode bare is for the CPU, expected unfused, single "
                  "or multi on a GPU");
    }
    check_contender(c, b.shapes.shapes.size(), 1, b.device);
    runners.push_back(std::make_unique<Runner>(c, b, stream));
    Runner* r = runners.back().get();
    contenders.push_back(timed(
        c.optimizer, [r] { r->step(); }, &host[i]));
    contenders.push_back(timed(
        c.optimizer + " graph", [r] { r->graph().launch(); }, nullptr));
  }
  contenders.push_back(timed(
      "copy", [&] { stream.copy(copy.to.data, copy.from.data, copy.bytes); }, nullptr));

  const size_t ceilings = contenders.size();
  std::vector<std::unique_ptr<GpuProducts>> products;
  std::vector<double> flops;
  for (const StepContender& c : b.contenders) {
    flops.push_back(product_flops(c, b.shapes));
    if (flops.back() == 0) continue;
    products.push_back(std::make_unique<GpuProducts>(c, b.device.index, stream));
    contenders.push_back(timed(
        "products", [p = products.back().get()] { p->run(); }, nullptr));
  }

  GpuWatch watch(cuda::pci_bus_id(b.device.index));
  const std::vector<Measurement> results = measure(contenders, b.sampler);
  const GpuWatch::Seen seen = watch.end();
  const double ceiling =
      2e-9 * static_cast<double>(copy.bytes) / results[ceilings - 1].summary.median;
  std::vector<lab::Row> rows;
  size_t next = 0;
  for (size_t i = 0; i < runners.size(); ++i) {
    lab::Row row = result_row(b.contenders[i], b, runners[i]->optimizer(), results[2 * i]);
    row.set("graph_ms", results[2 * i + 1].summary.median * 1e3);
    row.set("host_us", host[i] * 1e6).set("launches", runners[i]->graph().nodes());
    row.set("syncs", 0);  // the step was captured, and what waits for the device cannot be
    if (seen.samples > 0) {
      row.set("least_sm_mhz", seen.least_sm_mhz).set("most_sm_mhz", seen.most_sm_mhz);
      row.set("memory_mhz", seen.memory_mhz).set("slowdown", seen.slowdown);
    }
    row.set("ceiling_gb_per_s", ceiling);
    if (flops[i] == 0) {
      row.set("percent_of_ceiling", 100 * std::get<double>(*row.find("gb_per_s")) / ceiling);
    } else {
      row.set("percent_of_ceiling", nullptr);  // products of matrices decide, not memory
      const double rate = GpuProducts::flops() / results[ceilings + next++].summary.median;
      add_products(row, flops[i], results[2 * i].summary.median, rate);
    }
    row.set("samples", results[2 * i].summary.n).set("stopped_by", results[2 * i].stopped_by);
    row.set("spread_percent", 100 * results[2 * i].relative_spread).set("check", "pass");
    add_warmup(b.contenders[i], b.device, row);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace gallop::bench
