// SPDX-License-Identifier: MIT
#include "cuda/table.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "cuda/matrices.h"
#include "cuda/norms.h"
#include "optimizer/impl.h"

namespace gallop::cuda {
namespace {

// What one turn of a block's threads covers, and what a block takes at a time of a long list.
constexpr Index kLeastChunk = Index{kThreads} * 4, kMostChunk = 2 * kLeastChunk;

// Short lists are cut finer, so that every multiprocessor has work.
Index chunk_for(Index elements, int multiprocessors) {
  Index chunk = kMostChunk;
  while (chunk > kLeastChunk && elements / chunk < Index{4} * multiprocessors) chunk /= 2;
  return chunk;
}

// Blocks that meet must all run at the same time. Tensors with one block each fill what room is
// left beside the last of them.
void share_out(const std::vector<size_t>& tensors, const NormPlan& plan, unsigned side_by_side,
               Table::Launch& launch, std::vector<Share>& shares) {
  const auto share = [&](size_t i, unsigned parts) {
    for (unsigned part = 0; part < parts; ++part) {
      shares.push_back({static_cast<unsigned>(i), part, parts});
    }
  };
  const auto parts_of = [&](size_t i) { return std::min(plan.parts(i), side_by_side); };
  launch.first_share = static_cast<unsigned>(shares.size());
  for (size_t i : tensors) share(i, 1);
  launch.first_of_teams = static_cast<unsigned>(shares.size());
  std::vector<unsigned>& teams = launch.in_teams;
  for (size_t i : tensors) {
    const unsigned parts = parts_of(i);
    if (parts == 1) continue;
    if (teams.empty() || teams.back() + parts > side_by_side) teams.push_back(0);
    teams.back() += parts;
    share(i, parts);
  }
  if (teams.empty()) return;
  for (size_t i : tensors) {
    if (parts_of(i) > 1) continue;
    teams.back() < side_by_side ? ++teams.back() : ++launch.beside_teams;
    share(i, 1);
  }
}

// Small tiles come first and last, so that blocks end at nearly the same time in either direction.
std::vector<size_t> in_order(std::vector<size_t> tensors, const NormPlan* plan) {
  if (plan == nullptr) return tensors;
  std::stable_sort(tensors.begin(), tensors.end(), [&](size_t a, size_t b) {
    return plan->tile_elements(a) < plan->tile_elements(b);
  });
  std::vector<size_t> out;
  for (size_t i = 0; i < tensors.size(); i += 2) out.push_back(tensors[i]);
  for (size_t i = tensors.size() / 2 * 2; i-- > 0;) {
    if (i % 2 == 1) out.push_back(tensors[i]);
  }
  return out;
}

}  // namespace

Table::Table(int device, int multiprocessors, Mode mode, const std::vector<Slot>& slots,
             const std::vector<size_t>& chosen, const NormPlan* plan, const MatrixPlan* matrices) {
  Index elements = 0;
  for (size_t i : chosen) elements += slots[i].tensor.n;
  chunk_elements_ = chunk_for(elements, multiprocessors);

  // Tensors that one kernel can update go into one launch; in mode single, each into its own.
  std::map<std::tuple<size_t, unsigned, Path, unsigned, unsigned>, std::vector<size_t>> kinds;
  for (size_t i : chosen) {
    const cpu::Tensor& t = slots[i].tensor;
    // Kernels of rules with norms are for vectors and matrices alike.
    const unsigned states = plan != nullptr ? static_cast<unsigned>(plan->variant(i)) : t.present;
    const unsigned passes = plan != nullptr ? plan->passes(i) : 0;
    const unsigned batch = matrices != nullptr ? matrices->batch(i) : 0;
    kinds[{mode == Mode::multi ? 0 : i, states, t.path(), passes, batch}].push_back(i);
  }
  std::vector<Chunk> chunks;
  std::vector<unsigned> members;
  std::vector<Share> shares;
  for (const auto& [kind, tensors] : kinds) {
    Launch launch{slots[tensors.front()].tensor.present, std::get<2>(kind), std::get<3>(kind),
                  std::get<4>(kind)};
    launch.first_chunk = static_cast<unsigned>(chunks.size());
    launch.first_member = static_cast<unsigned>(members.size());
    for (size_t i : in_order(tensors, plan)) {
      members.push_back(static_cast<unsigned>(i));
      const Index count = plan != nullptr
                              ? Index{plan->tiles(i)}
                              : (slots[i].tensor.n + chunk_elements_ - 1) / chunk_elements_;
      for (Index c = 0; c < count; ++c) {
        chunks.push_back({static_cast<unsigned>(i), static_cast<unsigned>(c)});
      }
    }
    if (plan != nullptr)
      share_out(tensors, *plan, static_cast<unsigned>(multiprocessors * kBetweenPerSm), launch,
                shares);
    launch.last_chunk = static_cast<unsigned>(chunks.size());
    launch.member_count = static_cast<unsigned>(tensors.size());
    launches_.push_back(launch);
  }
  // A step without parameters is counted all the same.
  if (launches_.empty()) launches_.push_back({0, Path::f32});
  chunks_.assign(device, chunks);
  members_.assign(device, members);
  chosen_ = std::move(members);
  shares_.assign(device, shares);
}

}  // namespace gallop::cuda
