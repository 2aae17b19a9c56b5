// SPDX-License-Identifier: MIT
#include "gpt/hugging_face.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/convert.h"
#include "folder.h"
#include "gallop/error.h"
#include "gpt/fixture.h"
#include "io/safetensors.h"

namespace gallop::gpt {
namespace {

using nlohmann::json;
using test::Folder;
using testing::HasSubstr;

template <class F>
std::string refusal(F work) {
  try {
    work();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was refused";
}

std::vector<std::vector<double>> values(const Model& m) {
  std::vector<std::vector<double>> all;
  for (size_t i = 0; i < m.size(); ++i) all.push_back(m.values(i));
  return all;
}

float at(const io::SafetensorsFile& file, const std::string& name, size_t i) {
  float x = 0;
  std::memcpy(&x, file.find(name)->data + i * sizeof x, sizeof x);
  return x;
}

// A file as others would have written it: every tensor through `change`.
struct Other {
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};
void rewrite(const std::string& from, const std::string& to,
             const std::function<void(std::vector<Other>&)>& change) {
  const auto file = io::SafetensorsFile::open(from);
  std::vector<Other> all;
  for (const auto& [name, t] : file.tensors()) {
    all.push_back({name, t.dtype, t.shape, {t.data, t.data + t.bytes}});
  }
  change(all);
  std::vector<io::TensorOut> out;
  out.reserve(all.size());
  for (const Other& o : all) {
    out.push_back({o.name, o.dtype, o.shape, o.bytes.data(), o.bytes.size()});
  }
  io::write_safetensors(to, out, {});
}

class HuggingFace : public testing::Test {
 protected:
  HuggingFace() : from_(small(), shape(2, 9)), to_(small(), shape(1, 4)) {
    to_.model.initialize(5);
    export_hugging_face(path_, from_.model);
  }
  Folder folder_;
  OnCpu<float> from_, to_;
  std::string path_ = folder_ / "model.safetensors", other_ = folder_ / "other.safetensors";
};

TEST_F(HuggingFace, RoundTripKeepsEveryBit) {
  EXPECT_NE(values(from_.model), values(to_.model));
  import_hugging_face(path_, to_.model);
  EXPECT_EQ(values(from_.model), values(to_.model));
}

TEST_F(HuggingFace, WeightsAreInputsByOutputs) {
  const auto file = io::SafetensorsFile::open(path_);
  ASSERT_NE(file.find("h.1.attn.c_attn.weight"), nullptr);
  EXPECT_EQ(file.find("h.1.attn.c_attn.weight")->shape, (std::vector<int64_t>{12, 36}));
  EXPECT_EQ(file.find("h.1.mlp.c_fc.weight")->shape, (std::vector<int64_t>{12, 20}));
  EXPECT_EQ(file.find("h.1.mlp.c_proj.weight")->shape, (std::vector<int64_t>{20, 12}));
  EXPECT_EQ(file.find("wte.weight")->shape, (std::vector<int64_t>{17, 12}));
  EXPECT_EQ(file.find("lm_head.weight"), nullptr);
  for (size_t i = 0; i < from_.model.size(); ++i) {
    if (from_.model.spec(i).name != "h.1.mlp.c_fc.weight") continue;
    const std::vector<double> ours = from_.model.values(i);  // 20 x 12
    EXPECT_EQ(at(file, "h.1.mlp.c_fc.weight", 3 * 20 + 7), static_cast<float>(ours[7 * 12 + 3]));
  }
}

TEST_F(HuggingFace, ConfigurationIsBesideAndInside) {
  std::ifstream beside(folder_ / "config.json");
  const json config = json::parse(beside);
  EXPECT_EQ(config.at("model_type"), "gpt2");
  EXPECT_EQ(config.at("n_layer"), 2);
  EXPECT_EQ(config.at("n_head"), 3);
  EXPECT_EQ(config.at("n_embd"), 12);
  EXPECT_EQ(config.at("n_inner"), 20);
  EXPECT_EQ(config.at("n_positions"), 9);
  EXPECT_EQ(config.at("vocab_size"), 17);
  EXPECT_EQ(config.at("activation_function"), "gelu_new");
  const auto file = io::SafetensorsFile::open(path_);
  EXPECT_EQ(json::parse(file.metadata().at("config")), config);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  std::ofstream(folder_ / "config.json") << "{}";
  export_hugging_face(path_, from_.model);
  EXPECT_EQ(std::filesystem::file_size(folder_ / "config.json"), 2u);
}

TEST_F(HuggingFace, TakesPrefixesMasksAndATiedHead) {
  rewrite(path_, other_, [](std::vector<Other>& all) {
    std::vector<Other> more;
    for (Other& o : all) {
      if (o.name == "wte.weight") {
        more.push_back(o);
        more.back().name = "lm_head.weight";
      }
      o.name = "transformer." + o.name;
    }
    more.push_back({"transformer.h.0.attn.bias", "U8", {1, 1, 2, 2}, std::vector<std::byte>(4)});
    more.push_back({"transformer.h.0.attn.masked_bias", "F32", {}, std::vector<std::byte>(4)});
    all.insert(all.end(), more.begin(), more.end());
  });
  import_hugging_face(other_, to_.model);
  EXPECT_EQ(values(from_.model), values(to_.model));
}

TEST_F(HuggingFace, TakesHalfPrecision) {
  for (const char* type : {"BF16", "F16"}) {
    const bool bf16 = std::string(type) == "BF16";
    rewrite(path_, other_, [&](std::vector<Other>& all) {
      for (Other& o : all) {
        std::vector<float> wide(o.bytes.size() / 4);
        std::memcpy(wide.data(), o.bytes.data(), o.bytes.size());
        o.bytes.resize(wide.size() * 2);
        for (size_t i = 0; i < wide.size(); ++i) {
          const Half h = bf16 ? to_bf16_nearest(wide[i]) : to_f16_nearest(wide[i]);
          std::memcpy(o.bytes.data() + 2 * i, &h, 2);
        }
        o.dtype = type;
      }
    });
    import_hugging_face(other_, to_.model);
    const auto a = values(from_.model), b = values(to_.model);
    for (size_t i = 0; i < a.size(); ++i) {
      for (size_t j = 0; j < a[i].size(); ++j) {
        ASSERT_NEAR(a[i][j], b[i][j], std::abs(a[i][j]) * (bf16 ? 0x1p-8 : 0x1p-11) + 1e-7);
      }
    }
  }
}

TEST_F(HuggingFace, RefusesOtherModels) {
  const auto refused = [&](const std::function<void(std::vector<Other>&)>& change) {
    rewrite(path_, other_, change);
    const auto before = values(to_.model);
    std::string sentence = refusal([&] { import_hugging_face(other_, to_.model); });
    EXPECT_EQ(before, values(to_.model));
    return sentence;
  };
  const auto find = [](std::vector<Other>& all, const std::string& name) -> Other& {
    return *std::find_if(all.begin(), all.end(), [&](const Other& o) { return o.name == name; });
  };
  EXPECT_EQ(
      refused([&](auto& all) { find(all, "ln_f.weight").name = "norm.weight"; }),
      other_ + ": tensor 'ln_f.weight' is missing, expected the names of Hugging Face's GPT-2");
  EXPECT_THAT(refused([&](auto& all) {
                find(all, "h.0.mlp.c_fc.weight").shape = {20, 12};
              }),
              HasSubstr("is [20, 12], expected [12, 20]"));
  EXPECT_THAT(refused([&](auto& all) { find(all, "ln_f.weight").dtype = "I32"; }),
              HasSubstr("'ln_f.weight' is I32, expected F32, F16 or BF16"));
  EXPECT_THAT(refused([&](auto& all) {
                all.push_back(find(all, "ln_f.weight"));
                all.back().name = "h.2.ln_1.weight";
              }),
              HasSubstr("'h.2.ln_1.weight' is none of a GPT-2 with 2 layers"));
  EXPECT_THAT(refused([&](auto& all) {
                all.push_back(find(all, "wte.weight"));
                all.back().name = "lm_head.weight";
                all.back().bytes[5] ^= std::byte{1};
              }),
              HasSubstr("lm_head.weight differs from wte.weight"));
  OnCpu<float> two_heads(small(":heads=2"), shape(1, 4));
  EXPECT_THAT(refusal([&] { import_hugging_face(path_, two_heads.model); }),
              HasSubstr("n_head is 3 in its configuration, expected 2"));
  EXPECT_THAT(refusal([&] { import_hugging_face(folder_ / "none", to_.model); }),
              HasSubstr("none"));
}

TEST(HuggingFaceConfig, OnlyWhatGpt2Has) {
  const auto refused = [](const std::string& change) {
    return refusal([&] { require_gpt2(small(change)); });
  };
  EXPECT_EQ(refused(":positions=rope"),
            "a model with rotary positions has no place in Hugging Face's GPT-2, expected learned "
            "ones");
  EXPECT_THAT(refused(":norm=rms"), HasSubstr("rms norms"));
  EXPECT_THAT(refused(":activation=swiglu"), HasSubstr("swiglu"));
  EXPECT_THAT(refused(":biases=no"), HasSubstr("no biases"));
  EXPECT_THAT(refused(":tied=no"), HasSubstr("a head of its own"));
  require_gpt2(parse_model("gpt2"));
}

TEST_F(HuggingFace, DumpHasWhatATestOfTheModelNeeds) {
  const data::Batch batch = random_batch(small(), 2, 9);
  dump_hugging_face(other_, from_.model, batch);
  const auto file = io::SafetensorsFile::open(other_);
  EXPECT_EQ(file.find("tokens")->dtype, "I64");
  EXPECT_EQ(file.find("targets")->shape, (std::vector<int64_t>{2, 9}));
  EXPECT_EQ(file.find("logits")->shape, (std::vector<int64_t>{2, 9, 17}));
  EXPECT_EQ(file.find("grad.h.0.mlp.c_fc.weight")->shape, (std::vector<int64_t>{12, 20}));
  EXPECT_EQ(file.tensors().size(), 4 + from_.model.size());
  double loss = 0, mean = 0;
  std::memcpy(&loss, file.find("loss")->data, sizeof loss);
  for (size_t row = 0; row < 18; ++row) {
    double sum = 0;
    for (size_t v = 0; v < 17; ++v) sum += std::exp(at(file, "logits", row * 17 + v));
    const auto target = static_cast<size_t>(batch.targets[row]);
    mean += (std::log(sum) - at(file, "logits", row * 17 + target)) / 18;
  }
  EXPECT_NEAR(loss, mean, 1e-5);
}

}  // namespace
}  // namespace gallop::gpt
