// SPDX-License-Identifier: MIT
#include "lab/race_folder.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "gallop/error.h"
#include "io/atomic_file.h"

namespace gallop::lab {

namespace fs = std::filesystem;

RaceFolder::RaceFolder(std::string path) : path_(std::move(path)) {
  std::error_code error;
  fs::create_directories(path_, error);
  if (!fs::is_directory(path_)) {
    throw Error(ErrorCode::io, fmt::format("the race's folder {} cannot be made ({}), expected one "
                                           "that trials can be kept in",
                                           path_, error.message()));
  }
}

std::string RaceFolder::file_of(const TrialSpec& spec) const {
  return (fs::path(path_) / (trial_hash(spec) + ".json")).string();
}

std::optional<TrialResult> RaceFolder::find(const TrialSpec& spec) const {
  std::ifstream in(file_of(spec));
  if (!in) return {};
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  try {
    return result_from(Json::parse(text).at("result"));
  } catch (const Json::exception&) {
  } catch (const Error&) {
  }
  return {};  // damaged: it is run again
}

void RaceFolder::keep(const TrialSpec& spec, const TrialResult& result) const {
  const Json whole = {{"trial", to_json(spec)}, {"result", to_json(result)}};
  io::write_file_atomically(file_of(spec), dump(whole) + "\n");
}

}  // namespace gallop::lab
