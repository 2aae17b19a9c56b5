// SPDX-License-Identifier: MIT
#include "check/golden.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>

#include "check/data.h"
#include "check/golden_errors.h"
#include "check/reachable.h"
#include "check/sweep.h"
#include "cpu/isa.h"
#include "gallop/error.h"
#include "gallop/optimizer.h"
#include "io/safetensors.h"
#include "optimizer/rule.h"

namespace gallop::check {
namespace {

using nlohmann::json;

struct Skip {
  std::string why;
};

std::string meta(const io::SafetensorsFile& f, const std::string& key,
                 const std::string& fallback) {
  const auto it = f.metadata().find(key);
  return it == f.metadata().end() ? fallback : it->second;
}

std::vector<float> floats(const io::SafetensorsFile& f, const std::string& key) {
  const io::TensorView* t = f.find(key);
  if (t == nullptr) throw Skip{fmt::format("tensor '{}' is missing", key)};
  if (t->dtype != "F32") throw Skip{fmt::format("tensor '{}' is {}", key, t->dtype)};
  std::vector<float> out(t->bytes / 4);
  std::memcpy(out.data(), t->data, t->bytes);
  return out;
}

// bitsandbytes' optimizers with 8-bit state have the same names with this behind.
constexpr std::string_view k8Bit = "8bit";

// Our name for an optimizer of a file, which may lack our underscores.
std::string our_rule(std::string name) {
  if (name.ends_with(k8Bit)) name.resize(name.size() - k8Bit.size());
  for (const std::string& rule : rule_names()) {
    std::string bare = rule;
    std::erase(bare, '_');
    if (rule == name || bare == name) return rule;
  }
  throw Skip{fmt::format("optimizer '{}' is not in this build", name)};
}

// Lists become numbered knobs: betas [a, b] is beta1, beta2. Words become their index.
void add_hyper(const RuleInfo& rule, const std::string& key, const json& value, GroupOptions& out) {
  if (key == "maximize") {
    out.maximize = value.get<bool>();
    return;
  }
  if (value.is_array()) {
    const std::string stem = key.ends_with('s') ? key.substr(0, key.size() - 1) : key;
    for (size_t i = 0; i < value.size(); ++i) {
      add_hyper(rule, stem + std::to_string(i + 1), value[i], out);
    }
    return;
  }
  const int knob = rule.knob(key);
  if (knob < 0) throw Skip{fmt::format("hyper-parameter '{}' is not one of ours", key)};
  if (value.is_string()) {
    const auto& choices = rule.knobs[static_cast<size_t>(knob)].choices;
    const auto it = std::find(choices.begin(), choices.end(), value.get<std::string>());
    if (it == choices.end()) throw Skip{fmt::format("{} '{}'", key, value.get<std::string>())};
    out.hyper.emplace_back(key, static_cast<double>(it - choices.begin()));
  } else {
    out.hyper.emplace_back(
        key, value.is_boolean() ? (value.get<bool>() ? 1.0 : 0.0) : value.get<double>());
  }
}

// Where a re-implementation was recorded that departs from the authors' formula, theirs wins.
void skip_departures(const std::string& rule, const std::string& source) {
  if (rule == "ademamix" && source.find("kozistr") != std::string::npos) {
    throw Skip{"recorded from a re-implementation that divides the slow average by 1-beta1^t too"};
  }
  if (rule == "lamb" && source.find("kozistr") != std::string::npos) {
    throw Skip{
        "recorded from a re-implementation that takes |p| as 10 at most, decays before the step "
        "and "
        "divides the rate by 1-beta1^t instead of the moments by theirs"};
  }
}

class Replay {
 public:
  Replay(const std::string& path, int threads, Device device, Mode mode)
      : file_(io::SafetensorsFile::open(path)), threads_(threads), device_(device), mode_(mode) {}

  std::string optimizer() const { return meta(file_, "optimizer", ""); }

  Errors run() {
    if (optimizer() == "codec") return compare_maps();
    const std::string rule = our_rule(optimizer());
    skip_departures(rule, meta(file_, "source", ""));
    Options options;
    options.threads = threads_;
    options.device = device_;
    options.mode = mode_;
    options.allocator = reachable_allocator(device_);
    Optimizer opt(rule, options);
    GroupOptions group;
    if (optimizer().ends_with(k8Bit)) group.state = StateFormat::bnb8;
    for (const char* key : {"hyper", "step_args"}) {
      const json hyper = json::parse(meta(file_, key, "{}"));
      for (const auto& [name, value] : hyper.items()) {
        add_hyper(opt.rule(), name, value, group);
      }
    }
    for (size_t i = 0; file_.find(fmt::format("p.{}", i)) != nullptr; ++i) {
      params_.push_back(values(fmt::format("p.{}", i)));
    }
    std::vector<Param> params;
    for (size_t i = 0; i < params_.size(); ++i) {
      const std::string name = fmt::format("p.{}", i);
      params.push_back({name, file_.find(name)->shape, params_[i].data()});
    }
    opt.add_group(params, group);
    const int steps = std::stoi(meta(file_, "steps", "0"));
    const int hessian_every = std::stoi(meta(file_, "hess_every", "0"));
    for (int t = 1; t <= steps; ++t) {
      use_gradients(opt, "g", t);
      opt.step();
      if (hessian_every > 0 && file_.find(fmt::format("gh.{}.0", t)) != nullptr) {
        use_gradients(opt, "gh", t);
        opt.run("hessian");
      }
      compare(opt, t);
    }
    if (compared_ == 0) throw Skip{"no recorded parameters to compare with"};
    return errors_;
  }

 private:
  void use_gradients(Optimizer& opt, const char* kind, int t) {
    wait_for(device_);  // the last step may still read what is replaced
    grads_.resize(params_.size());
    for (size_t i = 0; i < params_.size(); ++i) {
      const std::string key = fmt::format("{}.{}.{}", kind, t, i);
      const bool there = file_.find(key) != nullptr;
      if (there) grads_[i] = values(key);
      opt.set_grad(i, there ? grads_[i].data() : nullptr);
    }
  }

  Buffer values(const std::string& key) const {
    const std::vector<float> from = floats(file_, key);
    Buffer out(DType::f32, static_cast<int64_t>(from.size()), false, device_);
    if (!from.empty()) std::memcpy(out.data(), from.data(), from.size() * sizeof(float));
    return out;
  }

  void compare(const Optimizer& opt, int t) {
    wait_for(device_);
    const bool whole = find_rule(opt.rule().name).stages != 0, bits8 = optimizer().ends_with(k8Bit);
    for (size_t i = 0; i < params_.size(); ++i) {
      const std::string key = fmt::format("p.{}.after.{}", i, t);
      const auto* got = static_cast<float*>(params_[i].data());
      const auto n = static_cast<size_t>(params_[i].size());
      if (bits8 || whole) {
        if (file_.find(key) == nullptr) continue;
        const std::vector<float> want = recorded(key, n);
        bits8 ? errors_.add_near(key, got, want, opt.get(0, "lr") * t)
              : errors_.add_change(key, floats(file_, fmt::format("p.{}", i)), got, want);
      } else {
        compare_values(key, got, n);
      }
      int number = 0;
      for (const StateView& s : opt.states(i)) {
        ++number;
        const auto key_of = [&](const std::string& name) {
          return fmt::format("{}.{}.after.{}", name, i, t);
        };
        const std::string state = bits8 ? fmt::format("state{}", number) : s.name;
        if (s.block == 0) {
          compare_values(key_of(state), static_cast<float*>(s.data), static_cast<size_t>(s.size));
        } else {
          compare_codes(key_of(state), s);
          const int64_t scales = s.scale_count();
          compare_values(key_of(fmt::format("absmax{}", number)), s.scales,
                         static_cast<size_t>(scales), Errors::kScale, 0);
        }
      }
    }
  }
  void compare_codes(const std::string& key, const StateView& s) {
    const auto n = static_cast<size_t>(s.size);
    const io::TensorView* codes = file_.find(key);
    if (codes == nullptr) return;
    if (codes->bytes != n) throw Skip{fmt::format("tensor '{}' has another size", key)};
    errors_.add_codes(key, static_cast<unsigned char*>(s.data),
                      reinterpret_cast<const unsigned char*>(codes->data), n);
  }
  void compare_values(const std::string& key, const float* got, size_t n,
                      double relative = Errors::kRelative, double absolute = Errors::kAbsolute) {
    if (file_.find(key) == nullptr) return;
    const std::vector<float> want = recorded(key, n);
    for (size_t i = 0; i < n; ++i) {
      errors_.add(fmt::format("{}[{}]", key, i), got[i], want[i], relative, absolute);
    }
  }
  std::vector<float> recorded(const std::string& key, size_t n) {
    std::vector<float> want = floats(file_, key);
    if (want.size() != n) throw Skip{fmt::format("tensor '{}' has another size", key)};
    ++compared_;
    return want;
  }

  // What each code stands for, on every instruction set.
  Errors compare_maps() {
    errors_.tolerance = fmt::format("{:g} relative", Errors::kMap);
    unsigned char codes[kBlock];
    for (int i = 0; i < kBlock; ++i) codes[i] = static_cast<unsigned char>(i);
    float one = 1, got[kBlock];
    for (const cpu::Toolkit* tools : cpu::toolkits()) {
      if (!cpu::runs_here(tools->isa)) continue;
      for (Storage s : {Storage::bnb8, Storage::bnb8_nonneg}) {
        const char* key = s == Storage::bnb8 ? "signed" : "unsigned";
        tools->codecs[static_cast<size_t>(s)].load({codes, &one, kBlock, 0}, got);
        compare_values(key, got, kBlock, Errors::kMap, 0);
      }
    }
    if (compared_ == 0) throw Skip{"no maps to compare with"};
    return errors_;
  }

  io::SafetensorsFile file_;
  int threads_;
  Device device_;
  Mode mode_;
  int compared_ = 0;
  std::vector<Buffer> params_, grads_;
  Errors errors_;
};

lab::Row replay_row(Replay& replay, const std::string& file) {
  lab::Row row;
  row.set("file", file).set("optimizer", replay.optimizer());
  try {
    const Errors e = replay.run();
    row.set("status", e.over_bound <= 1 ? "pass" : "fail");
    row.set("max_abs_error", e.absolute).set("max_rel_error", e.relative);
    row.set("tolerance", e.tolerance);
    row.set("worst_over_bound", e.over_bound);
    if (e.over_bound > 1) row.set("detail", e.worst);
  } catch (const Skip& skip) {
    row.set("status", "skip").set("max_abs_error", nullptr).set("max_rel_error", nullptr);
    row.set("tolerance", nullptr).set("worst_over_bound", nullptr).set("detail", skip.why);
  }
  return row;
}

}  // namespace

lab::Table replay_goldens(const std::string& dir, const std::string& only, int threads,
                          Device device, Mode mode) {
  namespace fs = std::filesystem;
  if (!fs::is_directory(dir)) {
    throw Error(ErrorCode::io, fmt::format("{} is not a folder, expected recorded runs", dir));
  }
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(dir)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  const std::regex pattern = parse_pattern(only);
  lab::Table table;
  table.title = "recorded runs of other implementations";
  for (const fs::path& path : files) {
    Replay replay(path.string(), threads, device, mode);
    if (!std::regex_search(replay.optimizer(), pattern)) continue;
    table.rows.push_back(replay_row(replay, path.filename().string()));
  }
  if (table.rows.empty()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} holds no recorded run whose optimizer matches '{}'", dir, only));
  }
  return table;
}

}  // namespace gallop::check
