// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/safetensors.h"
#include "optimizer/checkpoint.h"

namespace gallop::checkpoint {

// Of all tensors.
int64_t bytes_of(const std::vector<io::TensorOut>& tensors);
int64_t bytes_of(const io::SafetensorsFile& file);

// A whole checkpoint, checked, without its optimizer.
class CheckpointFile {
 public:
  explicit CheckpointFile(const std::string& path);

  const Rule& rule() const { return *rule_; }
  int64_t bytes() const { return bytes_of(file_); }  // when it was read
  // Of these, arrays point into the file, aligned to nothing, or at what was put there since.
  std::vector<Group> groups;  // options, hyper, steps, present and slots only
  std::vector<Slot> slots;

  // Gives all states of a slot this format, as an optimizer would that has it chosen.
  void recode(Slot& slot, StateFormat format);
  // Replaces state j by these values, which must outlive this if they are in its storage already.
  void put(Slot& slot, size_t j, cpu::Storage from, const void* data, const void* scales);
  void set_policy(const StatePolicy& policy);  // its text alone

  // Returns what was written.
  std::vector<io::TensorOut> write(const std::string& path);

 private:
  [[noreturn]] void refuse(const std::string& why) const;
  const std::string& meta(const std::string& key) const;
  void read_group(const nlohmann::json& described);
  Slot read_slot(const nlohmann::json& described, size_t i, Group& group) const;
  std::vector<int64_t> shape_in_file(const std::string& name) const;
  void* make(size_t bytes);

  io::SafetensorsFile file_;
  const Rule* rule_ = nullptr;
  nlohmann::json described_;
  std::vector<std::unique_ptr<std::byte[]>> made_;
};

}  // namespace gallop::checkpoint
