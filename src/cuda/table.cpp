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

// With quantised states a block is a warp. To begin a chunk costs it as much as two blocks of 256
// elements, so twice as much is taken where all is done in one round, or where rounds are so many
// that the last hardly counts.
Index chunk_of_codes(Index elements, int multiprocessors) {
  constexpr Index kMost = 2 * kMostChunk;
  static_assert(kMost <= Index{32} * kBlock);  // a lane to every scale of 8-bit states
  const Index round = kMost * kOwnBlocksPerSm * multiprocessors;
  return elements <= round || elements >= 10 * round ? kMost : kMostChunk;
}

// Short lists are cut finer, so that every multiprocessor has work.
Index chunk_for(Index elements, bool quantised, int multiprocessors) {
  Index chunk = quantised ? chunk_of_codes(elements, multiprocessors) : kMostChunk;
  while (chunk > kLeastChunk && elements / chunk < Index{4} * multiprocessors) chunk /= 2;
  return chunk;
}

// Bits of gallop's own formats, if every state that may be is in the same; or 0.
int own_bits(const Rule& rule, const cpu::Tensor& t) {
  int bits = 0;
  for (size_t j = 0; j < rule.info.states.size(); ++j) {
    if ((t.present >> j & 1) == 0 || rule.info.states[j].exact) continue;
    const Storage s = t.state_storage[j];
    const int its = !is_own(s) ? 0 : is_4_bit(s) ? 4 : 8;
    if (its == 0 || (bits != 0 && bits != its)) return 0;
    bits = its;
  }
  return bits;
}

Kind kind_of(const Rule& rule, const cpu::Tensor& t) {
  const int bits = t.path() == Path::quantised && rule.passes.empty() ? own_bits(rule, t) : 0;
  if (bits == 0) return static_cast<Kind>(t.path());
  const auto both = [&](Storage s) { return t.param_storage == s && t.grad_storage == s; };
  const Elements elements = both(Storage::f32)            ? Elements::f32
                            : both(Storage::bf16_nearest) ? Elements::bf16
                                                          : Elements::any;
  return own_kind(bits == 4, elements);
}

Formats formats_of(const cpu::Tensor& t) {
  Formats f{t.param_storage, t.grad_storage};
  for (int j = 0; j < detail::kMaxStates; ++j) {
    if ((t.present >> j & 1) != 0) f.state[j] = t.state_storage[j];
  }
  return f;
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

Table::Table(int device, int multiprocessors, const Rule& rule, Mode mode, bool by_format,
             const std::vector<Slot>& slots, const std::vector<size_t>& chosen,
             const NormPlan* plan, const MatrixPlan* matrices) {
  Index elements = 0, quantised = 0;
  for (size_t i : chosen) {
    const cpu::Tensor& t = slots[i].tensor;
    elements += t.n;
    if (t.path() == Path::quantised) quantised += t.n;
  }
  chunk_elements_ = chunk_for(elements, quantised > elements / 2, multiprocessors);

  // Tensors that one kernel can update go into one launch; in mode single, each into its own.
  std::map<std::tuple<size_t, unsigned, Kind, unsigned, unsigned, Formats>, std::vector<size_t>>
      kinds;
  for (size_t i : chosen) {
    const cpu::Tensor& t = slots[i].tensor;
    // Kernels of rules with norms are for vectors and matrices alike.
    const unsigned states = plan != nullptr ? static_cast<unsigned>(plan->variant(i)) : t.present;
    const unsigned passes = plan != nullptr ? plan->passes(i) : 0;
    const unsigned batch = matrices != nullptr ? matrices->batch(i) : 0;
    kinds[{one_by_one(mode) ? i : 0, states, kind_of(rule, t), passes, batch,
           by_format ? formats_of(t) : Formats{}}]
        .push_back(i);
  }
  std::vector<Chunk> chunks;
  std::vector<unsigned> members;
  std::vector<Share> shares;
  for (const auto& [kind, tensors] : kinds) {
    Launch launch{slots[tensors.front()].tensor.present, std::get<2>(kind), std::get<5>(kind),
                  std::get<3>(kind), std::get<4>(kind)};
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
  if (launches_.empty()) launches_.push_back({0, Kind::f32});
  chunks_.assign(device, chunks);
  members_.assign(device, members);
  chosen_ = std::move(members);
  shares_.assign(device, shares);
}

}  // namespace gallop::cuda
