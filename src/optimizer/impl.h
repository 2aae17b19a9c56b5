// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "cpu/backend.h"
#include "cuda/engine.h"
#include "gallop/optimizer.h"
#include "jit/fitted.h"
#include "optimizer/memory.h"
#include "optimizer/rule.h"

namespace gallop {

inline constexpr size_t kMaxKnobs = 32;
using Scalars = std::array<double, detail::kMaxScalars>;

// A parameter with everything the optimizer knows of it.
struct Slot {
  Param param;
  cpu::Tensor tensor;
  size_t group;
  StateFormat format = StateFormat::f32;
  Bits64 id = 0;  // hash of the name: the same in any order and in any shard
  int64_t steps = 0;
  Scalars scalars{};
};

struct Group {
  GroupOptions options;
  std::vector<double> hyper;  // by knob
  int64_t steps = 0;
  Scalars scalars{};
  unsigned present = 0;
  Memory memory;  // of its parameters' states, masters and remainders
  std::vector<size_t> slots;
};

// Coefficients of one step, shared by all parameters of a group that are equally far.
struct Coefs {
  Clock clock;
  Scalars before, after;
  std::array<double, detail::kMaxCoefs> values;
};

struct Optimizer::Impl {
  Impl(std::string_view rule_name, const Options& opts);

  const Rule& rule;
  size_t lr_knob, clip_knob;  // clip_knob only when the rule clips
  Options options;
  cpu::Backend backend;
  std::optional<jit::FittedCpu> fitted;  // of mode compiled on the CPU
  std::unique_ptr<cuda::Engine> cuda;    // on a GPU
  std::vector<Group> groups;
  std::vector<Slot> slots;
  int64_t skipped = 0;
  int64_t not_finite = 0;  // on the CPU: before the backend began to count
  double grad_norm = 0;
  bool evaluating = false;
  bool lacks_matrix = false;  // there are elements, and none of them in a matrix

  // The step in progress; the vectors are reserved when groups are added.
  bool in_step = false;
  bool applied = false;
  double norm_factor = 1;
  StepArgs args;
  std::vector<Coefs> coefs;
  std::vector<size_t> group_coefs;     // where a group's coefficients begin
  std::vector<uint8_t> updated;        // by slot: had its update in this step
  std::vector<size_t> chosen;          // slots to update
  std::vector<uint32_t> chosen_coefs;  // index into coefs
  std::vector<cpu::Job> jobs;
  std::vector<size_t> everything;  // 0, 1, 2, ...

  // On a GPU, the device counts steps: pull() fetches what it knows, push() tells it.
  void pull();
  void push();

  Group& group_at(size_t g);
  Slot& slot_at(size_t i);
  size_t knob_at(std::string_view knob) const;
  int entry_at(std::string_view entry) const;

  double lr_of(const Group& g) const;
  void check_value(size_t knob, double value) const;
  void change(size_t g, size_t knob, double value);
  void check_set(Group& group, size_t knob, double value) const;
  void check_together(const std::vector<double>& hyper) const;
  Group make_group(const GroupOptions& options) const;  // without parameters
  Slot make_slot(const Param& param, const Group& group) const;
  double base_scale(const Group& g) const;
  bool needs_norm() const;
  template <class F>
  void for_bytes(F f) const;
  void compile_for(const Group& group, std::vector<Slot>& added);
  void reserve();
  Scalars initial_scalars() const;
  void compute_coefs(const Group& g, Coefs& c) const;
  void find_coefs(size_t slot, int entry);
  void choose(std::span<const size_t> params);
  void make_jobs(int entry, bool with_grad);
  void apply(int entry, bool zero_grad);
};

// Which formats parameters that are about to be added have; returns how many bytes they need.
size_t plan_group(const Rule& rule, Device device, const Group& group, std::vector<Slot>& added);
// The same with their memory.
void prepare_group(const Rule& rule, const Options& options, Group& group,
                   std::vector<Slot>& added);
// Which states a parameter keeps, and how they lie in memory: by its shape, role and slot.format.
void choose_states(const Rule& rule, const Group& group, Slot& slot, Device device);
// A parameter as the rule sees it; throws where the rule is not for such.
View view_of(const Rule& rule, const Param& p, int64_t elements, const double* hyper);
// How many values a state has of a tensor of n elements; 0 if its side has none.
int64_t state_elements(const View& v, int64_t n, const StateInfo& s);
// One codec's storage of a state of this format. averages: how many such states its parameter has.
cpu::Storage state_storage(StateFormat format, Rounding rounding, bool nonneg, int averages);
// n values of a storage on the host, by plain code; and the other way round.
std::vector<float> decoded(cpu::Storage storage, const void* data, const void* scales, int64_t n);
void encode(cpu::Storage storage, const std::vector<float>& values, void* data, void* scales);
// Sets a master or remainder from the 16-bit parameter.
void fill_low(const Slot& slot, Device device);

}  // namespace gallop
