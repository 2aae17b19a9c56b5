// SPDX-License-Identifier: MIT
// The kernels of one rule on one device: linked in, or compiled when they are first asked for.
#pragma once

#include <map>
#include <string>

#include "cuda/step_data.h"
#include "gallop/types.h"

namespace gallop {
struct Rule;
namespace jit {
class Unit;
}
}  // namespace gallop

namespace gallop::cuda {

// How the tensors of a launch lie in memory, where kernels are compiled for that.
struct Formats {
  Storage param = Storage::f32, grad = Storage::f32, state[detail::kMaxStates] = {};
  friend auto operator<=>(const Formats&, const Formats&) = default;
};

class Kernels {
 public:
  // Throws when there are none and none can be compiled.
  Kernels(const Rule& rule, Mode mode, int device);

  bool linked_in() const { return linked_in_; }
  // Whether tensors of different formats need kernels of their own.
  bool fits_formats() const;
  // Of an entry, or of a pass; null: a pass with nothing to do. May compile, and throw.
  const void* update(int entry, unsigned present, Kind kind, const Formats& formats);
  const void* numbers(int entry);
  const void* between(int pass);
  const void* look_at_bases();
  // One that writes parameters, to end a step with; there always is one.
  const void* last_pass();

 private:
  const void* compiled(const std::string& header, const std::string& kernel);
  bool has_pass(int pass, unsigned present) const;

  const Rule& rule_;
  bool linked_in_, fits_;
  int device_;
  std::map<std::string, const void*> known_;
  // Asked for in every step.
  std::map<int, const void*> numbers_, between_;
  const void *bases_ = nullptr, *last_ = nullptr;
};

// The kernel that an expression names in a translation unit, compiled or from the cache; what is
// loaded stays. Throws what the compiler says.
const void* load_kernel(const jit::Unit& unit, const std::string& kernel, int device);

}  // namespace gallop::cuda
