// SPDX-License-Identifier: MIT
#include "cuda/unfused.h"

#include "cuda/arrays.h"
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
  GpuArrays(const UnfusedUpdate& update, Target target, bool f64, Index n)
      : update_(update), target_(target), f64_(f64), n_(n) {}

  void pass(Op op, void* out, const Operand* in) override {
    const cudaStream_t stream = stream_of(update_);
    // Copies are what leaves the temporaries.
    check(op == Op::copy ? launch_write(f64_, update_.step, target_, out, in[0], n_, stream)
                         : launch_pass(f64_, op, out, in, n_, stream),
          "launching a pass");
  }
  // Memory given back is used again only by later passes of the same stream.
  void* take() override { return update_.scratch.take(static_cast<size_t>(n_) * (f64_ ? 8 : 4)); }
  void give(void* memory) override { update_.scratch.give(memory); }

 private:
  const UnfusedUpdate& update_;
  Target target_;
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
  std::shared_ptr<float> decoded;

  float* values() const { return decoded ? decoded.get() : static_cast<float*>(data); }
};

}  // namespace

void UnfusedUpdate::run(const Slot& slot, unsigned tensor, const double* numbers) const {
  const cpu::Tensor& t = slot.tensor;
  if (t.n == 0) return;
  const Entry& e = rule.entries[static_cast<size_t>(entry)];
  const Target target{tensor, !e.grad};
  constexpr int kFields = 2 + detail::kMaxStates;
  Field fields[kFields];
  fields[0] = {t.param, t.low, t.param_storage, {}};
  if (e.grad) fields[1] = {t.grad, nullptr, t.grad_storage, {}};
  for (int j = 0; j < detail::kMaxStates; ++j) {
    if (t.present >> j & 1) fields[2 + j] = {t.state[j], nullptr, t.state_storage[j], {}};
  }
  if (t.param_storage == Storage::f64) {
    GpuArrays engine(*this, target, true, t.n);
    double* data[kFields];
    for (int i = 0; i < kFields; ++i) data[i] = static_cast<double*>(fields[i].data);
    update_arrays<double>(rule, entry, engine, data, numbers_at<double>(*this, engine, numbers));
    return;
  }

  GpuArrays engine(*this, target, false, t.n);
  float* data[kFields] = {};
  for (int i = 0; i < kFields; ++i) {
    Field& f = fields[i];
    if (f.data == nullptr) continue;
    if (f.storage != Storage::f32) {
      f.decoded = engine.temporary<float>();
      check(launch_decode(f.data, f.low, f.storage, f.decoded.get(), t.n, stream_of(*this)),
            "decoding");
    }
    data[i] = f.values();
  }
  update_arrays<float>(rule, entry, engine, data, numbers_at<float>(*this, engine, numbers));
  const Bits64 stream_base = static_cast<Bits64>(entry) * (detail::kMaxStates + 1);
  const auto encode = [&](const Field& f, Bits64 number) {
    if (!f.decoded) return;
    check(launch_encode(step, target, stream_base + number, f.data, f.low, f.storage,
                        f.decoded.get(), t.n, stream_of(*this)),
          "encoding");
  };
  if (e.writes & kWritesParam) encode(fields[0], 0);
  for (int j = 0; j < detail::kMaxStates; ++j) {
    if (e.writes >> j & 1) encode(fields[2 + j], 1 + static_cast<Bits64>(j));
  }
}

}  // namespace gallop::cuda
