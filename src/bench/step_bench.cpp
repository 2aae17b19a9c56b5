// SPDX-License-Identifier: MIT
#include "bench/step_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "bench/ceiling.h"
#include "bench/machine.h"
#include "bench/products.h"
#include "bench/warmup.h"
#include "check/data.h"
#include "check/reachable.h"
#include "check/reference.h"
#include "cpu/isa.h"
#include "cpu/thread_pool.h"
#include "gallop/error.h"

namespace gallop::bench {
namespace {

constexpr double kSampleSeconds = 1e-3;

// One contender with memory of its own.
class Runner {
 public:
  Runner(const StepContender& c, const ShapeList& list, int threads)
      : optimizer_(c.optimizer, step_options(c, threads, {})), grad_scale_(c.grad_scale) {
    std::vector<Param> params;
    const size_t width = size_of(c.formats.param), grad_width = size_of(c.formats.grad);
    for (const Shape& s : list.shapes) {
      const int64_t n = s.elements();
      const auto floats = [&](size_t w) { return (n * static_cast<int64_t>(w) + 67) / 4 + 16; };
      memory_.push_back(touched_floats(floats(width), threads, 0.0f));
      void* data = memory_.back().get();
      memory_.push_back(touched_floats(floats(grad_width), threads, 0.0f));
      void* grad = memory_.back().get();
      fill(data, c.formats.param, n, 1, 1.0);
      fill(grad, c.formats.grad, n, 2, 0.01 * c.grad_scale);
      params.push_back({s.name, s.dims, data, grad, c.formats.param, c.formats.grad, s.role});
    }
    optimizer_.add_group(std::move(params), group_options(c));
  }

  const Optimizer& optimizer() const { return optimizer_; }
  void run(int iterations) {
    for (int i = 0; i < iterations; ++i) optimizer_.step({.grad_scale = grad_scale_});
  }
  // The same memory, without the optimizer around the kernel.
  void run_bare(int iterations) const {
    const Rule& rule = find_rule(optimizer_.rule().name);
    std::vector<double> hyper;
    for (const KnobInfo& k : rule.info.knobs) hyper.push_back(k.value);
    std::vector<double> scalars = rule.scalars;
    double coef[detail::kMaxCoefs];
    rule.coef(hyper.data(), {100, false, 1}, scalars.data(), coef);
    const unsigned present = rule.present_states(hyper.data());
    const cpu::Kernel kernel =
        rule.cpu_kernel(rule.cpu_kernels(cpu::choose_isa()), 0, present, cpu::Path::f32);
    for (int i = 0; i < iterations; ++i) {
      for (size_t t = 0; t < optimizer_.size(); ++t) {
        const Param& p = optimizer_.param(t);
        cpu::KernelArgs a{};
        a.param = p.data;
        a.grad = p.grad;
        const auto views = optimizer_.states(t);
        for (size_t j = 0, v = 0; j < rule.info.states.size(); ++j) {
          if (present >> j & 1) a.state[j] = views[v++].data;
        }
        a.n = 1;
        for (int64_t d : p.shape) a.n *= d;
        a.coef = coef;
        a.grad_scale = a.grad_factor = 1;
        a.grad_limit = kInfinity;
        kernel(a);
      }
    }
  }

 private:
  // A repeating pattern of normal values: the arithmetic must meet ordinary numbers, not zeros.
  static void fill(void* data, DType type, int64_t n, uint64_t seed, double scale) {
    const int64_t period = std::min<int64_t>(n, 65521);
    check::Buffer pattern(type, period);
    pattern.fill_normal(seed, scale);
    const size_t width = size_of(type);
    for (int64_t at = 0; at < n; at += period) {
      std::memcpy(static_cast<char*>(data) + static_cast<size_t>(at) * width, pattern.data(),
                  static_cast<size_t>(std::min(period, n - at)) * width);
    }
  }

  std::vector<std::shared_ptr<float[]>> memory_;
  Optimizer optimizer_;
  double grad_scale_;
};

// Steps taken untimed before each sample: other contenders ran in between, and what fits the
// last-level cache must be found there as in a loop of steps. What does not needs none.
int warm_steps(const ShapeList& list) {
  const int64_t footprint = 16 * list.elements();
  return footprint < 2 * describe_machine().l3_bytes ? 3 : 0;
}

Contender timed(std::string name, int warm, std::function<void(int)> run) {
  const int iterations = std::max(calibrate_iterations(run, kSampleSeconds), warm);
  return {std::move(name), [run = std::move(run), iterations, warm] {
            if (warm > 0) run(warm);
            return Batch{run, iterations}();
          }};
}

}  // namespace

GroupOptions group_options(const StepContender& c) {
  GroupOptions g;
  g.hyper = c.hyper;
  g.rounding = c.formats.rounding;
  g.state = c.state;
  g.state_rounding = c.formats.state_rounding;
  return g;
}

std::vector<double> knob_values(const StepContender& c) {
  const RuleInfo& info = find_rule(c.optimizer).info;
  std::vector<double> values;
  for (const KnobInfo& k : info.knobs) values.push_back(k.value);
  for (const auto& [name, value] : c.hyper) {
    if (const int knob = info.knob(name); knob >= 0) values[static_cast<size_t>(knob)] = value;
  }
  return values;
}

Options step_options(const StepContender& c, int threads, Device device) {
  Options o;
  o.device = device;
  o.mode = c.mode;
  o.fold_hyper = c.fold_hyper;
  o.threads = threads;
  o.clip_norm = c.clip_norm;
  o.zero_grad = c.zero_grad;
  return o;
}

lab::Row result_row(const StepContender& c, const StepBench& bench, const Optimizer& o,
                    const Measurement& m) {
  const auto elements = static_cast<double>(bench.shapes.elements());
  lab::Row row;
  row.set("optimizer", c.optimizer).set("mode", c.mode_name());
  row.set("shapes", bench.shapes.label).set("tensors", bench.shapes.shapes.size());
  row.set("elements", bench.shapes.elements());
  row.set("param", to_string(c.formats.param)).set("grad", to_string(c.formats.grad));
  row.set("rounding", to_string(c.formats.rounding)).set("state", c.state_name());
  row.set("clip_norm", c.clip_norm).set("grad_scale", c.grad_scale);
  row.set("device", to_string(bench.device)).set("isa", o.isa()).set("threads", bench.threads);
  row.end_config();
  row.set("median_ms", m.summary.median * 1e3).set("p5_ms", m.summary.p5 * 1e3);
  row.set("p95_ms", m.summary.p95 * 1e3);
  row.set("ns_per_element", m.summary.median * 1e9 / elements);
  row.set("bytes_per_element", static_cast<double>(o.bytes_per_step()) / elements);
  row.set("gb_per_s", static_cast<double>(o.bytes_per_step()) / m.summary.median * 1e-9);
  std::vector<double> each = m.samples;
  for (double& s : each) s *= 1e3;
  row.keep_samples("median_ms", std::move(each));
  return row;
}

void check_contender(const StepContender& c, size_t tensors, int threads, Device device) {
  const Rule& rule = find_rule(c.optimizer);
  StepContender plain = c;  // clipping and zeroing have tests of their own
  plain.clip_norm = 0;
  plain.zero_grad = false;
  for (const auto& other : check::judgeable(rule)) plain.hyper.push_back(other);
  const std::vector<double> hyper = knob_values(plain);
  std::vector<check::Buffer> params, grads;
  std::vector<Param> list;
  std::vector<check::Reference> references;
  for (size_t i = 0; i < std::clamp<size_t>(tensors, 2, 8); ++i) {
    // In turns a vector and a matrix: rules may treat them apart.
    const bool matrix = i % 2 == 1;
    const int64_t columns = !matrix ? 1 : i % 4 == 1 ? 17 : kBlock;
    const auto n = static_cast<int64_t>(matrix ? columns * (240 + 16 * i) : 4099 + 257 * i);
    const std::vector<int64_t> shape = matrix ? std::vector{n / columns, columns} : std::vector{n};
    params.emplace_back(c.formats.param, n, false, device).fill_normal(i, 1);
    grads.emplace_back(c.formats.grad, n, false, device);
    references.emplace_back(rule, c.formats, hyper);
    list.push_back({fmt::format("t{}", i), shape, params.back().data(), grads.back().data(),
                    c.formats.param, c.formats.grad, matrix ? Role::hidden : Role::bias});
  }
  for (size_t i = 0; i < list.size(); ++i) {
    list[i].data = params[i].data();
    list[i].grad = grads[i].data();
  }
  Options options = step_options(plain, threads, device);
  options.allocator = check::reachable_allocator(device);
  Optimizer optimizer(c.optimizer, options);
  optimizer.add_group(list, group_options(plain));
  for (uint64_t step = 0; step < 2; ++step) {
    for (size_t i = 0; i < list.size(); ++i) {
      grads[i].fill_normal(100 * step + i, 0.1);
      references[i].before_step(optimizer, i, grads[i].data());
    }
    optimizer.step();
    check::wait_for(device);
    for (size_t i = 0; i < list.size(); ++i) {
      references[i].advance();
      std::string failure;
      if (references[i].worst_after_step(optimizer, i, &failure) > 1) {
        throw Error(ErrorCode::unsupported,
                    fmt::format("{} {} does not agree with the reference, so it is not timed: {}",
                                c.optimizer, to_string(c.mode), failure));
      }
    }
  }
}

std::vector<lab::Row> run_step_bench(const StepBench& given) {
  if (given.device.kind == Device::Kind::cuda) return run_gpu_step_bench(given);
  StepBench bench = given;
  if (bench.threads <= 0) bench.threads = cpu::default_threads();
  std::vector<std::unique_ptr<Runner>> runners;
  std::vector<Contender> contenders;
  const int warm = warm_steps(bench.shapes);
  for (const StepContender& c : bench.contenders) {
    check_contender(c, bench.shapes.shapes.size(), bench.threads);
    runners.push_back(std::make_unique<Runner>(c, bench.shapes, bench.threads));
    contenders.push_back(timed(c.optimizer, warm, [r = runners.back().get(), bare = c.bare](int k) {
      bare ? r->run_bare(k) : r->run(k);
    }));
  }
  Read4Write3 ceiling(bench.shapes.elements(), bench.threads);
  contenders.push_back(timed("ceiling", warm, [&](int k) { ceiling.run(k); }));
  const bool reads = std::any_of(runners.begin(), runners.end(), [](const auto& r) {
    return r->optimizer().bytes_only_read() > 0;
  });
  if (reads) contenders.push_back(timed("reads", warm, [&](int k) { ceiling.run_read(k); }));

  const size_t count = runners.size(), ceilings = contenders.size();
  std::vector<std::unique_ptr<CpuProducts>> products;  // of each contender that has some
  std::vector<double> flops;
  for (const StepContender& c : bench.contenders) {
    flops.push_back(product_flops(c, bench.shapes));
    if (flops.back() == 0) continue;
    products.push_back(std::make_unique<CpuProducts>(c.formats.param == DType::f64, bench.threads));
    contenders.push_back(timed("products", 0, [p = products.back().get()](int k) { p->run(k); }));
  }

  const std::vector<Measurement> results = measure(contenders, bench.sampler);
  const double moves = ceiling.bytes() / results[count].summary.median;
  const double only_reads =
      reads ? ceiling.bytes_read() / results[count + 1].summary.median : moves;
  std::vector<lab::Row> rows;
  size_t next = 0;
  for (size_t i = 0; i < runners.size(); ++i) {
    lab::Row row = result_row(bench.contenders[i], bench, runners[i]->optimizer(), results[i]);
    const auto bytes = static_cast<double>(runners[i]->optimizer().bytes_per_step());
    const auto read = static_cast<double>(runners[i]->optimizer().bytes_only_read());
    const double fastest = (bytes - read) / moves + read / only_reads;
    row.set("ceiling_gb_per_s", bytes / fastest * 1e-9);
    if (find_rule(bench.contenders[i].optimizer).stages == 0) {
      row.set("percent_of_ceiling", 100 * fastest / results[i].summary.median);
    } else {
      row.set("percent_of_ceiling", nullptr);  // products of matrices decide, not memory
    }
    if (flops[i] > 0) {
      const double rate = products[next]->flops() / results[ceilings + next].summary.median;
      add_products(row, flops[i], results[i].summary.median, rate);
      ++next;
    }
    row.set("samples", results[i].summary.n).set("stopped_by", results[i].stopped_by);
    row.set("spread_percent", 100 * results[i].relative_spread).set("check", "pass");
    add_warmup(bench.contenders[i], bench.device, row);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace gallop::bench
