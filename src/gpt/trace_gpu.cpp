// SPDX-License-Identifier: MIT
#include "gpt/trace_gpu.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace gallop::gpt {
namespace {

constexpr size_t kMostPairs = size_t{1} << 26;  // of names that are compared

// The innermost range that was open when each was launched, or -1.
std::vector<int> ranges_of(const std::vector<Kernel>& kernels, const std::vector<Range>& ranges) {
  std::vector<size_t> order(kernels.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto launched = [&](size_t i) { return kernels[i].activity.launched_ns; };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return launched(a) < launched(b); });
  std::vector<int> found(kernels.size(), -1);
  size_t next = 0;
  int open = -1;
  for (size_t i : order) {
    for (; next < ranges.size() && ranges[next].begin_ns <= launched(i); ++next) {
      open = static_cast<int>(next);
    }
    int at = open;
    while (at >= 0 && ranges[static_cast<size_t>(at)].end_ns < launched(i)) {
      at = ranges[static_cast<size_t>(at)].parent;
    }
    found[i] = at;
  }
  return found;
}

// A batch of a step, with the kernels that were launched in it.
struct Batch {
  std::vector<Kernel*> single, recorded;  // one by one; by a graph
};
using Batches = std::map<std::pair<int64_t, int64_t>, Batch>;  // by step and batch

Batches batches_of(std::vector<Kernel>& kernels, const std::vector<Range>& ranges) {
  const std::vector<int> found = ranges_of(kernels, ranges);
  Batches all;
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (found[i] < 0) continue;
    Kernel& k = kernels[i];
    k.place = ranges[static_cast<size_t>(found[i])].place;
    if (k.place.batch < 0) continue;
    Batch& b = all[{k.place.step, k.place.batch}];
    (k.recorded() ? b.recorded : b.single).push_back(&k);
  }
  return all;
}

std::vector<std::string> names_of(const std::vector<Kernel*>& kernels) {
  std::vector<std::string> names;
  names.reserve(kernels.size());
  for (const Kernel* k : kernels) names.push_back(k->activity.name);
  return names;
}

template <class Key>
std::vector<Kernel*> sorted(std::vector<Kernel*> kernels, Key key) {
  std::stable_sort(kernels.begin(), kernels.end(),
                   [&](const Kernel* a, const Kernel* b) { return key(*a) < key(*b); });
  return kernels;
}

using Nodes = std::map<uint64_t, Place>;  // of a graph

// Nodes are numbered as they were recorded, it seems; where that leads nowhere, by time.
Nodes learn(const Batch& from, const Batch& batch) {
  const auto single = sorted(from.single, [](const Kernel& k) { return k.activity.launched_ns; });
  const std::vector<std::string> names = names_of(single);
  Nodes best;
  for (const bool by_node : {true, false}) {
    const auto recorded = sorted(batch.recorded, [&](const Kernel& k) {
      return by_node ? k.activity.graph_node : static_cast<uint64_t>(k.activity.begin_ns);
    });
    const std::vector<int> at = align(names_of(recorded), names);
    Nodes nodes;
    for (size_t i = 0; i < at.size(); ++i) {
      if (at[i] < 0) continue;
      nodes[recorded[i]->activity.graph_node] = single[static_cast<size_t>(at[i])]->place;
    }
    if (nodes.size() > best.size()) best = std::move(nodes);
    if (best.size() == recorded.size()) break;
  }
  return best;
}

}  // namespace

std::vector<int> align(const std::vector<std::string>& names, const std::vector<std::string>& in) {
  std::vector<int> found(names.size(), -1);
  size_t first = 0, n = names.size(), m = in.size();
  for (; first < n && first < m && names[first] == in[first]; ++first) {
    found[first] = static_cast<int>(first);
  }
  for (; n > first && m > first && names[n - 1] == in[m - 1]; --n, --m) {
    found[n - 1] = static_cast<int>(m - 1);
  }
  const size_t rows = n - first, columns = m - first;
  if (rows * columns == 0 || rows * columns > kMostPairs) return found;
  // longest[i][j]: of what is left from i and j on
  std::vector<uint32_t> longest((rows + 1) * (columns + 1), 0);
  const auto at = [&](size_t i, size_t j) -> uint32_t& { return longest[i * (columns + 1) + j]; };
  for (size_t i = rows; i-- > 0;) {
    for (size_t j = columns; j-- > 0;) {
      at(i, j) = names[first + i] == in[first + j] ? at(i + 1, j + 1) + 1
                                                   : std::max(at(i + 1, j), at(i, j + 1));
    }
  }
  for (size_t i = 0, j = 0; i < rows && j < columns;) {
    if (names[first + i] == in[first + j]) {
      found[first + i++] = static_cast<int>(first + j++);
    } else if (at(i + 1, j) >= at(i, j + 1)) {
      ++i;
    } else {
      ++j;
    }
  }
  return found;
}

std::vector<Kernel> place_kernels(std::vector<cuda::Activity> activities,
                                  const std::vector<Range>& ranges) {
  std::vector<Kernel> kernels;
  kernels.reserve(activities.size());
  for (cuda::Activity& a : activities) kernels.push_back({std::move(a), {}});
  std::map<int64_t, const Batch*> first;  // of each number: the one that went kernel by kernel
  std::map<int64_t, Nodes> known;
  const Batches batches = batches_of(kernels, ranges);
  for (const auto& [at, batch] : batches) {
    const auto [step, number] = at;
    if (!batch.single.empty()) first.try_emplace(number, &batch);
    if (batch.recorded.empty() || first.count(number) == 0) continue;
    Nodes& nodes = known[number];
    if (nodes.empty()) nodes = learn(*first[number], batch);
    for (Kernel* k : batch.recorded) {
      const auto place = nodes.find(k->activity.graph_node);
      if (place == nodes.end()) continue;
      k->place = place->second;
      k->place.step = step;
    }
  }
  return kernels;
}

std::string short_name(const std::string& kernel) {
  constexpr std::string_view kUnnamed = "(anonymous namespace)::";
  std::string name = kernel;
  for (size_t at; (at = name.find(kUnnamed)) != std::string::npos;) name.erase(at, kUnnamed.size());
  std::string plain;  // without what is in angle brackets, up to the parameters
  int depth = 0;
  for (const char c : name) {
    if (c == '(' && depth == 0) break;
    if (c == '<') ++depth;
    if (depth == 0) plain += c;
    if (c == '>') --depth;
  }
  const size_t from = plain.find_last_of(" :");
  if (from != std::string::npos) plain.erase(0, from + 1);
  return plain.empty() ? kernel : plain;
}

}  // namespace gallop::gpt
