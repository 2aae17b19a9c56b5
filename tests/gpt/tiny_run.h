// SPDX-License-Identifier: MIT
// A model that trains in no time, and what it is trained on.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "data/synthetic.h"
#include "gpt/run.h"

namespace gallop::gpt {

inline constexpr const char* kTinyModel = "nano:layers=1:width=32:heads=2:context=16:vocabulary=16";
inline constexpr const char* kTinyData =
    "synthetic:vocabulary=16,classes=2,branching=3,tokens=100000,validation=5000";

inline TrainerOptions tiny_trainer(const std::string& optimizer = "adamw", double lr = 1e-3) {
  TrainerOptions o;
  o.config = parse_model(kTinyModel);
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

// Every bit of the parameters and of the optimizer's states.
inline std::map<std::string, std::vector<std::byte>> bits(Trainer& trainer) {
  std::map<std::string, std::vector<std::byte>> all;
  const Model& model = trainer.model();
  for (size_t i = 0; i < model.size(); ++i) {
    all[model.spec(i).name] = trainer.download(model.param(i));
  }
  const Optimizer& optimizer = *trainer.optimizer();
  for (size_t i = 0; i < optimizer.size(); ++i) {
    for (const StateView& s : optimizer.states(i)) {
      std::vector<std::byte>& to = all[optimizer.param(i).name + ' ' + s.name];
      to.resize(static_cast<size_t>(s.bytes));
      if (s.bytes > 0) std::memcpy(to.data(), s.data, to.size());
    }
  }
  return all;
}

}  // namespace gallop::gpt
