// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "gpt/trace.h"
#include "gpt/trace_gpu.h"

namespace gallop::gpt {
namespace {

using Json = nlohmann::ordered_json;

// What traces call processes.
constexpr int kHost = 1, kSingle = 2, kRecorded = 3;

struct Slice {
  std::string name;
  int64_t begin_ns, end_ns;
  Json args;
};

class Events {
 public:
  explicit Events(const Traced& traced) : traced_(traced) {
    zero_ns_ = std::numeric_limits<int64_t>::max();
    for (const Range& r : traced.ranges) zero_ns_ = std::min(zero_ns_, r.begin_ns);
    for (const Kernel& k : traced.kernels) zero_ns_ = std::min(zero_ns_, k.activity.begin_ns);
  }

  void process(int id, const char* name) {
    name_event("process_name", id, 0, name);
    add({{"ph", "M"},
         {"pid", id},
         {"tid", 0},
         {"name", "process_sort_index"},
         {"args", {{"sort_index", id}}}});
  }

  void thread(int process, int64_t id, const std::string& name) {
    name_event("thread_name", process, id, name);
    add({{"ph", "M"},
         {"pid", process},
         {"tid", id},
         {"name", "thread_sort_index"},
         {"args", {{"sort_index", id}}}});
  }

  void slice(int process, int64_t thread, const Slice& s) {
    add({{"ph", "X"},
         {"pid", process},
         {"tid", thread},
         {"name", s.name},
         {"ts", static_cast<double>(s.begin_ns - zero_ns_) / 1e3},
         {"dur", static_cast<double>(s.end_ns - s.begin_ns) / 1e3},
         {"args", s.args}});
  }

  // Slices of one thread may not overlap: there are as many threads as they need.
  void lanes(int process, const std::string& name, std::vector<Slice> slices) {
    std::stable_sort(slices.begin(), slices.end(),
                     [](const Slice& a, const Slice& b) { return a.begin_ns < b.begin_ns; });
    std::vector<int64_t> free_from;
    const int64_t first = threads_ + 1;
    for (const Slice& s : slices) {
      auto lane = std::find_if(free_from.begin(), free_from.end(),
                               [&](int64_t from) { return from <= s.begin_ns; });
      if (lane == free_from.end()) lane = free_from.insert(lane, 0);
      *lane = s.end_ns;
      slice(process, first + (lane - free_from.begin()), s);
    }
    for (size_t i = 0; i < free_from.size(); ++i) thread(process, ++threads_, name);
  }

  Json args_of(const Place& place) const {
    Json args = Json::object();
    if (place.step > 0) args["step"] = place.step;
    if (!place.phase.empty()) args["phase"] = place.phase;
    if (place.layer >= 0 && place.layer < traced_.layers) {
      args["layer"] = place.layer;
    } else if (place.layer != kNoLayer) {
      args["layer"] = Ranges(traced_.layers).name_of(place.layer);
    }
    return args;
  }

  const std::vector<std::string>& lines() const { return lines_; }

 private:
  void add(const Json& event) {
    lines_.push_back(event.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  void name_event(const char* what, int process, int64_t id, const std::string& name) {
    add({{"ph", "M"}, {"pid", process}, {"tid", id}, {"name", what}, {"args", {{"name", name}}}});
  }

  const Traced& traced_;
  int64_t zero_ns_;
  int64_t threads_ = 0;  // of GPUs
  std::vector<std::string> lines_;
};

void add_host(const Traced& t, Events& out) {
  std::set<int> parents;
  for (const Range& r : t.ranges) parents.insert(r.parent);
  std::set<int64_t> with_graph;  // steps
  for (const Kernel& k : t.kernels) {
    if (k.recorded()) with_graph.insert(k.place.step);
  }
  out.process(kHost, "host");
  out.thread(kHost, 1, "training");
  for (size_t i = 0; i < t.ranges.size(); ++i) {
    const Range& r = t.ranges[i];
    std::string name = r.name;
    if (name == "batch" && parents.count(static_cast<int>(i)) == 0) {
      name = "batch: launch of the recorded step";
    } else if (name == "batch" && with_graph.count(r.place.step) > 0) {
      name = "batch: being recorded, then launched";
    }
    out.slice(kHost, 1, {name, r.begin_ns, r.end_ns, out.args_of(r.place)});
  }
}

// From the first kernel's beginning to the last one's end.
class Extents {
 public:
  void add(const std::string& name, const Place& place, const cuda::Activity& a) {
    const auto key = std::tuple(place.step, place.batch, place.phase, place.layer);
    const auto [at, first] = all_.try_emplace(key, Extent{name, place, a.begin_ns, a.end_ns});
    if (first) return;
    at->second.begin_ns = std::min(at->second.begin_ns, a.begin_ns);
    at->second.end_ns = std::max(at->second.end_ns, a.end_ns);
  }
  std::vector<Slice> slices(const Events& events) const {
    std::vector<Slice> out;
    for (const auto& [key, e] : all_) {
      out.push_back({e.name, e.begin_ns, e.end_ns, events.args_of(e.place)});
    }
    return out;
  }

 private:
  struct Extent {
    std::string name;
    Place place;
    int64_t begin_ns, end_ns;
  };
  std::map<std::tuple<int64_t, int64_t, std::string, int64_t>, Extent> all_;
};

void add_gpu(const Traced& t, bool recorded, Events& out) {
  Extents phases, layers;
  std::map<uint32_t, std::vector<Slice>> streams;
  const Ranges ranges(t.layers);
  for (const Kernel& k : t.kernels) {
    if (k.recorded() != recorded) continue;
    Json args = out.args_of(k.place);
    args["kernel"] = k.activity.name;
    streams[k.activity.stream].push_back(
        {short_name(k.activity.name), k.activity.begin_ns, k.activity.end_ns, std::move(args)});
    if (k.place.phase.empty()) continue;
    if (k.place.layer != kNoLayer) {
      layers.add(fmt::format("{}, {}", ranges.name_of(k.place.layer), k.place.phase), k.place,
                 k.activity);
    }
    Place phase = k.place;
    phase.layer = kNoLayer;
    phases.add(phase.phase, phase, k.activity);
  }
  if (streams.empty()) return;
  const int process = recorded ? kRecorded : kSingle;
  out.process(process, recorded ? "GPU, recorded steps" : "GPU, kernel by kernel");
  out.lanes(process, "phases", phases.slices(out));
  out.lanes(process, "layers", layers.slices(out));
  for (auto& [stream, slices] : streams) {
    out.lanes(process, fmt::format("stream {}", stream), std::move(slices));
  }
}

}  // namespace

std::string to_json(const Traced& t) {
  Events events(t);
  add_host(t, events);
  add_gpu(t, false, events);
  add_gpu(t, true, events);
  const Json about = {{"title", t.title}, {"steps", t.steps}, {"kernels", t.kernels.size()}};
  return fmt::format(
      "{{\"displayTimeUnit\": \"ms\",\n\"otherData\": {},\n\"traceEvents\": [\n{}\n]}}\n",
      about.dump(-1, ' ', false, Json::error_handler_t::replace), fmt::join(events.lines(), ",\n"));
}

}  // namespace gallop::gpt
