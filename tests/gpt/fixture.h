// SPDX-License-Identifier: MIT
// Small models of every kind, and batches for them.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "core/random.h"
#include "data/loader.h"
#include "gpt/model.h"

namespace gallop::gpt {

inline Config small(const std::string& changes = "") {
  return parse_model("nano:layers=2:heads=3:width=12:hidden=20:vocabulary=17:context=9" + changes);
}

inline Config small_swiglu(const std::string& changes = "") {
  return parse_model("S:layers=2:heads=3:width=12:hidden=10:vocabulary=17:context=9" + changes);
}

inline data::Batch random_batch(const Config& config, int64_t rows, int64_t time,
                                uint64_t seed = 1) {
  data::Batch batch;
  for (int64_t i = 0; i < rows * time; ++i) {
    const auto draw = [&](int64_t k) {
      return static_cast<int32_t>(combine(seed, static_cast<Bits64>(2 * i + k)) %
                                  static_cast<Bits64>(config.vocabulary));
    };
    batch.inputs.push_back(draw(0));
    batch.targets.push_back(draw(1));
  }
  data::index_by_token(batch, static_cast<int>(config.vocabulary));
  return batch;
}

// Sequences of these lengths, the rest of each padding.
inline data::Batch padded(const Config& config, data::Batch batch,
                          const std::vector<size_t>& lengths, int32_t padding = 0) {
  const size_t time = batch.inputs.size() / lengths.size();
  for (size_t i = 0; i < batch.inputs.size(); ++i) {
    if (i % time < lengths[i / time]) continue;
    batch.inputs[i] = padding;
    batch.targets[i] = -1;
  }
  data::index_by_token(batch, static_cast<int>(config.vocabulary));
  return batch;
}

inline Precision all(DType type) { return {type, type, type, type}; }

// A model on the CPU with values that are far from special: norms not 1, biases not 0.
template <class T>
struct OnCpu {
  std::unique_ptr<Ops> ops;
  Model model;

  OnCpu(const Config& config, ModelOptions options, int threads = 2)
      : ops(cpu_ops<T>(config, threads)), model(config, with(options), *ops) {
    for (size_t i = 0; i < model.size(); ++i) {
      const size_t n = static_cast<size_t>(model.param(i).elements());
      std::vector<double> values(n);
      for (size_t j = 0; j < n; ++j) {
        const double uniform = static_cast<double>(combine(i + 1, j) >> 11) * 0x1p-53;
        values[j] = (uniform - 0.5) * 0.6 + (model.spec(i).init == Init::ones ? 1 : 0);
      }
      model.set_values(i, values);
    }
  }

  double step(const data::Batch& batch, bool add = false) {
    const Tokens& on = model.upload(batch);
    model.forward(on, add);
    model.backward(on, add);
    return model.loss();
  }

 private:
  static ModelOptions with(ModelOptions options) {
    options.precision = all(sizeof(T) == 8 ? DType::f64 : DType::f32);
    return options;
  }
};

// Apart, relative to b, by norm.
inline double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double apart = 0, length = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    apart += (a[i] - b[i]) * (a[i] - b[i]);
    length += b[i] * b[i];
  }
  return std::sqrt(apart) / (std::sqrt(length) + 1e-30);
}

inline ModelOptions shape(int64_t batch, int64_t time) {
  ModelOptions o;
  o.batch = batch, o.time = time;
  return o;
}

}  // namespace gallop::gpt
