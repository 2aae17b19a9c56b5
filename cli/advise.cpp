// SPDX-License-Identifier: MIT
#include "lab/advise.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "bench/ceiling.h"
#include "bench/machine.h"
#include "bench/products.h"
#include "bench/statistics.h"
#include "cli/common.h"
#include "cpu/thread_pool.h"

namespace gallop::cli {

namespace {

struct Advise {
  Output output;
  RuleFiles rules;
  lab::AdviseOptions options;
  std::string memory, reserve, gpu = "h200", device = "cuda", precision;
  std::string overlap = "auto", recompute = "auto";
  bool measure = false;
};

lab::Choice choice_of(const std::string& text) {
  return text == "auto" ? lab::Choice::either : text == "yes" ? lab::Choice::yes : lab::Choice::no;
}

// Takes seconds.
lab::Hardware measured_cpu(int threads) {
  constexpr int64_t kBytes = int64_t{1} << 30;
  constexpr double kNarrow = 1.7;  // bf16 where a CPU multiplies it: nano in 47.5, not 82.6 ms
  if (threads <= 0) threads = gallop::cpu::default_threads();
  bench::CpuProducts products(false, threads);
  products.run(1);
  std::vector<double> seconds(5);
  for (double& s : seconds) s = bench::Batch{[&](int n) { products.run(n); }, 2}();
  const double rate = products.flops() / bench::median(seconds);
  return {"cpu",
          false,
          bench::describe_machine().memory_bytes,
          bench::measure_ceilings(kBytes, threads).read4_write3_gb_s * 1e9,
          kNarrow * rate,
          rate,
          rate,
          fmt::format("measured with {} threads", threads)};
}

lab::Hardware hardware(const Advise& a) {
  const Device device = parse_device(a.device);
  if (device.kind == Device::Kind::cpu) return measured_cpu(a.options.threads);
  lab::Hardware on = lab::find_gpu(a.gpu);
  if (!a.measure) return on;
  on.copy_bytes = bench::measure_gpu_copy(device.index) * 1e9;
  on.source = "the copy as measured here, products as stated of " + on.name;
  return on;
}

void run(Advise& a, const CLI::Option& optimizer) {
  lab::AdviseOptions& o = a.options;
  // What is wrong is said before anything is measured.
  if (!a.memory.empty()) o.memory_bytes = lab::parse_bytes(a.memory);
  if (!a.reserve.empty()) o.reserved_bytes = lab::parse_bytes(a.reserve);
  if (!a.precision.empty()) o.compute = gpt::parse_compute(a.precision);
  if (a.rules.given()) o.optimizers = a.rules.beside(optimizer, o.optimizers);
  for (const std::string& name : o.optimizers) rule_info(name);
  o.overlap = choice_of(a.overlap);
  o.recompute = choice_of(a.recompute);
  o.on = hardware(a);
  if (a.reserve.empty() && o.on.gpu) o.reserved_bytes = lab::kReservedOnGpu;
  a.output.emit(lab::advise(o));
}

}  // namespace

void add_advise(CLI::App& app) {
  auto a = std::make_shared<Advise>();
  lab::AdviseOptions& o = a->options;
  CLI::App* advise = app.add_subcommand(
      "advise",
      "Which optimizers and formats of state fit a memory, and about how long a step takes; "
      "needs no GPU");
  const auto text = [&](const char* flag, auto& value, const std::string& about, const char* type) {
    return advise->add_option(flag, value, about)->type_name(type);
  };
  const auto count = [&](const char* flag, int64_t& value, const char* about) {
    CLI::Validator range = CLI::Range(int64_t{1}, int64_t{1} << 40);
    return text(flag, value, about, "N")->check(range.description(""));
  };
  std::vector<std::string> models;
  for (const gpt::Preset& p : gpt::presets()) models.push_back(p.name);
  text("--model", o.model,
       fmt::format("{} or adan:HEADSxLAYERSxWIDTH, perhaps with changes as in gpt2:layers=6; or "
                   "tensors alone, as of bench step: gpt2:LAYERSxWIDTH or a file of shapes",
                   fmt::join(models, ", ")),
       "MODEL|SHAPES")
      ->required();
  text("--memory", a->memory,
       "How much there is: 24GB, 24GiB, 80000MB (a card sold as 24 GB has about 24GiB); default: "
       "all of the GPU's or of the machine's",
       "SIZE");
  text("--reserve", a->reserve, "What the driver and others take of it; default: 600MB on a GPU",
       "SIZE");
  CLI::Option* optimizer =
      text("--optimizer", o.optimizers, "Which; default: all of gallop list", "NAME")
          ->delimiter(',');
  text("--state", o.states,
       "Formats of state, or hybrid; default: fp32,bf16,8bit,4bit, without those that save nothing",
       "FORMAT")
      ->delimiter(',');
  text("--precision", a->precision, "fp32, tf32, bf16, fp16; default: bf16 on a GPU, fp32 on a CPU",
       "NAME");
  count("--batch", o.batch, "Sequences in a batch")->capture_default_str();
  count("--context", o.context, "Tokens in a sequence; default: the model's own");
  const auto choice = [&](const char* flag, std::string& value, const char* about) {
    advise->add_option(flag, value, about)
        ->check(CLI::IsMember({"auto", "no", "yes"}))
        ->capture_default_str();
  };
  choice("--overlap", a->overlap, "Updates during backward; auto: where it does not fit without");
  choice("--recompute", a->recompute,
         "Activations made again in backward; auto: where it does not fit without");
  std::vector<std::string> gpus;
  for (const lab::Hardware& gpu : lab::known_gpus()) gpus.push_back(gpu.name);
  text("--gpu", a->gpu, fmt::format("Whose speed: {}", fmt::join(gpus, ", ")), "NAME")
      ->capture_default_str();
  advise
      ->add_option("--device", a->device,
                   "What trains: cuda (a GPU, here or not) or cpu, whose speed is measured")
      ->capture_default_str();
  advise->add_flag("--measure", a->measure, "Take a copy's speed from this machine's GPU");
  advise->add_option("--threads", o.threads, "CPU threads; 0: all")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  a->rules.add_to(*advise);
  a->output.add_to(*advise);
  advise->callback([a, optimizer] { run(*a, *optimizer); });
}

}  // namespace gallop::cli
