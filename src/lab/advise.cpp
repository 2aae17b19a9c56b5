// SPDX-License-Identifier: MIT
#include "lab/advise.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <tuple>

#include "bench/products.h"
#include "bench/shapes.h"
#include "cuda/memory.h"
#include "gallop/error.h"
#include "gpt/trainer_parts.h"
#include "lab/figures.h"
#include "optimizer/impl.h"

namespace gallop::lab {
namespace {

constexpr double kGb = 1e9;

// Sizes of a GPU's buffers without the GPU: what src/gpt/cuda would say.
class PlanOps final : public gpt::Ops {
  using Tensor = gpt::Tensor;
  using Tokens = gpt::Tokens;
  using Extent = gpt::Extent;
  using Shape = gpt::AttentionShape;
  using How = gpt::Attention;

 public:
  Extent norm_scratch(int64_t rows, int64_t width) override {
    constexpr int64_t kMostBlocks = 528, kWarpWidest = 1024, kWarps = 4;
    const int64_t at_once = width % 4 == 0 && width <= kWarpWidest ? kWarps : 1;
    return {DType::f32, 2 * std::min((rows + at_once - 1) / at_once, kMostBlocks), width};
  }
  Extent attention_saved(How how, const Shape& s, DType type) override {
    const int64_t rows = s.batch * s.heads * s.time;
    return how == How::naive ? Extent{type, rows, s.time} : Extent{DType::f32, rows, 1};
  }
  Extent attention_scratch(How how, const Shape& s, DType type, bool back) override {
    const int64_t rows = s.batch * s.heads * s.time;
    if (how == How::naive) return back ? Extent{type, rows, s.time} : Extent{};
    if (type == DType::f32) return back ? Extent{DType::f32, rows, 1} : Extent{};
    // cuDNN decides. On an H200, with the same bits every time, this makes plans what they are in
    // docs/results.md: sums of rows, and scores' gradients in 16 bits.
    const auto sums = gpt::whole_places(4 * static_cast<size_t>(rows)) / 4;
    return {DType::f32, 1, static_cast<int64_t>(sums) + (rows * s.time + 1) / 2};
  }
  int64_t logits_columns(int64_t vocabulary) override {
    return vocabulary % 8 == 0 ? vocabulary : (vocabulary + 63) / 64 * 64;
  }
  bool has_aside() override { return true; }

  void* allocate(size_t) override { return nullptr; }
  void release(void*) noexcept override {}
  size_t free_memory() override { return 0; }
  void upload(void*, const void*, size_t) override {}
  void download(void*, const void*, size_t) override {}
  void zero(Tensor) override {}
  void run(int, const std::function<void()>&) override {}
  void mark(int) override {}
  double between(int, int) override { return 0; }
  void* stream() override { return nullptr; }
  void aside(const std::function<void()>&) override {}
  void mark_aside(int) override {}
  void wait_aside(int) override {}
  void* begin_update() override { return nullptr; }
  void end_updates() override {}
  void mark_updates(int) override {}
  void wait_updates(int) override {}
  std::string algorithms() override { return {}; }
  void set_algorithms(const std::string&) override {}
  void embed(const Tokens&, Tensor, Tensor, Tensor) override {}
  void embed_backward(const Tokens&, Tensor, Tensor, bool, Tensor, bool) override {}
  void norm(Tensor, Tensor, Tensor, Tensor, Tensor) override {}
  void norm_backward(const NormBackward&) override {}
  void linear(Tensor, Tensor, Tensor, Tensor, Tensor) override {}
  void linear_backward_x(Tensor, Tensor, Tensor) override {}
  void linear_backward_weight(Tensor, Tensor, Tensor, Tensor, bool) override {}
  void add(Tensor, Tensor, Tensor) override {}
  void rope(Tensor, const Shape&, bool) override {}
  void attention(How, const Shape&, Tensor, Tensor, Tensor, Tensor) override {}
  void attention_backward(How, const Shape&, Tensor, Tensor, Tensor, Tensor, Tensor,
                          Tensor) override {}
  void activation(Tensor, Tensor) override {}
  void activation_backward(Tensor, Tensor, Tensor) override {}
  void cross_entropy(const Tokens&, int64_t, Tensor, int64_t, Tensor, bool,
                     const gpt::LossScale*) override {}
  void mean_loss(const Tokens&, Tensor, Tensor) override {}
  void advance(gpt::LossScale*, const int64_t*) override {}
};

// One way of taking a step, with memory for all but the state.
struct Way {
  bool overlap = false, recompute = false;
  gpt::MemoryUse use;
  size_t allocated = 0;
};

// What all optimizers are tried on.
struct Subject {
  gpt::TrainerOptions trainer;
  std::optional<bench::ShapeList> shapes;  // else a model
  std::unique_ptr<gpt::Ops> ops;
  std::unique_ptr<gpt::Model> model;  // as in the first way
  std::vector<Way> ways;              // the first that fits is taken
  bool asked_device = false;
};

int64_t time_of(const Subject& s) {
  return s.trainer.time == 0 ? s.trainer.config.context : s.trainer.time;
}

// "gpt2:12x768" and files; a model's name is not taken for a file's.
bool is_shapes(const std::string& text) {
  const std::string name = text.substr(0, text.find(':'));
  if (name == "gpt2" && name != text) return text.find('=') == std::string::npos;
  const auto& models = gpt::presets();
  return std::none_of(models.begin(), models.end(),
                      [&](const gpt::Preset& p) { return p.name == name; }) &&
         std::filesystem::is_regular_file(text);
}

bool usable_gpu() {
  if (!cuda::built() || cuda::emulated()) return false;
  try {
    cuda::require_device(0);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::vector<bool> tries(Choice c) {
  if (c == Choice::either) return {false, true};
  return {c == Choice::yes};
}

void plan_ways(Subject& s, const AdviseOptions& o) {
  for (const bool recompute : tries(o.recompute)) {
    for (const bool overlap : tries(o.overlap)) {
      gpt::TrainerOptions t = s.trainer;
      t.overlap = overlap;
      t.checkpoints = recompute;
      // With a loss scale all gradients must be known first.
      if (overlap && o.overlap == Choice::either && t.compute == gpt::Compute::fp16) continue;
      t = gpt::settled(t);
      gpt::ModelOptions how = gpt::model_options(t);
      how.only_planned = true;
      auto model = std::make_unique<gpt::Model>(t.config, how, *s.ops);
      s.ways.push_back({overlap, recompute, gpt::memory_use(*model, 0),
                        model->param_bytes() + model->grad_bytes() + model->arena().bytes()});
      if (!s.model) s.model = std::move(model);
    }
  }
}

void plan_model(Subject& s, const AdviseOptions& o) {
  s.trainer.config = gpt::parse_model(o.model);
  if (o.on.gpu && s.trainer.compute == gpt::Compute::fp64) {
    throw Error(ErrorCode::unsupported,
                "training in fp64 on a GPU, expected fp32, tf32, bf16 or fp16");
  }
  constexpr int64_t kWidest = 6144;  // that norms on a GPU take
  if (o.on.gpu && s.trainer.config.width > kWidest) {
    throw Error(ErrorCode::unsupported, fmt::format("a width of {} on a GPU, expected at most {}",
                                                    s.trainer.config.width, kWidest));
  }
  if (!o.on.gpu || (o.ask_device && usable_gpu())) {
    try {
      s.ops = gpt::make_ops(gpt::settled(s.trainer));
      plan_ways(s, o);
      s.asked_device = true;
      return;
    } catch (const Error& e) {
      if (!o.on.gpu || e.code() != ErrorCode::unsupported) throw;
      s.ways.clear();
      s.model.reset();
    }
  }
  s.ops = std::make_unique<PlanOps>();
  plan_ways(s, o);
}

gpt::ParamGroup group_of_shapes(const Subject& s) {
  const gpt::Precision precision = gpt::precision_of(s.trainer);
  gpt::ParamGroup group;
  for (const bench::Shape& shape : s.shapes->shapes) {
    const bool matrix = shape.dims.size() > 1;
    Param p;
    p.name = shape.name, p.shape = shape.dims, p.role = shape.role;
    p.dtype = matrix ? precision.matrices : precision.vectors;
    p.grad_dtype = matrix ? precision.gradients : precision.vectors;
    group.params.push_back(std::move(p));
  }
  if (gpt::in_16_bits(s.trainer)) {
    group.options.rounding = gpt::rounding_in(s.trainer.compute, s.trainer.rounding);
  }
  return group;
}

int64_t elements(const Param& p) {
  int64_t n = 1;
  for (const int64_t d : p.shape) n *= d;
  return n;
}

void plan_shapes(Subject& s, const AdviseOptions& o) {
  s.shapes = bench::parse_shapes(o.model);
  Way way;
  for (const Param& p : group_of_shapes(s).params) {
    const auto n = static_cast<size_t>(elements(p));
    way.use[gpt::MemoryClass::parameters] += n * size_of(p.dtype);
    way.use[gpt::MemoryClass::gradients] += n * size_of(p.grad_dtype);
  }
  way.allocated = way.use.total();
  s.ways.push_back(way);
}

Subject subject_of(const AdviseOptions& o) {
  Subject s;
  s.trainer.device.kind = o.on.gpu ? Device::Kind::cuda : Device::Kind::cpu;
  s.trainer.threads = o.threads;
  s.trainer.batch = o.batch;
  s.trainer.time = o.context;
  s.trainer.compute = o.compute.value_or(o.on.gpu ? gpt::Compute::bf16 : gpt::Compute::fp32);
  is_shapes(o.model) ? plan_shapes(s, o) : plan_model(s, o);
  return s;
}

struct Update {
  size_t state_bytes = 0;
  double bytes = 0, seconds = 0;
};

size_t state_bytes(const std::string& optimizer, Device device,
                   const std::vector<gpt::ParamGroup>& groups) {
  const Optimizer::Impl impl(optimizer, {});
  size_t bytes = 0;
  for (const gpt::ParamGroup& g : groups) {
    const Group group = impl.make_group(g.options);
    std::vector<Slot> slots;
    for (const Param& p : g.params) slots.push_back(impl.make_slot(p, group));
    bytes += plan_group(impl.rule, device, group, slots);
  }
  return bytes;
}

// Bytes of a step for one tensor. An optimizer on the CPU counts them; none of the memory that it
// maps is touched, as bf16 with its remainder is read and written as what it is: fp32.
int64_t bytes_of_step(const std::string& optimizer, Param p, GroupOptions options) {
  static float never_touched = 0;
  int64_t more = 0;
  if (options.rounding == Rounding::master || options.rounding == Rounding::remainder) {
    const bool narrow = p.dtype == DType::bf16 || p.dtype == DType::f16;
    if (narrow && options.rounding == Rounding::master) more = 2 * elements(p);
    if (narrow) p.dtype = DType::f32;
    options.rounding = Rounding::nearest;
  }
  p.data = p.grad = &never_touched;
  Optimizer counter(optimizer);
  counter.add_group({p}, options);
  return counter.bytes_per_step() + more;
}

bool exact_products(const Rule& rule) {
  const auto& states = rule.info.states;
  return std::any_of(states.begin(), states.end(),
                     [](const StateInfo& s) { return s.scratch && s.exact; });
}

Update update_of(const std::string& optimizer, const Subject& subject, const StatePolicy& policy,
                 const Hardware& on) {
  gpt::TrainerOptions t = gpt::settled(subject.trainer);
  t.optimizer = optimizer;
  std::vector<gpt::ParamGroup> groups =
      subject.model ? gpt::param_groups(t, *subject.model)
                    : std::vector<gpt::ParamGroup>{group_of_shapes(subject)};
  Update update;
  bench::ShapeList shapes;
  for (gpt::ParamGroup& g : groups) {
    g.options.state = policy;
    std::map<std::tuple<std::vector<int64_t>, Role, DType, DType, StateFormat>, int64_t> seen;
    for (const Param& p : g.params) {
      const StateFormat format = policy.choose(p);
      const auto [at, first] = seen.try_emplace({p.shape, p.role, p.dtype, p.grad_dtype, format});
      if (first) at->second = bytes_of_step(optimizer, p, g.options);
      const auto bytes = static_cast<double>(at->second);
      update.bytes += bytes;
      update.seconds += update_seconds(bytes, share_of_copy(format, on.gpu), 0, false, on);
      shapes.shapes.push_back({p.name, p.shape, p.role});
    }
  }
  update.state_bytes = state_bytes(optimizer, t.device, groups);
  bench::StepContender contender;
  contender.optimizer = optimizer;
  const double flops = bench::product_flops(contender, shapes);
  update.seconds += update_seconds(0, 1, flops, exact_products(find_rule(optimizer)), on);
  return update;
}

std::string status_of(const Way& w, bool fits) {
  if (!fits) return "does not fit";
  if (!w.overlap && !w.recompute) return "fits";
  return fmt::format("fits with {}", w.overlap && w.recompute ? "overlap and recomputation"
                                     : w.overlap              ? "overlap"
                                                              : "recomputation");
}

double gb(size_t bytes) { return static_cast<double>(bytes) / kGb; }

Row row_of(const std::string& optimizer, const std::string& state, const Subject& s,
           const Update& update, const Hardware& on, int64_t usable) {
  const auto needs = [&](const Way& w) { return w.allocated + update.state_bytes; };
  const auto fits = [&](const Way& w) { return static_cast<int64_t>(needs(w)) <= usable; };
  auto way = std::find_if(s.ways.begin(), s.ways.end(), fits);
  const bool found = way != s.ways.end();
  if (!found) {
    way = std::min_element(s.ways.begin(), s.ways.end(),
                           [](const Way& a, const Way& b) { return a.allocated < b.allocated; });
  }
  gpt::MemoryUse use = way->use;
  use[gpt::MemoryClass::state] = update.state_bytes;
  const double free = (static_cast<double>(usable) - static_cast<double>(needs(*way))) / kGb;
  Row row;
  row.set("optimizer", optimizer).set("state", state).set("peak_gb", gb(use.total()));
  for (int c = 0; c < gpt::kMemoryClasses; ++c) {
    const auto cls = static_cast<gpt::MemoryClass>(c);
    row.set(fmt::format("{}_gb", gpt::to_string(cls)), gb(use[cls]));
  }
  row.set("allocated_gb", gb(needs(*way))).set("free_gb", free);
  if (!found) row.set("missing_gb", -free);
  row.set("optimizer_gb", update.bytes / kGb).set("optimizer_ms", update.seconds * 1e3);
  double step = update.seconds;
  if (s.model) {
    const gpt::TrainerOptions& t = s.trainer;
    const double seconds =
        compute_seconds(work_of(t.config, t.batch, time_of(s), t.compute), on, t.compute) *
        (way->recompute ? kRecomputation : 1);
    step += seconds;
    row.set("compute_ms", seconds * 1e3);
  }
  row.set("step_ms", step * 1e3).set("overlap", way->overlap).set("recompute", way->recompute);
  row.set("status", status_of(*way, found));
  return row;
}

void sort_rows(std::vector<Row>& rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    const auto key = [](const Row& r) {
      const bool lacks = r.find("missing_gb") != nullptr;
      const double ms = *number(r, "step_ms"), memory = *number(r, "allocated_gb");
      return lacks ? std::tuple(true, memory, ms) : std::tuple(false, ms, memory);
    };
    return key(a) < key(b);
  });
}

std::string title_of(const AdviseOptions& o, const Subject& s) {
  std::string how;
  if (s.model) how = fmt::format(", batch {}, context {}", s.trainer.batch, time_of(s));
  return fmt::format("Training {} in {:.4g} GB: {}{}, {}", o.model,
                     static_cast<double>(o.memory_bytes) / kGb, gpt::to_string(s.trainer.compute),
                     how, o.on.name);
}

std::vector<std::string> columns_of(const std::vector<Row>& rows) {
  std::vector<std::string> columns;
  for (const char* name : {"optimizer", "state", "peak_gb", "parameters_gb", "gradients_gb",
                           "state_gb", "activations_gb", "logits_gb", "workspace_gb", "free_gb",
                           "optimizer_ms", "step_ms", "status"}) {
    const auto empty = [&](const Row& row) { return number(row, name) == 0.0; };
    if (!std::all_of(rows.begin(), rows.end(), empty)) columns.emplace_back(name);
  }
  return columns;
}

bool lacks(const Row& row) { return row.find("missing_gb") != nullptr; }

std::string nothing_fits(const Row& least) {
  const double missing = *number(least, "missing_gb");
  const bool by_batch = *number(least, "activations_gb") + *number(least, "logits_gb") > missing;
  return fmt::format("nothing fits; what takes least, {} with {} state, lacks {:.3g} GB{}",
                     text(least, "optimizer"), text(least, "state"), missing,
                     by_batch ? ": try a smaller --batch or --context" : "");
}

std::vector<std::string> notes_on_memory(const std::vector<Row>& rows, const AdviseOptions& o,
                                         const Subject& s, int64_t usable) {
  std::vector<std::string> notes;
  if (std::all_of(rows.begin(), rows.end(), lacks)) notes.push_back(nothing_fits(rows[0]));
  notes.push_back(fmt::format(
      "GB are 10^9 bytes; free_gb is what is left of {:.4g} GB{}",
      static_cast<double>(usable) / kGb,
      std::any_of(rows.begin(), rows.end(), lacks) ? ", or missing where it is below 0" : ""));
  if (o.reserved_bytes > 0) {
    notes.push_back(fmt::format("{:.3g} GB are left to CUDA's context and libraries (--reserve)",
                                static_cast<double>(o.reserved_bytes) / kGb));
  }
  if (gpt::in_16_bits(s.trainer)) {
    notes.push_back(fmt::format(
        "state_gb has what {} matrices lack of fp32 too ({}), whatever the format of the rest",
        gpt::to_string(s.trainer.compute),
        to_string(gpt::rounding_in(s.trainer.compute, s.trainer.rounding))));
  }
  if (!s.model) {
    notes.emplace_back("of shapes there are parameters, gradients and state, no activations");
    return notes;
  }
  notes.push_back(fmt::format(
      "peak_gb is the highest point of a step, planned {}; gaps between buffers must fit besides",
      !o.on.gpu        ? "as on this CPU"
      : s.asked_device ? "as on this machine's GPU"
                       : "without a GPU (cuDNN's workspace is as on an H200)"));
  const auto used = [&](const char* what) {
    return std::any_of(rows.begin(), rows.end(),
                       [&](const Row& r) { return *r.find(what) == Value(true); });
  };
  if (used("overlap")) {
    notes.emplace_back(
        "overlap (--overlap): updates during backward, gradients of three blocks at a time, no "
        "clipping; about the same time");
  }
  if (used("recompute")) {
    notes.emplace_back(
        "recomputation (--recompute): activations are made again, forward and backward take a "
        "third longer");
  }
  if (std::any_of(rows.begin(), rows.end(), lacks) && s.ways.size() > 1) {
    notes.emplace_back("what does not fit is shown in the way that takes least");
  }
  return notes;
}

std::vector<std::string> notes_on_time(const AdviseOptions& o, const Subject& s) {
  std::vector<std::string> notes;
  notes.push_back(fmt::format(
      "times are predicted for {}{}: {:.4g} GB/s of a copy, {:.4g} TFLOP/s of {} products, {}",
      o.on.name, o.on.gpu ? " (--gpu)" : "", o.on.copy_bytes / kGb,
      peak_of(o.on, s.trainer.compute) * 1e-12, gpt::to_string(s.trainer.compute), o.on.source));
  notes.emplace_back(
      "optimizer_ms: what a step reads and writes, at the part of a copy's speed that AdamW "
      "reaches "
      "with such state");
  if (s.model && o.on.gpu) {
    notes.push_back(fmt::format(
        "step_ms: with forward and backward by four constants fitted to nine measured steps (S to "
        "10B, bf16, H200), 3 % off in the mean and 5 % at most{}",
        o.on.name == "h200" ? "" : "; no other GPU was measured"));
  } else if (s.model) {
    notes.emplace_back("step_ms: with forward and backward at 75 % of large products' rate");
  }
  std::vector<std::string> products, more;
  for (const std::string& name : o.optimizers) {
    const Rule& rule = find_rule(name);
    if (rule.stages != 0) products.push_back(name);
    if (rule.decides()) more.push_back(name);
  }
  if (!products.empty()) {
    notes.push_back(
        fmt::format("{}: products of matrices at 60 % of their rate; 16 % off at most on an H200 "
                    "(Muon at three sizes, SOAP at one)",
                    fmt::join(products, ", ")));
  }
  if (!more.empty()) {
    notes.push_back(fmt::format("{}: at least; what only some tensors need is not counted",
                                fmt::join(more, ", ")));
  }
  return notes;
}

}  // namespace

Table advise(const AdviseOptions& options) {
  AdviseOptions o = options;
  if (o.memory_bytes == 0) o.memory_bytes = o.on.memory_bytes;
  const int64_t usable = o.memory_bytes - o.reserved_bytes;
  if (usable <= 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{:.3g} GB of memory with {:.3g} reserved, expected more than that",
                            static_cast<double>(o.memory_bytes) / kGb,
                            static_cast<double>(o.reserved_bytes) / kGb));
  }
  if (o.optimizers.empty()) o.optimizers = rule_names();
  for (const std::string& name : o.optimizers) rule_info(name);  // throws what there is
  const bool all_states = o.states.empty();
  if (all_states) o.states = {"fp32", "bf16", "8bit", "4bit"};
  if (all_states && o.compute == gpt::Compute::fp64) o.states = {"fp32"};  // as wide as parameters
  std::vector<StatePolicy> policies;
  for (const std::string& state : o.states) policies.push_back(parse_state_policy(state));

  const Subject subject = subject_of(o);
  Table table;
  for (const std::string& optimizer : o.optimizers) {
    size_t least = SIZE_MAX / 100;
    for (size_t i = 0; i < policies.size(); ++i) {
      const Update update = update_of(optimizer, subject, policies[i], o.on);
      if (all_states && 100 * update.state_bytes > 99 * least) continue;
      least = update.state_bytes;
      table.rows.push_back(row_of(optimizer, o.states[i], subject, update, o.on, usable));
    }
  }
  sort_rows(table.rows);
  table.title = title_of(o, subject);
  table.columns = columns_of(table.rows);
  table.notes = notes_on_memory(table.rows, o, subject, usable);
  for (std::string& note : notes_on_time(o, subject)) table.notes.push_back(std::move(note));
  return table;
}

}  // namespace gallop::lab
