// SPDX-License-Identifier: MIT
// The inside of an engine: what it keeps, and what a step is made of.
#pragma once

#include <map>
#include <vector>

#include "core/scratch.h"
#include "cuda/engine.h"
#include "cuda/matrices.h"
#include "cuda/memory.h"
#include "cuda/norms.h"
#include "cuda/table.h"
#include "optimizer/impl.h"

namespace gallop::cuda {

struct Engine::Impl {
  Impl(const Rule& r, const Options& o, const std::vector<Slot>& s,
       const std::vector<gallop::Group>& g)
      : rule(r),
        options(o),
        slots(s),
        groups(g),
        device(o.device.index),
        kernels(r, o.mode, device),
        scratch([this](size_t bytes) { return allocate(device, bytes); },
                [this](void* memory) { release(device, memory); }) {}

  const Rule& rule;
  const Options& options;
  const std::vector<Slot>& slots;
  const std::vector<gallop::Group>& groups;
  int device;
  Kernels kernels;
  int multiprocessors = 0;
  void* stream = nullptr;  // of the last step

  bool stale = true;   // device memory does not know all of slots and groups
  bool replan = true;  // of a rule with norms: other passes may have to run
  std::vector<size_t> new_grads;
  Buffer<Tensor> tensors;
  Buffer<void*> grads;
  Buffer<Group> group_data;
  Buffer<Progress> progress, group_progress;
  Buffer<Control> control;
  Buffer<double> partials;
  Table everything;
  NormPlan plan;            // of a rule with norms
  bool unfinished = false;  // its last launch did not end a step
  MatrixPlan matrices;      // of one over matrices
  struct Planned {
    const Table::Launch* launch;
    int pass;
    const void* kernel;
  };
  std::vector<Planned> planned;  // of the step in progress
  Table tiles;                   // of everything
  std::map<std::vector<size_t>, Table> subsets;
  // Of what launches of different tables share.
  std::vector<const void*> numbers_kernels, between_kernels;
  const void* ending_kernel = nullptr;
  std::map<const void*, int> resident;  // blocks of a kernel that fit on one multiprocessor
  Step step{};                          // of the step in progress
  Buffer<double> numbers;               // of mode unfused, kNumbers a tensor
  Scratch scratch;

  bool has_norms() const { return !rule.passes.empty(); }
  const MatrixPlan* matrix_plan() const { return rule.stages != 0 ? &matrices : nullptr; }

  // ---- engine_upload.cpp: what lies in device memory, and what is launched ----

  bool capturing() const;
  // What allocates cannot be captured.
  void refuse_capture(const char* what) const;
  void upload();
  // Hyper-parameters, steps and scalars as the host has them.
  void upload_numbers();
  void upload_grads();
  const Table& table_of(std::span<const size_t> params);
  // Finds the kernels of a table's launches; those that are not linked in are compiled.
  void get_kernels(Table& table);

  // ---- engine_norms.cpp: steps of rules with norms and over matrices ----

  // The launches of all passes in their order: batch after batch, in each pass after pass.
  void plan_passes(const Table& table);
  void update_norms(const Table& table, bool finish);
  // Of the one tensor of a launch.
  void pass_unfused(const Table& table, unsigned member, int pass, const Step& s);
  // What is made of a pass's sums, and products of matrices.
  void after_pass(const Table& table, int pass, unsigned batch, NormStep& ns);

  // ---- engine.cpp ----

  int resident_blocks(const void* kernel, int threads);
  void launch(const void* kernel, Step s, const char* what, int threads = kThreads);
  // As many blocks as fit, but no more than there is work for.
  void launch(const void* kernel, unsigned work, void* argument, const char* what,
              int threads = kThreads);
  void use(const Table& table);
  // Of mode unfused: what is the same for all elements of a tensor.
  void compute_numbers(int entry, const Table& table);
  void update_unfused(int entry, const Table& table, std::span<const size_t> params, bool finish);
};

// A parameter as kernels see it.
Tensor device_tensor(const Slot& s, size_t index, const MatrixPlan* matrices);
Group device_group(const Rule& rule, const gallop::Group& g);

}  // namespace gallop::cuda
