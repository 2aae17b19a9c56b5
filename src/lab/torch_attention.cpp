// SPDX-License-Identifier: MIT
#include "lab/torch_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "gallop/error.h"
#include "lab/peer_process.h"
#include "lab/progress.h"
#include "lab/signals.h"
#include "torch_scripts.gen.h"

namespace gallop::lab {
namespace {

using nlohmann::json;

constexpr const char* kBackends[] = {"flash", "efficient", "cudnn", "math"};
constexpr const char* kPrecisions[] = {"bf16", "fp16", "fp32"};

std::string python() {
  const char* set = std::getenv("GALLOP_PYTHON");
  return set != nullptr && *set != 0 ? set : "python3";
}

[[noreturn]] void fail(const std::string& why) {
  throw Error(ErrorCode::unsupported,
              fmt::format("--with torch: {} (GALLOP_PYTHON names another python)", why));
}

std::string word(const gpt::AttentionShape& s) {
  return fmt::format("{}x{}x{}x{}", s.batch, s.heads, s.time, s.width);
}

// The faster of a call from the host and one from a graph, where there is one.
void add_phase(Row& row, const json& theirs, const std::string& phase) {
  const double eager = theirs.at(phase + "_us").get<double>() * 1e-3;
  const json& graph = theirs.at(phase + "_graph_us");
  row.set(phase + "_eager_ms", eager);
  if (!graph.is_null()) row.set(phase + "_graph_ms", graph.get<double>() * 1e-3);
  row.set(phase + "_median_ms",
          graph.is_null() ? eager : std::min(eager, graph.get<double>() * 1e-3));
}

Row to_row(const json& theirs, const gpt::AttentionShape& s) {
  const double forward = 2 * static_cast<double>(s.batch * s.heads * s.width) *
                         static_cast<double>(s.time) * static_cast<double>(s.time);
  Row row;
  row.set("batch", s.batch).set("heads", s.heads).set("sequence", s.time).set("width", s.width);
  row.set("precision", theirs.at("dtype").get<std::string>());
  row.set("attention", "torch " + theirs.at("backend").get<std::string>());
  row.end_config().set("status", theirs.at("status").get<std::string>());
  row.set("torch", theirs.value("torch", "")).set("gpu", theirs.value("gpu", ""));
  if (theirs.contains("why")) row.set("message", theirs.at("why").get<std::string>());
  if (theirs.at("status") != "ok") return row;
  add_phase(row, theirs, "forward");
  add_phase(row, theirs, "backward");
  const double f = std::get<double>(*row.find("forward_median_ms"));
  const double b = std::get<double>(*row.find("backward_median_ms"));
  row.set("total_median_ms", f + b);
  row.set("forward_tflop_per_s", forward / f * 1e-9);
  row.set("backward_tflop_per_s", 2.5 * forward / b * 1e-9);
  row.set("peak_mb", theirs.at("peak_mb").get<double>() * 1e6 / (1 << 20));
  return row;
}

}  // namespace

void require_torch() {
  std::string answer;
  try {
    PeerProcess peer(
        {python(), "-c", "import importlib.util as u; print(u.find_spec('torch') is not None)"});
    answer = peer.receive();
  } catch (const Error& e) {
    fail(e.what());
  }
  if (answer != "True") fail(fmt::format("{} has no torch", python()));
}

std::vector<Row> torch_attention(const TorchAttentionQuestion& question,
                                 std::vector<std::string>& notes) {
  std::vector<std::string> precisions;
  for (const char* p : kPrecisions) {
    const auto& asked = question.precisions;
    if (std::find(asked.begin(), asked.end(), p) != asked.end()) precisions.emplace_back(p);
  }
  if (precisions.empty() || question.shapes.empty()) return {};
  std::vector<std::string> command = {python(), "-c",
                                      fmt::format("import torch; torch.cuda.set_device({})\n{}",
                                                  question.device, k_torch_attention)};
  for (const gpt::AttentionShape& s : question.shapes) command.push_back(word(s));
  command.insert(command.end(), {"--limit", fmt::format("{}", question.time_limit_s), "--dtypes"});
  command.insert(command.end(), precisions.begin(), precisions.end());
  command.insert(command.end(), {"--backends"});
  command.insert(command.end(), std::begin(kBackends), std::end(kBackends));

  std::vector<Row> rows;
  const size_t each = precisions.size() * std::size(kBackends);
  const size_t expected = question.shapes.size() * each;
  Progress progress("torch attention", static_cast<int64_t>(expected));
  try {
    PeerProcess peer(command);
    while (rows.size() < expected && !Signals::asked()) {
      const gpt::AttentionShape& shape = question.shapes[rows.size() / each];
      rows.push_back(to_row(json::parse(peer.receive()), shape));
      progress.advance(1, word(shape));
    }
  } catch (const Error& e) {
    notes.push_back(fmt::format("torch gave {} of {} rows: {}", rows.size(), expected, e.what()));
  } catch (const json::exception& e) {
    notes.push_back(fmt::format("torch gave {} of {} rows, then not the JSON expected: {}",
                                rows.size(), expected, e.what()));
  }
  return rows;
}

}  // namespace gallop::lab
