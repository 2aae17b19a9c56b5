// SPDX-License-Identifier: MIT
// Weights of GPT-2 as Hugging Face keeps them: the names are ours, but weights of c_attn, c_proj
// and c_fc are inputs x outputs there.
#pragma once

#include <string>

#include "gpt/model.h"

namespace gallop::gpt {

// Throws, naming what GPT-2 does not have.
void require_gpt2(const Config& config);

// safetensors, and a config.json beside it if there is none.
void export_hugging_face(const std::string& path, const Model& model);

// Parameters must fit the model; changes nothing when it throws. What keeps masters of them has to
// be told (Trainer::parameters_changed).
void import_hugging_face(const std::string& path, Model& model);

// One batch's tokens and targets (batch, time), logits (batch, time, vocabulary), loss, and the
// gradient of every parameter as grad.NAME: what benchmarks/baselines/check_gpt2.py compares.
void dump_hugging_face(const std::string& path, Model& model, const data::Batch& batch);

}  // namespace gallop::gpt
