// SPDX-License-Identifier: MIT
// Steps of rules with norms and over matrices.
#include <cuda_runtime_api.h>

#include "cuda/engine_impl.h"
#include "cuda/runtime.h"
#include "cuda/unfused.h"

namespace gallop::cuda {

void Engine::Impl::plan_passes(const Table& table) {
  planned.clear();
  const int passes = static_cast<int>(rule.passes.size());
  for (unsigned batch = 0; batch <= matrices.batches(); ++batch) {
    for (int pass = 0; pass < passes; ++pass) {
      for (const Table::Launch& l : table.launches()) {
        if (l.batch != batch || (l.passes >> pass & 1) == 0) continue;
        // Null: the pass has nothing to do, but what is made of its sums may.
        planned.push_back({&l, pass, l.kernels[static_cast<size_t>(pass)]});
      }
    }
  }
}

void Engine::Impl::update_norms(const Table& table, bool finish) {
  plan_passes(table);
  if (options.mode == Mode::unfused) compute_numbers(0, table);
  NormStep ns{step, plan.tensors(), plan.marks(), plan.mark_count(), false, nullptr};
  if (unfinished) plan.clear_marks(stream);
  unfinished = !finish;
  ns.step.member_count = 0;
  ns.step.finish = finish;
  if (planned.empty()) {  // nothing to update, only to count
    ns.step.first_chunk = ns.step.last_chunk = 0;
    return launch(ending_kernel, 0, &ns, "ending a step", kTileThreads);
  }
  for (size_t i = 0; i < planned.size(); ++i) {
    const auto& [l, pass, k] = planned[i];
    const bool ends = l->passes >> pass == 1;  // the step of these tensors
    ns.step.first_chunk = l->first_chunk;
    ns.step.last_chunk = l->last_chunk;
    ns.step.members = table.members() + l->first_member;
    ns.step.member_count = ends ? l->member_count : 0;
    ns.step.zero_grad = step.zero_grad && rule.is_last(l->passes, pass);
    ns.step.finish = finish && i + 1 == planned.size();
    const bool begins = i == 0 || planned[i - 1].launch->batch != l->batch;
    if (begins) {
      ns.backward = false;
    } else if (planned[i - 1].pass != pass) {
      ns.backward = !ns.backward;
    }
    if (begins && l->batch != 0) matrices.begin(l->batch, ns, stream);
    if (options.mode == Mode::unfused) {
      pass_unfused(table, l->first_member, pass, ns.step);
      ns.step.last_chunk = ns.step.first_chunk;  // nothing left to update, only to count
    }
    if (k != nullptr) {
      launch(k, ns.step.last_chunk - ns.step.first_chunk, &ns, "launching a pass", kTileThreads);
    }
    const Planned* next = i + 1 < planned.size() ? &planned[i + 1] : nullptr;
    if (next != nullptr && next->pass == pass && next->launch->batch == l->batch) continue;
    after_pass(table, pass, l->batch, ns);
  }
}

void Engine::Impl::pass_unfused(const Table& table, unsigned member, int pass, const Step& s) {
  const size_t i = table.member(member);
  const cpu::Tensor& t = slots[i].tensor;
  if (t.n == 0 || t.grad == nullptr) return;
  const UnfusedUpdate unfused{rule, pass, s, scratch, stream};
  const Tensor on_device = device_tensor(slots[i], i, matrix_plan());
  unfused.run_pass(slots[i], static_cast<unsigned>(i), numbers.data() + i * kNumbers,
                   plan.tensor(i), on_device.state);
  if (s.zero_grad) {
    unfused.zero_grad(slots[i], static_cast<unsigned>(i), plan.tensor(i));
  }
}

void Engine::Impl::after_pass(const Table& table, int pass, unsigned batch, NormStep& ns) {
  for (const Table::Launch& l : table.launches()) {
    const bool ran = l.batch == batch && (l.passes >> pass & 1) != 0;
    if (!rule.adds_up(pass) || !ran || l.member_count == 0) continue;
    void* arguments[] = {&ns};
    const void* k = between_kernels[static_cast<size_t>(pass)];
    constexpr const char* kDoing = "launching what comes between passes";
    const auto on = static_cast<cudaStream_t>(stream);
    const auto launch_shares = [&](unsigned first, unsigned blocks) {
      ns.shares = table.shares() + first;
      if (blocks == 0) return;
      check(cudaLaunchKernel(k, dim3(blocks), dim3(kThreads), arguments, 0, on), kDoing);
    };
    if (l.in_teams.empty() || !rule.adds_by_sides(pass)) {
      launch_shares(l.first_share, l.member_count);
      continue;
    }
    unsigned first = l.first_of_teams;
    for (unsigned blocks : l.in_teams) {
      ns.shares = table.shares() + first;
      check(cudaLaunchCooperativeKernel(k, dim3(blocks), dim3(kThreads), arguments, 0, on), kDoing);
      first += blocks;
    }
    launch_shares(first, l.beside_teams);
  }
  if (batch == 0 || (rule.stages >> pass & 1) == 0) return;
  matrices.stage(pass, batch, groups[matrices.group(batch)].hyper.data(), ns, stream);
}

}  // namespace gallop::cuda
