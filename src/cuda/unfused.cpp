// SPDX-License-Identifier: MIT
#include "cuda/unfused.h"

#include <algorithm>
#include <vector>

#include "cuda/arrays.h"
#include "cuda/norm_arrays.h"
#include "cuda/runtime.h"
#include "optimizer/impl.h"
#include "optimizer/unfused.h"

namespace gallop::cuda {
namespace {

using cpu::Op;
using cpu::Operand;

cudaStream_t stream_of(const UnfusedUpdate& u) { return static_cast<cudaStream_t>(u.stream); }

class GpuArrays final : public cpu::ArrayEngine {
 public:
  GpuArrays(const UnfusedUpdate& update, Target target, Arithmetic arithmetic, Index n)
      : update_(update),
        target_(target),
        arithmetic_(arithmetic),
        f64_(arithmetic == Arithmetic::f64),
        n_(n) {}

  void pass(Op op, void* out, const Operand* in) override {
    const cudaStream_t stream = stream_of(update_);
    // Copies are what leaves the temporaries.
    check(op == Op::copy ? launch_write(f64_, update_.step, target_, out, in[0], n_, stream)
                         : launch_pass(arithmetic_, op, out, in, n_, stream),
          "launching a pass");
  }
  // Memory given back is used again only by later passes of the same stream.
  void* take() override { return update_.scratch.take(static_cast<size_t>(n_) * (f64_ ? 8 : 4)); }
  void share(void* memory) override { update_.scratch.share(memory); }
  void give(void* memory) override { update_.scratch.give(memory); }

 private:
  const UnfusedUpdate& update_;
  Target target_;
  Arithmetic arithmetic_;
  bool f64_;
  Index n_;
};

template <class T>
UnfusedNumbers<T> numbers_at(const UnfusedUpdate& u, cpu::ArrayEngine& engine,
                             const double* where) {
  using cpu::Array;
  UnfusedNumbers<T> n;
  for (int i = 0; i < u.rule.coefs; ++i) n.coef[i] = Array<T>::scalar(engine, where + i);
  n.scaled = true;  // by how much, only the device knows
  n.scale = Array<T>::scalar(engine, where + kScaleAt);
  n.clamped = n.factored = u.step.clip_value > 0;
  n.limit = static_cast<T>(u.step.clip_value);
  n.factor = Array<T>::scalar(engine, where + kFactorAt);
  return n;
}

// One of a tensor's arrays, decoded into fp32 unless it is that already.
struct Field {
  void* data = nullptr;
  void* low = nullptr;
  Storage storage = Storage::f32;
  cpu::Temporary<float> decoded;

  float* values() const {
    return decoded.get() != nullptr ? decoded.get() : static_cast<float*>(data);
  }
};

}  // namespace

template <class Apply>
void UnfusedUpdate::with_arrays(const Slot& slot, const Target& target, const double* numbers,
                                bool grad, unsigned writes, void* const* states,
                                Apply apply) const {
  const cpu::Tensor& t = slot.tensor;
  constexpr int kFields = 2 + detail::kMaxStates;
  Field fields[kFields];
  fields[0] = {t.param, t.low, t.param_storage, {}};
  if (grad) fields[1] = {t.grad, nullptr, t.grad_storage, {}};
  for (size_t j = 0; j < rule.info.states.size(); ++j) {
    if ((t.present >> j & 1) == 0 || rule.info.states[j].per != StatePer::element) continue;
    fields[2 + j] = {states[j], t.scale[j], t.state_storage[j], {}};
  }
  if (t.param_storage == Storage::f64) {
    GpuArrays engine(*this, target, Arithmetic::f64, t.n);
    double* data[kFields];
    for (int i = 0; i < kFields; ++i) data[i] = static_cast<double*>(fields[i].data);
    return apply(engine, data, numbers_at<double>(*this, engine, numbers));
  }

  // As the kernels that this stands beside.
  const bool rough = t.path() == Path::quantised && rule.passes.empty();
  GpuArrays engine(*this, target, rough ? Arithmetic::rough : Arithmetic::f32, t.n);
  float* data[kFields] = {};
  for (int i = 0; i < kFields; ++i) {
    Field& f = fields[i];
    if (f.data == nullptr) continue;
    if (f.storage != Storage::f32) {
      f.decoded = cpu::Temporary<float>(engine);
      check(launch_decode(f.data, f.low, f.storage, f.decoded.get(), t.n, stream_of(*this)),
            "decoding");
    }
    data[i] = f.values();
  }
  Settled settled{};
  bool quantised = false;
  for (int j = 0; j < detail::kMaxStates; ++j) {
    const Storage storage = fields[2 + j].storage;
    if (data[2 + j] == nullptr || !is_quantised(storage)) continue;
    quantised = true;
    if (grad && is_bitsandbytes(storage) && rule.passes.empty()) settled.grad = data[1];
    if (writes >> j & 1) settled.state[j] = data[2 + j];
  }
  cpu::Temporary<float> before;
  if (settled.grad != nullptr) {
    std::copy(data + 2, data + kFields, settled.state);
    before = cpu::Temporary<float>(engine);
    const Operand param[3] = {{data[0], 0, nullptr}, {}, {}};
    check(launch_pass(Arithmetic::f32, Op::copy, before.get(), param, t.n, stream_of(*this)),
          "copying");
    settled.before = before.get();
    settled.param = data[0];
  }
  apply(engine, data, numbers_at<float>(*this, engine, numbers));
  if (quantised) {
    check(launch_settle(step, target, settled, t.n, stream_of(*this)), "settling states");
  }
  const Bits64 stream_base = static_cast<Bits64>(entry) * (detail::kMaxStates + 1);
  const auto encode = [&](const Field& f, Bits64 number) {
    if (f.decoded.get() == nullptr) return;
    check(launch_encode(step, target, stream_base + number, f.data, f.low, f.storage,
                        f.decoded.get(), t.n, stream_of(*this)),
          "encoding");
  };
  if (writes & kWritesParam) encode(fields[0], 0);
  for (int j = 0; j < detail::kMaxStates; ++j) {
    if (writes >> j & 1) encode(fields[2 + j], 1 + static_cast<Bits64>(j));
  }
}

void UnfusedUpdate::run(const Slot& slot, unsigned tensor, const double* numbers) const {
  if (slot.tensor.n == 0) return;
  const Entry& e = rule.entries[static_cast<size_t>(entry)];
  with_arrays(slot, {tensor, !e.grad}, numbers, e.grad, e.writes, slot.tensor.state,
              [&](auto& engine, auto* data, const auto& n) {
                update_arrays(rule, entry, engine, data, n);
              });
}

// Of the pass that `entry` is.
Target UnfusedUpdate::target_of(unsigned tensor, const NormTensor& norm) const {
  const Pass& p = rule.passes[static_cast<size_t>(entry)];
  const auto number = [&](int i) { return i < 0 ? nullptr : norm.tensor_values + i; };
  return {tensor, false, number(p.if_set), number(p.if_zero)};
}

void UnfusedUpdate::run_pass(const Slot& slot, unsigned tensor, const double* numbers,
                             const NormTensor& norm, void* const* states) const {
  const Pass& p = rule.passes[static_cast<size_t>(entry)];
  const bool matrix = slot.tensor.view.matrix, f64 = slot.tensor.param_storage == Storage::f64;
  with_arrays(
      slot, target_of(tensor, norm), numbers, p.grad, p.writes, states,
      [&]<class T>(cpu::ArrayEngine& engine, T** data, const UnfusedNumbers<T>& n) {
        using cpu::Array;
        Seen<Array<T>> x;
        std::vector<cpu::Temporary<T>> arrays;
        const auto spread_out = [&](Over over, int value) {
          arrays.emplace_back(engine);
          check(launch_spread(f64, norm, over, value, arrays.back().get(), slot.tensor.n, stream),
                "spreading numbers out");
          return Array<T>(engine, arrays.back().get());
        };
        for (int v = 0; v < rule.values.tensor; ++v) {
          x.tensor[v] = Array<T>::scalar(engine, norm.tensor_values + v);
        }
        for (int v = 0; matrix && v < rule.values.row; ++v) x.row[v] = spread_out(Over::row, v);
        for (int v = 0; matrix && v < rule.values.column; ++v) {
          x.column[v] = spread_out(Over::column, v);
        }
        pass_over_arrays(rule, entry, matrix, engine, data, n, x, [&](int q, const T* summands) {
          check(launch_add_up(f64, step, tensor, norm, q, rule.sums[static_cast<size_t>(q)].over,
                              summands, stream),
                "adding up");
        });
      });
}

void UnfusedUpdate::zero_grad(const Slot& slot, unsigned tensor, const NormTensor& norm) const {
  const cpu::Tensor& t = slot.tensor;
  const Target target = target_of(tensor, norm);
  const bool f64 = t.grad_storage == Storage::f64;
  if (f64 || t.grad_storage == Storage::f32) {
    check(launch_write(f64, step, target, t.grad, Operand{}, t.n, stream_of(*this)), "zeroing");
    return;
  }
  GpuArrays engine(*this, target, Arithmetic::f32, t.n);
  const cpu::Temporary<float> zeros(engine);
  const Operand none[3] = {};
  check(launch_pass(Arithmetic::f32, Op::add, zeros.get(), none, t.n, stream_of(*this)), "zeroing");
  check(launch_encode(step, target, 0, t.grad, nullptr, t.grad_storage, zeros.get(), t.n,
                      stream_of(*this)),
        "zeroing");
}

}  // namespace gallop::cuda
