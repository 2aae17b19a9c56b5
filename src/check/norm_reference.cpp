// SPDX-License-Identifier: MIT
// The reference of rules with norms: every pass over all elements, sums and what is made of them,
// with bounds.
#include <algorithm>
#include <cmath>

#include "check/data.h"
#include "check/matrix_reference.h"
#include "check/reference.h"
#include "optimizer/impl.h"

namespace gallop::check {
namespace {

// Sums and what is made of them are double's: beside fp32 their own roundings are nothing.
class InDouble {
 public:
  explicit InDouble(bool elements_are_too) : before_(Bounded::arithmetic.own) {
    if (!elements_are_too) Bounded::arithmetic.own = 0;
  }
  ~InDouble() { Bounded::arithmetic.own = before_; }
  InDouble(const InDouble&) = delete;
  InDouble& operator=(const InDouble&) = delete;

 private:
  double before_;
};

using Numbers = std::vector<Bounded>;

size_t at(int64_t i) { return static_cast<size_t>(i); }

// Everything there is of one tensor.
struct Whole {
  View view;
  int64_t n, rows, columns;
  std::vector<Numbers> row_sums, column_sums, row_values, column_values, vectors;
  Numbers totals, tensor_values;

  Whole(const Rule& rule, const View& v, int64_t elements) : view(v), n(elements) {
    rows = v.matrix ? v.batches * v.rows : 0;
    columns = v.matrix ? v.batches * v.columns : 0;
    const size_t sums = rule.sums.size();
    totals.assign(sums, Bounded::exact(0));
    row_sums.assign(sums, Numbers(at(rows), Bounded::exact(0)));
    column_sums.assign(sums, Numbers(at(columns), Bounded::exact(0)));
    tensor_values.assign(detail::kMaxTensorValues, Bounded::exact(0));
    row_values.assign(detail::kMaxRowValues, Numbers(at(rows), Bounded::exact(0)));
    column_values.assign(detail::kMaxColumnValues, Numbers(at(columns), Bounded::exact(0)));
    vectors.resize(rule.info.states.size());
    for (size_t j = 0; j < vectors.size(); ++j) {
      const StateInfo& state = rule.info.states[j];
      if (state.per == StatePer::element || !v.matrix) continue;
      vectors[j].resize(at(state_elements(v, n, state)));
    }
  }

  int64_t row_of(int64_t i) const { return i / view.columns; }
  int64_t column_of(int64_t i) const {
    return row_of(i) / view.rows * view.columns + i % view.columns;
  }
  Seen<Bounded> seen(int64_t i) const {
    Seen<Bounded> x;
    const auto narrowed = [](const Bounded& b) { return Bounded::rounded(b.value, b.error); };
    for (int v = 0; v < detail::kMaxTensorValues; ++v) x.tensor[v] = narrowed(tensor_values[at(v)]);
    if (!view.matrix) return x;
    for (int v = 0; v < detail::kMaxRowValues; ++v) {
      x.row[v] = narrowed(row_values[at(v)][at(row_of(i))]);
    }
    for (int v = 0; v < detail::kMaxColumnValues; ++v) {
      x.column[v] = narrowed(column_values[at(v)][at(column_of(i))]);
    }
    return x;
  }
  // Whether the pass is to be run, with its sums empty.
  bool begin(const Rule& rule, int pass) {
    const auto number = [&](int i) { return tensor_values[at(i)].value; };
    if (!is_wanted(rule.passes[at(pass)], number)) return false;
    for (size_t q = 0; q < rule.sums.size(); ++q) {
      if ((rule.sums[q].passes >> pass & 1) == 0) continue;
      totals[q] = Bounded::exact(0);
      std::fill(row_sums[q].begin(), row_sums[q].end(), Bounded::exact(0));
      std::fill(column_sums[q].begin(), column_sums[q].end(), Bounded::exact(0));
    }
    return true;
  }

  void add(const Rule& rule, int pass, int64_t i, const Bounded* sums) {
    for (size_t q = 0; q < rule.sums.size(); ++q) {
      const Sum& s = rule.sums[q];
      if ((s.passes >> pass & 1) == 0 || (s.over != Over::tensor && !view.matrix)) continue;
      Bounded& to = s.over == Over::tensor ? totals[q]
                    : s.over == Over::row  ? row_sums[q][at(row_of(i))]
                                           : column_sums[q][at(column_of(i))];
      to = to + sums[q];
    }
  }
  void between(const Rule& rule, int pass, const double* coef) {
    Vectors<Bounded> v{};
    v.view = view;
    v.totals = totals.data();
    v.tensor_values = tensor_values.data();
    for (size_t q = 0; q < rule.sums.size(); ++q) {
      v.row_sums[q] = row_sums[q].data();
      v.column_sums[q] = column_sums[q].data();
    }
    for (size_t j = 0; j < vectors.size(); ++j) v.states[j] = vectors[j].data();
    for (size_t i = 0; i < row_values.size(); ++i) v.row_values[i] = row_values[i].data();
    for (size_t i = 0; i < column_values.size(); ++i) v.column_values[i] = column_values[i].data();
    rule.reference_between(Bounded::arithmetic, pass, v, coef);
  }
};

// Later passes read what was stored in blocks that share a scale.
void add_storing(const StateView& v, Numbers& all, size_t width, size_t j) {
  for (int64_t first = 0; first < v.size; first += v.block) {
    const int64_t last = std::min(first + v.block, v.size);
    double scale = 0;
    for (int64_t i = first; i < last; ++i) {
      scale = std::max(scale, std::abs(all[at(i) * width + 1 + j].value));
    }
    for (int64_t i = first; i < last; ++i) {
      Bounded& x = all[at(i) * width + 1 + j];
      const double reach = std::abs(x.value) + x.error * 0x1p-24;
      x.error += stored_within(v.format, v.nonneg, std::copysign(reach, x.value), scale) / 0x1p-24;
    }
  }
}

// What a stage makes of the planes among `all` and of the squares; they come out exact, and are
// judged as a whole.
void run_stage(const Rule& rule, int pass, Whole& whole, const std::vector<double>& hyper,
               Clock clock, Numbers& all, size_t width) {
  std::vector<PlainLinear::Numbers> planes(width - 1), rows;
  for (size_t j = 0; j + 1 < width; ++j) {
    for (const Bounded& b : whole.vectors[j]) planes[j].push_back(b.value);
    if (rule.info.states[j].per != StatePer::element) continue;
    planes[j].resize(at(whole.n));
    for (size_t i = 0; i < at(whole.n); ++i) planes[j][i] = all[i * width + 1 + j].value;
  }
  for (const Numbers& v : whole.row_values) {
    for (rows.emplace_back(); const Bounded& b : v) rows.back().push_back(b.value);
  }
  PlainLinear on(whole.view, rule.bases(hyper.data(), clock), planes, rows);
  rule.stage(pass, on, hyper.data());
  for (size_t j = 0; j + 1 < width; ++j) {
    for (size_t i = 0; i < whole.vectors[j].size(); ++i) {
      whole.vectors[j][i] = Bounded::exact(planes[j][i]);
    }
    if (rule.info.states[j].per != StatePer::element) continue;
    for (size_t i = 0; i < at(whole.n); ++i) {
      Bounded& to = all[i * width + 1 + j];
      if (to.value != planes[j][i]) to = Bounded::exact(planes[j][i]);
    }
  }
}

}  // namespace

void Reference::expect_norms(const double* coef, const Optimizer& optimizer, size_t param,
                             const void* grad) {
  const Param& p = optimizer.param(param);
  const size_t width = 1 + rule_.info.states.size();
  int64_t n = 1;
  for (int64_t d : p.shape) n *= d;
  wanted_vectors_.clear();
  judged_whole_ = false;
  if (n == 0) return;
  Whole whole(rule_, view_of(rule_, p, n, hyper_.data()), n);
  const bool wide = formats_.param == DType::f64;

  Numbers all(at(n) * width, Bounded::exact(0));
  std::vector<StateView> stored(width);
  for (const StateView& v : optimizer.states(param)) {
    for (size_t j = 0; j + 1 < width; ++j) {
      if (rule_.info.states[j].name != v.name) continue;
      stored[1 + j] = v;
      for (int64_t i = 0; i < v.size; ++i) {
        Bounded& to = has_values(j) ? all[at(i) * width + 1 + j] : whole.vectors[j][at(i)];
        to = state_before(v, i);
      }
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    all[at(i) * width] = Bounded::exact(value_before(optimizer, param, i));
  }

  const unsigned active = rule_.active_passes(hyper_.data(), whole.view.matrix);
  for (int pass = 0; active >> pass != 0; ++pass) {
    if ((active >> pass & 1) == 0 || !whole.begin(rule_, pass)) continue;
    const Pass& info = rule_.passes[at(pass)];
    for (int64_t i = 0; i < n; ++i) {
      Bounded* element = all.data() + at(i) * width;
      Bounded copy[1 + detail::kMaxStates], sums[detail::kMaxSums];
      std::copy(element, element + width, copy);
      const Bounded g =
          info.grad ? Bounded::exact(read_element(grad, p.grad_dtype, i)) : Bounded::exact(0);
      rule_.reference_pass(Bounded::arithmetic, pass, whole.view.matrix, copy, g, copy + 1, coef,
                           whole.seen(i), sums);
      if ((info.writes & kWritesParam) != 0) element[0] = copy[0];
      for (size_t j = 0; j + 1 < width; ++j) {
        if ((info.writes >> j & 1) == 0) continue;
        element[1 + j] = copy[1 + j];
        if (stored[1 + j].dtype != DType::bf16 || rule_.is_last(active, pass)) continue;
        // Later passes read what was stored.
        const bool random = formats_.state_rounding == Rounding::stochastic;
        element[1 + j].error +=
            half_spacing(DType::bf16, std::abs(copy[1 + j].value)) * (random ? 2 : 1) / 0x1p-24;
      }
      const InDouble sums_are(wide);
      whole.add(rule_, pass, i, sums);
    }
    if (rule_.adds_up(pass)) {
      const InDouble numbers_are(wide);
      whole.between(rule_, pass, coef);
    }
    for (size_t j = 0; j + 1 < width && !rule_.is_last(active, pass); ++j) {
      const bool written = (info.writes >> j & 1) != 0;
      if (written && stored[1 + j].block != 0) add_storing(stored[1 + j], all, width, j);
    }
    if ((rule_.stages >> pass & 1) != 0 && whole.view.matrix) {
      run_stage(rule_, pass, whole, hyper_, clock_, all, width);
      judged_whole_ = true;
    }
  }

  before_.clear();
  for (int64_t i = 0; i < n; i = next_judged(i, n)) {
    if (judged_whole_) before_.push_back(value_before(optimizer, param, i));
    const Bounded* element = all.data() + at(i) * width;
    wanted_.insert(wanted_.end(), element, element + width);
  }
  wanted_vectors_ = std::move(whole.vectors);
}

}  // namespace gallop::check
