// SPDX-License-Identifier: MIT
#include "gpt/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "core/convert.h"
#include "cpu/thread_pool.h"
#include "data/loader.h"
#include "gallop/error.h"
#include "gpt/dry_ops.h"

namespace gallop::gpt {
namespace {

template <class F>
void in_parallel(size_t n, F f) {
  auto work = [&](int i, int count) {
    const size_t at = static_cast<size_t>(i), of = static_cast<size_t>(count);
    f(n * at / of, n * (at + 1) / of);
  };
  gallop::cpu::ThreadPool::instance().run(n < 65536 ? 1 : gallop::cpu::default_threads(), work);
}

}  // namespace

Model::Model(const Config& config, const ModelOptions& options, Ops& ops)
    : config_(config), options_(options), real_(ops), ops_(&ops), specs_(layout(config)) {
  validate(config);
  if (options.batch < 1 || options.time < 1) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a batch of {} x {} tokens, expected at least one of each",
                            options.batch, options.time));
  }
  if (options.time > config.context) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("sequences of {} tokens, expected at most the model's context of {}",
                            options.time, config.context));
  }
  where_.resize(static_cast<size_t>(config.layers) + 1);
  for (auto& parts : where_) parts.fill(-1);
  for (size_t i = 0; i < specs_.size(); ++i) {
    where_[static_cast<size_t>(specs_[i].layer + 1)][static_cast<size_t>(specs_[i].part)] =
        static_cast<int>(i);
  }
  saved_.resize(static_cast<size_t>(config.layers));
  try {
    allocate();
  } catch (...) {
    for (void* m : memory_) real_.release(m);
    throw;
  }
}

Model::~Model() {
  for (void* m : memory_) real_.release(m);
}

void Model::allocate() {
  const auto get = [&](size_t bytes) {
    memory_.reserve(memory_.size() + 1);
    memory_.push_back(real_.allocate(bytes));
    return static_cast<std::byte*>(memory_.back());
  };
  const Precision& precision = options_.precision;
  // A product adds its bias in the type of its result.
  const auto bias_type = [&](const ParamSpec& s) {
    const bool to_residual = s.part == Part::out_bias || s.part == Part::proj_bias;
    return to_residual ? precision.residual : precision.matrices;
  };
  const auto lay_out = [&](std::vector<Tensor>& tensors, bool gradients, size_t& bytes) {
    for (const ParamSpec& s : specs_) {
      const DType type = s.matrix() ? gradients ? precision.gradients : precision.matrices
                         : s.role == Role::bias && !gradients ? bias_type(s)
                                                              : precision.vectors;
      tensors.push_back(s.matrix() ? Tensor{nullptr, type, s.shape[0], s.shape[1]}
                                   : Tensor{nullptr, type, 1, s.shape[0]});
      const size_t places = places_for(s, tensors.back());
      (gradients && takes_turns(s) ? grad_bytes_saved_ : bytes) += places;
    }
  };
  lay_out(params_, false, param_bytes_);
  lay_out(grads_, true, grad_bytes_);
  plan();
  if (options_.only_planned) return;
  require_memory();
  const auto put = [&](std::vector<Tensor>& tensors, size_t bytes) {
    std::byte* at = get(bytes);
    for (size_t i = 0; i < tensors.size(); ++i) {
      Tensor& t = tensors[i];
      const ParamSpec& s = specs_[i];
      if (&tensors == &grads_ && takes_turns(s)) {
        t.data = find(grads_, s.part, s.layer - options_.grad_places).data;
        continue;
      }
      t.data = at;
      at += places_for(s, t);
    }
  };
  put(params_, param_bytes_);
  put(grads_, grad_bytes_);
  const size_t n = static_cast<size_t>(rows());
  batch_memory_ = reinterpret_cast<int32_t*>(get((5 * n + 3) * sizeof(int32_t)));
  for (Tensor* t : {&losses_, &hits_}) {
    *t = {get(n * size_of(precision.vectors)), precision.vectors, rows(), 1};
  }
  for (Tensor* t : {&loss_, &accuracy_}) {
    *t = {get(size_of(precision.vectors)), precision.vectors, 1, 1};
  }
  if (options_.scaled) {
    loss_scale_ = reinterpret_cast<LossScale*>(get(sizeof(LossScale)));
    const LossScale begin;
    real_.upload(loss_scale_, &begin, sizeof begin);
  }
  arena_.set_memory(get(arena_.bytes()));
}

// What does not fit is told apart before any of it is taken.
void Model::require_memory() const {
  const size_t free = real_.free_memory(), needed = param_bytes_ + grad_bytes_ + arena_.bytes();
  if (needed <= free) return;
  const auto gb = [](size_t bytes) { return static_cast<double>(bytes) / (1 << 30); };
  const auto of = at_peak(arena_.of(training));
  const auto at = [&](MemoryClass c) { return gb(of[static_cast<size_t>(c)]); };
  throw Error(ErrorCode::out_of_memory,
              fmt::format("a training step needs {:.2f} GiB without the optimizer's state, {:.2f} "
                          "more than are free: parameters {:.2f}, gradients {:.2f}, activations "
                          "{:.2f}, logits {:.2f}, workspace {:.2f}",
                          gb(needed), gb(needed - free), gb(param_bytes_), gb(grad_bytes_),
                          at(MemoryClass::activations), at(MemoryClass::logits),
                          at(MemoryClass::workspace)));
}

void Model::plan() {
  DryOps dry(real_);
  ops_ = &dry;
  const Tokens on{options_.batch, options_.time};
  arena_.plan(training);
  forward(on);
  backward(on);
  arena_.planned();
  arena_.plan(evaluation);
  evaluate(on);
  arena_.planned();
  arena_.plan(generation);
  logits(on, 0);
  arena_.planned();
  ops_ = &real_;
}

Tensor Model::find(const std::vector<Tensor>& in, Part part, int64_t layer) const {
  const int at = where_[static_cast<size_t>(layer + 1)][static_cast<size_t>(part)];
  return at < 0 ? Tensor{} : in[static_cast<size_t>(at)];
}

Tensor Model::whole_head(const std::vector<Tensor>& in) const {
  Tensor t = find(in, head(), -1);
  t.rows = real_.logits_columns(config_.vocabulary);
  return t;
}

size_t Model::places_for(const ParamSpec& spec, Tensor t) const {
  if (spec.part == head()) t.rows = real_.logits_columns(config_.vocabulary);
  return whole_places(t.bytes());
}

void Model::initialize(uint64_t seed) {
  constexpr int64_t kPiece = int64_t{1} << 20;
  std::vector<float> piece(static_cast<size_t>(kPiece));
  for (size_t i = 0; i < specs_.size(); ++i) {
    const InitialValues values(specs_[i], config_, seed);
    const int64_t n = specs_[i].elements();
    for (int64_t first = 0; first < n; first += kPiece) {
      const std::span<float> some(piece.data(), static_cast<size_t>(std::min(kPiece, n - first)));
      in_parallel(some.size(), [&](size_t begin, size_t end) {
        values.write(first + static_cast<int64_t>(begin), some.subspan(begin, end - begin));
      });
      put<float>(params_[i], first, some);
    }
  }
}

void Model::set_values(size_t i, std::span<const double> values) {
  if (static_cast<int64_t>(values.size()) != params_[i].elements()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} values for {}, expected {}", values.size(), specs_[i].name,
                            params_[i].elements()));
  }
  put<double>(params_[i], 0, values);
}

template <class T>
void Model::put(Tensor t, int64_t first, std::span<const T> values) {
  void* to = static_cast<std::byte*>(t.data) + static_cast<size_t>(first) * size_of(t.type);
  const auto as = [&](auto convert) {
    std::vector<decltype(convert(T{}))> raw(values.size());
    in_parallel(values.size(), [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) raw[i] = convert(values[i]);
    });
    real_.upload(to, raw.data(), raw.size() * sizeof raw[0]);
  };
  switch (t.type) {
    case DType::f32:
      return as([](T x) { return static_cast<float>(x); });
    case DType::f64:
      return as([](T x) { return static_cast<double>(x); });
    case DType::bf16:
      return as([](T x) { return to_bf16_nearest(static_cast<float>(x)); });
    case DType::f16:
      return as([](T x) { return to_f16_nearest(static_cast<float>(x)); });
  }
}

std::vector<double> Model::read(Tensor t) const {
  std::vector<double> out(static_cast<size_t>(t.elements()));
  const auto get = [&](auto raw, auto convert) {
    raw.resize(out.size());
    real_.download(raw.data(), t.data, t.bytes());
    std::transform(raw.begin(), raw.end(), out.begin(), convert);
  };
  switch (t.type) {
    case DType::f32:
      get(std::vector<float>(), [](float x) { return x; });
      break;
    case DType::f64:
      get(std::vector<double>(), [](double x) { return x; });
      break;
    case DType::bf16:
      get(std::vector<Half>(), [](Half x) { return from_bf16(x); });
      break;
    case DType::f16:
      get(std::vector<Half>(), [](Half x) { return from_f16(x); });
      break;
  }
  return out;
}

std::vector<double> Model::grad_values(size_t i) const {
  std::vector<double> values = read(grads_[i]);
  if (loss_scale_ == nullptr) return values;
  LossScale s;
  real_.download(&s, loss_scale_, sizeof s);
  for (double& v : values) v /= static_cast<double>(s.scale);
  return values;
}

const Tokens& Model::upload(const data::Batch& batch) {
  const size_t n = static_cast<size_t>(rows());
  if (batch.inputs.size() != n || batch.targets.size() != n || batch.order.size() != n) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a batch of {} tokens, {} targets and {} in order, expected {} of each",
                            batch.inputs.size(), batch.targets.size(), batch.order.size(), n));
  }
  std::vector<int32_t> block(5 * n + 3);
  const auto put = [&](size_t first, const std::vector<int32_t>& values) {
    std::copy(values.begin(), values.end(), block.begin() + static_cast<std::ptrdiff_t>(first));
    return batch_memory_ + first;
  };
  tokens_ = {options_.batch, options_.time};
  tokens_.inputs = put(0, batch.inputs);
  tokens_.targets = put(n, batch.targets);
  tokens_.order = put(2 * n, batch.order);
  tokens_.starts = put(3 * n, batch.starts);
  tokens_.distinct = put(4 * n + 1, batch.distinct);
  const auto counted = std::count_if(batch.targets.begin(), batch.targets.end(),
                                     [](int32_t target) { return target >= 0; });
  tokens_.counts =
      put(5 * n + 1, {static_cast<int32_t>(batch.distinct.size()), static_cast<int32_t>(counted)});
  real_.upload(batch_memory_, block.data(), block.size() * sizeof(int32_t));
  return tokens_;
}

double Model::loss() const { return read(loss_)[0]; }
double Model::accuracy() const { return read(accuracy_)[0]; }

}  // namespace gallop::gpt
