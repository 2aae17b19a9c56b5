// SPDX-License-Identifier: MIT
#include "lab/torch_peer.h"

#include <fmt/format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "gallop/error.h"
#include "torch_scripts.gen.h"

namespace gallop::lab {
namespace {

using nlohmann::json;

[[noreturn]] void fail(const std::string& why) {
  throw Error(ErrorCode::unsupported, fmt::format("--with torch: {}", why));
}

std::string python() {
  const char* set = std::getenv("GALLOP_PYTHON");
  return set != nullptr && *set != 0 ? set : "python3";
}

std::vector<std::string> command_of(const char* script, const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {python(), "-c", script, "--serve"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

PeerProcess started(const std::vector<std::string>& command) {
  try {
    return PeerProcess(command);
  } catch (const Error& e) {
    fail(fmt::format("{} (GALLOP_PYTHON names another python)", e.what()));
  }
}

json answer_of(PeerProcess& peer) {
  std::string line;
  try {
    line = peer.receive();
    return json::parse(line);
  } catch (const Error& e) {
    fail(e.what());
  } catch (const json::exception&) {
    fail(fmt::format("'{}' is not the line of JSON expected from {}", line, python()));
  }
}

Row to_row(const json& object) {
  Row row;
  for (const auto& [key, value] : object.items()) {
    if (value.is_string()) row.set(key, value.get<std::string>());
    if (value.is_number_integer()) row.set(key, value.get<int64_t>());
    if (value.is_number_float()) row.set(key, value.get<double>());
  }
  return row;
}

}  // namespace

TorchPeer::TorchPeer(const char* script, const std::vector<std::string>& arguments)
    : process_(started(command_of(script, arguments))) {}

void TorchPeer::greet() {
  const json hello = answer_of(process_);
  if (!hello.contains("torch")) {
    fail(fmt::format("{} has no torch (GALLOP_PYTHON names another python)", python()));
  }
}

std::vector<Row> TorchPeer::ask(const std::string& line) {
  process_.send(line);
  const json answer = answer_of(process_);
  if (!answer.contains("rows")) fail("an answer without rows");
  std::vector<Row> rows;
  for (const json& object : answer.at("rows")) rows.push_back(to_row(object));
  return rows;
}

TorchGrid::TorchGrid(const std::vector<std::string>& modes, int threads, double time_limit_s) {
  for (const std::string& mode : modes) {
    peers_.emplace_back(
        k_torch_adam_grid,
        std::vector<std::string>{"--modes", mode, "--threads", std::to_string(threads),
                                 "--time-limit", std::to_string(time_limit_s)});
  }
  for (TorchPeer& peer : peers_) peer.greet();
}

std::vector<Row> TorchGrid::cell(int64_t tensors, int64_t size) {
  std::vector<Row> rows;
  for (TorchPeer& peer : peers_) {
    for (Row& row : peer.ask(fmt::format("{} {}", tensors, size))) rows.push_back(std::move(row));
  }
  return rows;
}

TorchStep::TorchStep(int device, double time_limit_s)
    : peer_(k_torch_step,
            {"--device", std::to_string(device), "--time-limit", std::to_string(time_limit_s)}) {
  peer_.greet();
}

Row TorchStep::measure(const std::string& optimizer, const bench::ShapeList& shapes, DType param,
                       double clip_norm) {
  json question = {{"optimizer", optimizer}, {"dtype", to_string(param)}, {"clip_norm", clip_norm}};
  for (const bench::Shape& s : shapes.shapes) {
    question["shapes"].push_back(s.dims);
    question["hidden"].push_back(s.role == Role::hidden);
  }
  std::vector<Row> rows = peer_.ask(question.dump());
  if (rows.size() != 1) fail(fmt::format("an answer of {} rows, expected 1", rows.size()));
  return rows.front();
}

}  // namespace gallop::lab
