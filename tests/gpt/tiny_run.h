// SPDX-License-Identifier: MIT
// A model that trains in no time, and what it is trained on.
#pragma once

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "data/synthetic.h"
#include "folder.h"
#include "gpt/run.h"

namespace gallop::gpt {

inline constexpr const char* kTinyModel = "nano:layers=1:width=32:heads=2:context=16:vocabulary=16";
inline constexpr const char* kTinyData =
    "synthetic:vocabulary=16,classes=2,branching=3,tokens=100000,validation=5000";

// GALLOP_TEST_DEVICE=cuda trains on a GPU.
inline Device test_device() {
  const char* name = std::getenv("GALLOP_TEST_DEVICE");
  return name == nullptr ? Device{} : parse_device(name);
}

inline TrainerOptions tiny_trainer(const std::string& optimizer = "adamw", double lr = 1e-3) {
  TrainerOptions o;
  o.config = parse_model(kTinyModel);
  o.device = test_device();
  o.threads = 1;
  o.batch = 4;
  o.optimizer = optimizer;
  if (lr > 0) o.hyper = {{"lr", lr}};  // adafactor has its own
  o.clip_norm = 1;
  return o;
}

inline data::SyntheticCorpus tiny_corpus() {
  return data::SyntheticCorpus(data::parse_synthetic(kTinyData));
}

inline std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Every bit of the parameters, and of the optimizer as it saves itself.
inline std::map<std::string, std::string> bits(Trainer& trainer) {
  std::map<std::string, std::string> all;
  const Model& model = trainer.model();
  for (size_t i = 0; i < model.size(); ++i) {
    const std::vector<std::byte> bytes = trainer.download(model.param(i));
    all[model.spec(i).name].assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  const test::Folder folder;
  trainer.optimizer()->save(folder / "optimizer");
  all["optimizer"] = content(folder / "optimizer");
  return all;
}

}  // namespace gallop::gpt
