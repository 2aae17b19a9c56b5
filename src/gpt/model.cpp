// SPDX-License-Identifier: MIT
#include "gpt/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "core/convert.h"
#include "data/loader.h"
#include "gallop/error.h"
#include "gpt/dry_ops.h"

namespace gallop::gpt {
namespace {

constexpr size_t kAlignment = 256;

size_t rounded(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

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
  const auto lay_out = [&](std::vector<Tensor>& tensors, DType matrices, size_t& bytes) {
    for (const ParamSpec& s : specs_) {
      const DType type = s.matrix() ? matrices : precision.vectors;
      tensors.push_back(s.matrix() ? Tensor{nullptr, type, s.shape[0], s.shape[1]}
                                   : Tensor{nullptr, type, 1, s.shape[0]});
      bytes += rounded(tensors.back().bytes());
    }
    std::byte* at = get(bytes);
    for (Tensor& t : tensors) {
      t.data = at;
      at += rounded(t.bytes());
    }
  };
  lay_out(params_, precision.matrices, param_bytes_);
  lay_out(grads_, precision.gradients, grad_bytes_);
  const size_t n = static_cast<size_t>(rows());
  batch_memory_ = reinterpret_cast<int32_t*>(get((5 * n + 3) * sizeof(int32_t)));
  losses_ = {get(n * size_of(precision.vectors)), precision.vectors, rows(), 1};
  loss_ = {get(size_of(precision.vectors)), precision.vectors, 1, 1};
  plan();
  arena_.set_memory(get(arena_.bytes()));
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

void Model::initialize(uint64_t seed) {
  for (size_t i = 0; i < specs_.size(); ++i) {
    const std::vector<float> values = initial_values(specs_[i], config_, seed);
    set_values(i, std::vector<double>(values.begin(), values.end()));
  }
}

void Model::set_values(size_t i, std::span<const double> values) {
  const Tensor t = params_[i];
  if (static_cast<int64_t>(values.size()) != t.elements()) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("{} values for {}, expected {}", values.size(), specs_[i].name, t.elements()));
  }
  const auto put = [&](auto convert) {
    std::vector<decltype(convert(0.0))> raw(values.size());
    std::transform(values.begin(), values.end(), raw.begin(), convert);
    real_.upload(t.data, raw.data(), t.bytes());
  };
  switch (t.type) {
    case DType::f32:
      return put([](double x) { return static_cast<float>(x); });
    case DType::f64:
      return put([](double x) { return x; });
    case DType::bf16:
      return put([](double x) { return to_bf16_nearest(static_cast<float>(x)); });
    case DType::f16:
      return put([](double x) { return to_f16_nearest(static_cast<float>(x)); });
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

}  // namespace gallop::gpt
