// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "gallop/error.h"
#include "jit/cache.h"
#include "lab/trial.h"

namespace gallop::lab {
namespace {

constexpr std::string_view kEnds[] = {"finished", "reached", "missed", "timed out",
                                      "diverged", "oom",     "failed", "lost"};

// Every member once, for both ways: `each` is given a name and a member.
template <class Spec, class Each>
void members(Spec& s, Each each) {
  each("model", s.model), each("data", s.data), each("optimizer", s.optimizer);
  each("state", s.state), each("schedule", s.schedule), each("precision", s.precision);
  each("device", s.device), each("hyper", s.hyper), each("clip_norm", s.clip_norm);
  each("steps", s.steps), each("batch", s.batch), each("context", s.context);
  each("min_length", s.min_length);
  each("eval_every", s.eval_every), each("eval_batches", s.eval_batches);
  each("seed", s.seed), each("data_seed", s.data_seed), each("threads", s.threads);
  each("target", s.target), each("limit_s", s.limit_s);
}

template <class Result, class Each>
void figures(Result& r, Each each) {
  each("message", r.message), each("steps", r.steps), each("parameters", r.parameters);
  each("train_s", r.train_s), each("evaluate_s", r.evaluate_s), each("prepare_s", r.prepare_s);
  each("tokens_per_s", r.tokens_per_s), each("memory_mb", r.memory_mb);
  each("data_wait_s", r.data_wait_s);
}

template <class Usage, class Each>
void usage_figures(Usage& u, Each each) {
  each("open_s", u.open_s), each("data_s", u.data_s), each("prepare_s", u.prepare_s);
  each("total_s", u.total_s), each("step_s", u.step_s), each("host_mb", u.host_mb);
  each("driver_mb", u.driver_mb), each("gpu_util", u.gpu_util), each("cpu_util", u.cpu_util);
}

// Results from before these were kept have none.
template <class Result, class Each>
void newer_figures(Result& r, Each each) {
  each("spikes", r.spikes), each("worst_spike", r.worst_spike), each("class_mb", r.class_mb);
}

template <class T>
Json one(const T& value) {
  return value;
}
Json one(double value) { return exact_json(value); }
Json one(const std::optional<double>& value) { return value ? one(*value) : Json(); }
Json one(const Hyper& hyper) {
  Json out = Json::object();
  for (const auto& [name, value] : hyper) out[name] = one(value);
  return out;
}

template <class T>
void read(const Json& json, T& value) {
  value = json.get<T>();
}
void read(const Json& json, double& value) {
  value = json.is_object() ? std::get<double>(value_from(json)) : json.get<double>();
}
void read(const Json& json, std::optional<double>& value) {
  value.reset();
  if (!json.is_null()) read(json, value.emplace());
}
void read(const Json& json, Hyper& hyper) {
  hyper.clear();
  for (const auto& [name, value] : json.items()) read(value, hyper.emplace_back(name, 0.0).second);
}

}  // namespace

std::string_view to_string(TrialEnd end) { return kEnds[static_cast<int>(end)]; }

std::string count_ends(const std::vector<TrialEnd>& ends) {
  std::map<TrialEnd, int> count;
  for (const TrialEnd end : ends) ++count[end];
  std::vector<std::string> parts;
  parts.reserve(count.size());
  for (const auto& [end, n] : count) parts.push_back(fmt::format("{} {}", n, to_string(end)));
  return fmt::format("{}", fmt::join(parts, ", "));
}

TrialEnd parse_trial_end(std::string_view text) {
  const auto* at = std::find(std::begin(kEnds), std::end(kEnds), text);
  if (at == std::end(kEnds)) {
    throw Error(ErrorCode::invalid_argument, fmt::format("'{}' is no end of a trial", text));
  }
  return static_cast<TrialEnd>(at - std::begin(kEnds));
}

Json to_json(const TrialSpec& spec) {
  Json out = Json::object();
  members(spec, [&](const char* name, const auto& member) { out[name] = one(member); });
  if (spec.watch) out["watch"] = true;
  return out;
}

TrialSpec spec_from(const Json& json) {
  TrialSpec spec;
  try {
    members(spec, [&](const char* name, auto& member) {
      // It came later: trials without it are read too.
      if (!json.contains(name) && std::string_view(name) == "min_length") return;
      read(json.at(name), member);
    });
    if (json.contains("watch")) read(json.at("watch"), spec.watch);
  } catch (const Json::exception& e) {
    throw Error(ErrorCode::invalid_argument, fmt::format("this is no trial: {}", e.what()));
  }
  return spec;
}

Json to_json(const TrialPoint& p) {
  return {p.step, one(p.train_s), one(p.loss), one(p.validation), one(p.accuracy)};
}

TrialPoint point_from(const Json& json) {
  TrialPoint p;
  read(json.at(0), p.step), read(json.at(1), p.train_s);
  read(json.at(2), p.loss), read(json.at(3), p.validation);
  if (json.size() > 4) read(json.at(4), p.accuracy);
  return p;
}

Json to_json(const TrialResult& result) {
  Json out = {{"end", to_string(result.end)}};
  figures(result, [&](const char* name, const auto& figure) { out[name] = one(figure); });
  newer_figures(result, [&](const char* name, const auto& figure) { out[name] = one(figure); });
  Json points = Json::array();
  for (const TrialPoint& p : result.points) points.push_back(to_json(p));
  out["points"] = std::move(points);
  if (result.usage) {
    Json& usage = out["usage"];
    usage_figures(*result.usage,
                  [&](const char* name, const auto& figure) { usage[name] = one(figure); });
  }
  return out;
}

TrialResult result_from(const Json& json) {
  TrialResult result;
  try {
    result.end = parse_trial_end(json.at("end").get<std::string>());
    figures(result, [&](const char* name, auto& figure) { read(json.at(name), figure); });
    newer_figures(result, [&](const char* name, auto& figure) {
      if (json.contains(name)) read(json.at(name), figure);
    });
    for (const Json& p : json.at("points")) result.points.push_back(point_from(p));
    if (json.contains("usage")) {
      const Json& usage = json.at("usage");
      usage_figures(result.usage.emplace(),
                    [&](const char* name, auto& figure) { read(usage.at(name), figure); });
    }
  } catch (const Json::exception& e) {
    throw Error(ErrorCode::invalid_file, fmt::format("this is no trial's result: {}", e.what()));
  }
  return result;
}

std::string trial_hash(const TrialSpec& spec) {
  TrialSpec same = spec;
  same.threads = 0;
  same.device = same.device.substr(0, same.device.find(':'));  // whichever of several GPUs
  return jit::digest(dump(to_json(same)));
}

}  // namespace gallop::lab
