// SPDX-License-Identifier: MIT
// The kernels of one rule on one device: linked in, or compiled when they are first asked for.
#pragma once

#include <string>
#include <vector>

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
  bool fits_formats() const { return fits_; }

  enum class What {
    update,         // by an entry, or a pass
    numbers,        // of an entry, for mode unfused
    between,        // what comes after a pass
    look_at_bases,  // of a rule that has some
    end             // a pass that writes parameters, to end a step with; there always is one
  };
  struct Wanted {
    What what;
    int number = 0;  // of the entry or pass
    unsigned present = 0;
    Kind kind = Kind::f32;
    Formats formats = {};
  };
  // Those that are not linked in are compiled, side by side. Null: a pass with nothing to do.
  // Throws what the compiler says.
  std::vector<const void*> get(const std::vector<Wanted>& wanted) const;

 private:
  // In a header, by an expression; empty: nothing to do.
  struct Name {
    std::string header, kernel;
  };
  Name name_of(const Wanted& w) const;
  const void* linked(const Wanted& w) const;
  int last_pass() const;

  const Rule& rule_;
  bool linked_in_, fits_;
  int device_;
};

// The kernel that an expression names in a translation unit, compiled or from the cache; what is
// loaded stays. Throws what the compiler says.
const void* load_kernel(const jit::Unit& unit, const std::string& kernel, int device);

}  // namespace gallop::cuda
