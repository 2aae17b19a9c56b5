// SPDX-License-Identifier: MIT
#include "cpu/norms.h"

#include <algorithm>
#include <tuple>

#include "cpu/backend.h"
#include "optimizer/rule.h"

namespace gallop::cpu {
namespace {

// Large enough that adding the units up is nothing beside the passes.
constexpr Index kUnitElements = 1 << 16, kUnitRows = 64;

Index rounded_up(Index n, Index to) { return (n + to - 1) / to * to; }

// Column sums are kept for each unit: few rows a unit would make them as large as the tensor.
Index unit_elements(const View& v, bool columns) {
  return rounded_up(columns ? std::max(kUnitElements, kUnitRows * v.columns) : kUnitElements,
                    kBlock);
}

// Hands out places in an array that is allocated afterwards.
struct Places {
  size_t used = 0;
  size_t take(Index n) {
    const size_t at = used;
    used += static_cast<size_t>(n);
    return at;
  }
};

}  // namespace

bool Norms::over(Over what, int q) const { return rule_.sums[static_cast<size_t>(q)].over == what; }

void Norms::reserve(std::span<const Tensor* const> tensors) {
  plans_.clear();
  units_.clear();
  Places places;
  size_t narrow = 0;
  const auto sums = static_cast<int>(rule_.sums.size());
  const bool by_column = std::any_of(rule_.sums.begin(), rule_.sums.end(),
                                     [](const Sum& s) { return s.over == Over::column; });
  for (const Tensor* t : tensors) {
    const View& v = t->view;
    const Index rows = v.matrix ? v.batches * v.rows : 0;
    const Index columns = v.matrix ? v.batches * v.columns : 0;
    Plan p{};
    p.view = v;
    p.first_unit = units_.size();
    p.totals = places.take(sums);
    p.rows = places.take(sums * rows);
    p.columns = places.take(sums * columns);
    for (size_t j = 0; j < rule_.info.states.size(); ++j) {
      const StatePer per = rule_.info.states[j].per;
      if (!v.matrix || !is_vector(per)) continue;
      p.states[j] = places.take(per == StatePer::row ? rows : columns);
    }
    p.tensor_values = places.take(detail::kMaxTensorValues);
    p.row_values = places.take(rule_.values.row * rows);
    p.column_values = places.take(rule_.values.column * columns);
    p.narrow = narrow;
    narrow += static_cast<size_t>(rule_.values.column * columns);
    const Index unit = unit_elements(v, v.matrix && by_column);
    for (Index first = 0; first < t->n; first += unit) {
      Unit u{};
      u.first = first;
      u.n = std::min(unit, t->n - first);
      u.sums = places.take(sums);
      if (v.matrix) {
        const Index last = first + u.n - 1;
        u.first_row = first / v.columns;
        u.rows = last / v.columns - u.first_row + 1;
        const Index first_matrix = u.first_row / v.rows;
        const Index matrices = (u.first_row + u.rows - 1) / v.rows - first_matrix + 1;
        u.first_column = first_matrix * v.columns;
        u.columns = matrices * v.columns;
        u.row_sums = places.take(sums * u.rows);
        u.column_sums = by_column ? places.take(sums * u.columns) : 0;
      }
      units_.push_back(u);
    }
    p.unit_count = units_.size() - p.first_unit;
    plans_.push_back(p);
  }
  numbers_.assign(places.used, 0);
  narrow_.assign(narrow, 0);
}

std::span<const Norms::Unit> Norms::units(size_t tensor) const {
  const Plan& p = plans_[tensor];
  return {units_.data() + p.first_unit, p.unit_count};
}

NormArgs Norms::arguments(size_t tensor, const Unit& u, Path path, int only) {
  const Plan& p = plans_[tensor];
  const auto sums = static_cast<int>(rule_.sums.size());
  const auto cleared = [only](int q) { return only < 0 || q == only; };
  double* base = numbers_.data();
  NormArgs a{};
  a.first = u.first;
  a.rows = p.view.rows;
  a.columns = p.view.columns;
  a.tensor = base + p.tensor_values;
  a.first_row = u.first_row;
  a.first_column = u.first_column;
  a.sums = base + u.sums;
  for (int q = 0; q < sums; ++q) {
    if (cleared(q)) a.sums[q] = 0;
  }
  if (!p.view.matrix) return a;
  const Index rows = p.view.batches * p.view.rows, columns = p.view.batches * p.view.columns;
  for (int v = 0; v < rule_.values.row; ++v) a.row[v] = base + p.row_values + v * rows;
  for (int v = 0; v < rule_.values.column; ++v) {
    a.column[v] = path == Path::f64 ? static_cast<const void*>(base + p.column_values + v * columns)
                                    : narrow_.data() + p.narrow + v * columns;
  }
  for (int q = 0; q < sums; ++q) {
    if (over(Over::row, q)) {
      a.row_sums[q] = base + u.row_sums + q * u.rows;
      if (cleared(q)) std::fill_n(a.row_sums[q], u.rows, 0.0);
    } else if (over(Over::column, q)) {
      a.column_sums[q] = base + u.column_sums + q * u.columns;
      if (cleared(q)) std::fill_n(a.column_sums[q], u.columns, 0.0);
    }
  }
  return a;
}

template <class T>
void Norms::add_up(int q, const T* summands, size_t tensor, bool in_blocks) {
  constexpr int kLanes = 16;
  const Plan& p = plans_[tensor];
  for (const Unit& u : units(tensor)) {
    NormArgs a = arguments(tensor, u, Path::f32, q);
    for (Index at = u.first, end = u.first + u.n; at < end;) {
      const Index row = at / p.view.columns, column = at % p.view.columns;
      Index length = std::min(end - at, p.view.columns - column);
      if (in_blocks) length = std::min(length, kBlock - at % kBlock);
      if (over(Over::column, q)) {
        double* to =
            a.column_sums[q] + row / p.view.rows * p.view.columns + column - u.first_column;
        for (Index i = 0; i < length; ++i) to[i] += static_cast<double>(summands[at + i]);
      } else {
        double lanes[kLanes] = {};
        for (Index i = 0; i < length; ++i) {
          lanes[i % kLanes] += static_cast<double>(summands[at + i]);
        }
        for (int width = kLanes / 2; width > 0; width /= 2) {
          for (int l = 0; l < width; ++l) lanes[l] += lanes[l + width];
        }
        (over(Over::row, q) ? a.row_sums[q][row - u.first_row] : a.sums[q]) += lanes[0];
      }
      at += length;
    }
  }
}
template void Norms::add_up(int, const float*, size_t, bool);
template void Norms::add_up(int, const double*, size_t, bool);

template <class T>
void Norms::spread(Over what, int value, size_t tensor, T* out) const {
  const Plan& p = plans_[tensor];
  const View& v = p.view;
  const double* rows = row_values(tensor, value);
  const double* columns = numbers_.data() + p.column_values + value * v.batches * v.columns;
  for (Index row = 0; row < v.batches * v.rows; ++row) {
    for (Index c = 0; c < v.columns; ++c) {
      *out++ =
          static_cast<T>(what == Over::row ? rows[row] : columns[row / v.rows * v.columns + c]);
    }
  }
}
template void Norms::spread(Over, int, size_t, float*) const;
template void Norms::spread(Over, int, size_t, double*) const;

bool Norms::wants(const Job& job, int pass) const {
  if (job.tensor->n == 0 || (job.passes >> pass & 1) == 0) return false;
  return is_wanted(rule_.passes[static_cast<size_t>(pass)],
                   [&](int i) { return tensor_value(job.tensor->index, i); });
}

double Norms::tensor_value(size_t tensor, int value) const {
  return numbers_[plans_[tensor].tensor_values + static_cast<size_t>(value)];
}

const double* Norms::row_values(size_t tensor, int value) const {
  const Plan& p = plans_[tensor];
  return numbers_.data() + p.row_values + value * p.view.batches * p.view.rows;
}

bool Norms::many_vectors(size_t tensor) const {
  const View& v = plans_[tensor].view;
  return v.matrix && v.batches * (v.rows + v.columns) > 4096;
}

void Norms::collect(int pass, const Job& job, int part, int parts) {
  const Plan& p = plans_[job.tensor->index];
  double* base = numbers_.data();
  const Index rows = p.view.batches * p.view.rows, columns = p.view.batches * p.view.columns;
  // This part of `count` numbers that begin at `to`, of which a unit has [first, first + n).
  const auto add = [&](size_t to, Index count, auto sums_of) {
    const Index low = count * part / parts, high = count * (part + 1) / parts;
    double* out = base + to;
    std::fill(out + low, out + high, 0.0);
    for (size_t i = 0; i < p.unit_count; ++i) {
      const auto [from, first, n] = sums_of(units_[p.first_unit + i]);
      const double* sums = base + from - first;
      for (Index k = std::max(low, first); k < std::min(high, first + n); ++k) out[k] += sums[k];
    }
  };
  for (int q = 0; q < static_cast<int>(rule_.sums.size()); ++q) {
    const Sum& sum = rule_.sums[static_cast<size_t>(q)];
    const auto at = [q](size_t first, Index n) { return first + static_cast<size_t>(q * n); };
    if ((sum.passes >> pass & 1) == 0) continue;
    if (sum.over == Over::tensor) {
      add(at(p.totals, 1), 1,
          [&](const Unit& u) { return std::tuple(at(u.sums, 1), Index{0}, Index{1}); });
    } else if (p.view.matrix && sum.over == Over::row) {
      add(at(p.rows, rows), rows,
          [&](const Unit& u) { return std::tuple(at(u.row_sums, u.rows), u.first_row, u.rows); });
    } else if (p.view.matrix) {
      add(at(p.columns, columns), columns, [&](const Unit& u) {
        return std::tuple(at(u.column_sums, u.columns), u.first_column, u.columns);
      });
    }
  }
}

Vectors<double> Norms::vectors(const Plan& p) {
  double* base = numbers_.data();
  const Index rows = p.view.batches * p.view.rows, columns = p.view.batches * p.view.columns;
  Vectors<double> v{};
  v.view = p.view;
  v.totals = base + p.totals;
  v.tensor_values = base + p.tensor_values;
  if (!p.view.matrix) return v;
  for (size_t q = 0; q < rule_.sums.size(); ++q) {
    v.row_sums[q] = base + p.rows + static_cast<Index>(q) * rows;
    v.column_sums[q] = base + p.columns + static_cast<Index>(q) * columns;
  }
  for (int j = 0; j < detail::kMaxStates; ++j) v.states[j] = base + p.states[j];
  for (int i = 0; i < rule_.values.row; ++i) v.row_values[i] = base + p.row_values + i * rows;
  for (int i = 0; i < rule_.values.column; ++i) {
    v.column_values[i] = base + p.column_values + i * columns;
  }
  return v;
}

void Norms::copy_states(const Plan& p, const Tensor& t, bool back) {
  for (size_t j = 0; j < rule_.info.states.size(); ++j) {
    const StatePer per = rule_.info.states[j].per;
    if (!p.view.matrix || !is_vector(per)) continue;
    const Index n = p.view.batches * (per == StatePer::row ? p.view.rows : p.view.columns);
    double* numbers = numbers_.data() + p.states[j];
    const auto copy = [&](auto* stored) {
      for (Index i = 0; i < n; ++i) {
        if (back) {
          stored[i] = static_cast<std::remove_pointer_t<decltype(stored)>>(numbers[i]);
        } else {
          numbers[i] = stored[i];
        }
      }
    };
    t.state_storage[j] == Storage::f64 ? copy(static_cast<double*>(t.state[j]))
                                       : copy(static_cast<float*>(t.state[j]));
  }
}

void Norms::between(int pass, const Job& job) {
  const Tensor& t = *job.tensor;
  if (t.n == 0) return;
  const Plan& p = plans_[t.index];
  // Only what comes of rows and columns changes their states and numbers.
  const bool vectors_change = p.view.matrix && rule_.adds_by_sides(pass);
  if (vectors_change) copy_states(p, t, false);
  Vectors<double> v = vectors(p);
  rule_.between(pass, v, job.coef);
  if (!vectors_change) return;
  copy_states(p, t, true);
  const Index n = rule_.values.column * p.view.batches * p.view.columns;
  for (Index i = 0; i < n; ++i) {
    narrow_[p.narrow + static_cast<size_t>(i)] =
        static_cast<float>(numbers_[p.column_values + static_cast<size_t>(i)]);
  }
}

}  // namespace gallop::cpu
