// SPDX-License-Identifier: MIT
#include "gpt/memory_profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "io/atomic_file.h"

namespace gallop::gpt {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMb = 1 << 20;
constexpr int kStep = 1, kBuffers = 2;  // what traces call processes

std::string layer_name(int64_t layer) {
  return layer < 0 ? "outside of the layers" : fmt::format("layer {}", layer);
}

Json event(const char* kind, int process, int64_t thread, const std::string& name, size_t at) {
  return {{"ph", kind}, {"pid", process}, {"tid", thread}, {"name", name}, {"ts", at}};
}

Json named(const char* what, int process, int64_t thread, const std::string& name) {
  return {
      {"ph", "M"}, {"pid", process}, {"tid", thread}, {"name", what}, {"args", {{"name", name}}}};
}

Json slice(int process, int64_t thread, const std::string& name, size_t from, size_t to) {
  Json e = event("X", process, thread, name, from);
  e["dur"] = to - from;
  return e;
}

void add_counters(const MemoryProfile& p, std::vector<Json>& out) {
  for (size_t at = 0; at < p.moments.size(); ++at) {
    if (at > 0 && at + 1 < p.moments.size() && p.moments[at] == p.moments[at - 1]) continue;
    Json by_class = Json::object();
    for (int c = 0; c < kMemoryClasses; ++c) {
      by_class[std::string(to_string(static_cast<MemoryClass>(c)))] =
          p.moments[at][static_cast<size_t>(c)];
    }
    Json e = event("C", kStep, 0, "bytes by class", at);
    e["args"] = std::move(by_class);
    out.push_back(std::move(e));
    e = event("C", kStep, 0, "bytes", at);
    e["args"] = {{"in use", sum(p.moments[at])}};
    out.push_back(std::move(e));
  }
}

void add_step(const MemoryProfile& p, std::vector<Json>& out) {
  out.push_back(named("process_name", kStep, 0, "memory of one step"));
  out.push_back(named("thread_name", kStep, 1, "phases"));
  const size_t end = p.moments.size() - 1;
  if (p.backward > 0) {
    out.push_back(slice(kStep, 1, "forward", 0, p.backward));
    out.push_back(slice(kStep, 1, "backward", p.backward, end));
  }
  out.push_back(slice(kStep, 1, "optimizer", end, end + 1));
  const auto instant = [&](const char* name, size_t at) {
    Json e = event(
        "i", kStep, 1,
        fmt::format("{}: {:.1f} MB", name, static_cast<double>(sum(p.moments[at])) / kMb), at);
    e["s"] = "p";  // the line goes through the whole process
    e["args"] = {{"in_use_bytes", sum(p.moments[at])}, {"allocated_bytes", p.allocated()}};
    out.push_back(std::move(e));
  };
  instant("after init", 0);
  instant("before step", 0);
  instant("peak", p.peak);
  instant("after step", end);
}

// Slices of one thread may not overlap: a layer has as many as it needs.
void add_buffers(const MemoryProfile& p, std::vector<Json>& out) {
  out.push_back(named("process_name", kBuffers, 0, "buffers by layer"));
  std::map<int64_t, std::vector<const Buffer*>> by_layer;
  for (const Buffer& b : p.buffers) by_layer[b.layer].push_back(&b);
  int64_t first_thread = 1;
  for (auto& [layer, buffers] : by_layer) {
    std::stable_sort(buffers.begin(), buffers.end(),
                     [](const Buffer* a, const Buffer* b) { return a->first < b->first; });
    std::vector<int64_t> free_from;
    for (const Buffer* b : buffers) {
      auto lane = std::find_if(free_from.begin(), free_from.end(),
                               [&](int64_t from) { return from <= b->first; });
      if (lane == free_from.end()) lane = free_from.insert(lane, 0);
      *lane = b->last;
      Json e = slice(kBuffers, first_thread + (lane - free_from.begin()), b->name,
                     static_cast<size_t>(b->first), static_cast<size_t>(b->last));
      e["cat"] = to_string(b->cls);
      e["args"] = {{"class", to_string(b->cls)},
                   {"layer", b->layer},
                   {"bytes", b->bytes},
                   {"offset", b->offset}};
      out.push_back(std::move(e));
    }
    for (size_t lane = 0; lane < free_from.size(); ++lane) {
      const int64_t thread = first_thread + static_cast<int64_t>(lane);
      out.push_back(named("thread_name", kBuffers, thread, layer_name(layer)));
      out.push_back(named("thread_sort_index", kBuffers, thread, ""));
      out.back()["args"] = {{"sort_index", thread}};
    }
    first_thread += static_cast<int64_t>(free_from.size());
  }
}

}  // namespace

size_t sum(const MemoryByClass& of) { return std::accumulate(of.begin(), of.end(), size_t{0}); }

MemoryProfile profile_memory(const Plan& plan, const MemoryByClass& fixed) {
  MemoryProfile p;
  p.fixed = fixed;
  p.buffers = plan.buffers;
  p.arena_bytes = plan.bytes;
  p.moments.assign(static_cast<size_t>(plan.moments) + 2, fixed);
  for (const Buffer& b : plan.buffers) {
    for (int64_t at = b.first; at < b.last; ++at) {
      p.moments[static_cast<size_t>(at)][static_cast<size_t>(b.cls)] += whole_places(b.bytes);
    }
  }
  for (size_t at = 0; at < p.moments.size(); ++at) {
    if (sum(p.moments[at]) > sum(p.moments[p.peak])) p.peak = at;
  }
  // Nothing marks where backward begins, but for the gradient that it takes along.
  for (const Buffer& b : plan.buffers) {
    if (b.name == "residual gradient") p.backward = static_cast<size_t>(b.first);
  }
  return p;
}

MemoryProfile profile_memory(Trainer& trainer, const std::string& title) {
  const Plan& plan = trainer.model().arena().of(Model::training);
  const MemoryUse use = trainer.memory();
  const auto planned = at_peak(plan);
  MemoryByClass fixed{};
  for (size_t c = 0; c < fixed.size(); ++c) fixed[c] = use.of[c] - planned[c];
  MemoryProfile p = profile_memory(plan, fixed);
  p.arena_bytes = trainer.model().arena().bytes();
  p.title = title;
  return p;
}

std::string describe_layers(const MemoryProfile& p) {
  std::map<int64_t, size_t> kept;
  for (const Buffer& b : p.buffers) {
    const auto peak = static_cast<int64_t>(p.peak);
    const bool there = b.first <= peak && peak < b.last;
    kept[b.layer] += there && b.cls == MemoryClass::activations ? whole_places(b.bytes) : 0;
  }
  std::vector<std::string> parts;
  for (auto at = kept.upper_bound(-1); at != kept.end();) {
    auto end = at;
    int64_t last = at->first;
    for (; end != kept.end() && end->second == at->second; ++end) last = end->first;
    const double mb = static_cast<double>(at->second) / kMb;
    parts.push_back(last == at->first
                        ? fmt::format("layer {}: {:.4g} MB", last, mb)
                        : fmt::format("layers {} to {}: {:.4g} MB each", at->first, last, mb));
    at = end;
  }
  if (const auto outside = kept.find(-1); outside != kept.end()) {
    parts.push_back(
        fmt::format("outside of them: {:.4g} MB", static_cast<double>(outside->second) / kMb));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::string to_trace(const MemoryProfile& p) {
  std::vector<Json> events;
  add_step(p, events);
  add_counters(p, events);
  add_buffers(p, events);
  const Json about = {{"title", p.title},
                      {"time", "moments: one microsecond for each buffer taken or given back"},
                      {"after_init_bytes", sum(p.moments.front())},
                      {"before_step_bytes", sum(p.moments.front())},
                      {"peak_bytes", sum(p.moments[p.peak])},
                      {"peak_moment", p.peak},
                      {"after_step_bytes", sum(p.moments.back())},
                      {"arena_bytes", p.arena_bytes},
                      {"allocated_bytes", p.allocated()}};
  const auto dump = [](const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  std::vector<std::string> lines;
  lines.reserve(events.size());
  for (const Json& e : events) lines.push_back(dump(e));
  return fmt::format(
      "{{\"displayTimeUnit\": \"ms\",\n\"otherData\": {},\n\"traceEvents\": [\n{}\n]}}\n",
      dump(about), fmt::join(lines, ",\n"));
}

void write_trace(const MemoryProfile& profile, const std::string& path) {
  io::write_file_atomically(path, to_trace(profile));
}

}  // namespace gallop::gpt
