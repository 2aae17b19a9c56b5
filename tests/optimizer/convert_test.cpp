// SPDX-License-Identifier: MIT
// Checkpoints from one state format to another.
#include "gallop/convert.h"

#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "io/safetensors.h"
#include "optimizer/fixture.h"

namespace gallop::test {
namespace {

using nlohmann::json;

constexpr StateFormat kAllFormats[] = {StateFormat::f32,  StateFormat::bf16, StateFormat::q8,
                                       StateFormat::bnb8, StateFormat::q4,   StateFormat::fp8};

// Some parameters are below 4096 elements, one is no multiple of a block.
struct Model {
  Model(const std::string& rule, const StatePolicy& policy, Hyper hyper = {},
        DType dtype = DType::f32)
      : optimizer(rule, on_device(one_thread(), test_device())) {
    const std::vector<std::pair<std::vector<int64_t>, Role>> shapes = {
        {{16, 512}, Role::hidden}, {{512}, Role::norm},   {{40, 130}, Role::hidden},
        {{6001}, Role::bias},      {{0, 4}, Role::other}, {{300, 256}, Role::embedding}};
    std::vector<Param> params;
    for (const auto& [shape, role] : shapes) {
      int64_t n = 1;
      for (int64_t d : shape) n *= d;
      data.emplace_back(dtype, n, false, test_device());
      grads.emplace_back(dtype, n, false, test_device());
      data.back().fill_normal(data.size(), 1);
      params.push_back({std::string("layer.") + std::to_string(data.size() - 1), shape,
                        data.back().data(), grads.back().data(), dtype, dtype, role});
    }
    GroupOptions group;
    group.state = policy;
    group.hyper = std::move(hyper);
    group.schedule = parse_schedule("linear:warmup=10,total=100");
    const size_t half = params.size() / 2;
    optimizer.add_group({params.begin(), params.begin() + half}, group);
    optimizer.add_group({params.begin() + half, params.end()}, group);
  }
  Model& train(int steps) {
    for (int k = 0; k < steps; ++k) {
      for (size_t i = 0; i < grads.size(); ++i) {
        grads[i].fill_normal(100 * static_cast<uint64_t>(k) + i, 0.1);
      }
      optimizer.step();
    }
    return *this;
  }
  std::vector<float> values(size_t param, size_t state) const {
    return optimizer.state_values(param, optimizer.states(param)[state].name);
  }

  std::vector<Buffer> data, grads;
  Optimizer optimizer;
};

// By how much a block's largest magnitude may be missed: about a code's distance at its widest.
double error_of(StateFormat f) {
  switch (f) {
    case StateFormat::f32:
      return 0;
    case StateFormat::bf16:
      return 1.0 / 256;
    case StateFormat::q8:
      return 1.0 / 63;
    case StateFormat::bnb8:
      return 1.0 / 100;
    case StateFormat::q4:
      return 2.0 / 7;
    case StateFormat::fp8:
      return 1.0 / 8;
  }
  return 0;
}

void expect_close(const std::vector<float>& before, const std::vector<float>& after, double error) {
  ASSERT_EQ(before.size(), after.size());
  for (size_t first = 0; first < before.size(); first += 128) {
    float most = 0;
    const size_t from = first / 256 * 256;
    for (size_t i = from; i < std::min(from + 256, before.size()); ++i) {
      most = std::max(most, std::fabs(before[i]));
    }
    for (size_t i = first; i < std::min(first + 128, before.size()); ++i) {
      ASSERT_NEAR(before[i], after[i], error * most) << i;
    }
  }
}

std::string bytes_of(const io::TensorView& t) {
  return {reinterpret_cast<const char*>(t.data), t.bytes};
}

void expect_same_tensors(const std::string& a, const std::string& b) {
  const auto x = io::SafetensorsFile::open(a), y = io::SafetensorsFile::open(b);
  ASSERT_EQ(x.tensors().size(), y.tensors().size());
  for (const auto& [key, t] : x.tensors()) {
    const io::TensorView* other = y.find(key);
    ASSERT_NE(other, nullptr) << key;
    EXPECT_EQ(t.dtype, other->dtype) << key;
    EXPECT_EQ(t.shape, other->shape) << key;
    EXPECT_TRUE(bytes_of(t) == bytes_of(*other)) << key;
  }
}

// Writes a checkpoint again with its groups' metadata changed.
void edit_groups(const std::string& path, const std::function<void(json&)>& change) {
  const auto file = io::SafetensorsFile::open(path);
  std::vector<io::TensorOut> tensors;
  for (const auto& [key, t] : file.tensors()) {
    tensors.push_back({key, t.dtype, t.shape, t.data, t.bytes});
  }
  auto metadata = file.metadata();
  json groups = json::parse(metadata["groups"]);
  change(groups);
  metadata["groups"] = groups.dump();
  io::write_safetensors(path, tensors, metadata);
}

class Convert : public testing::Test {
 protected:
  Folder folder_;
  std::string in_ = folder_ / "in", out_ = folder_ / "out";
};

TEST_F(Convert, EveryFormatToEveryOtherLoadsAndIsClose) {
  for (StateFormat from : kAllFormats) {
    const Model before = std::move(Model("adamw", from).train(3));
    before.optimizer.save(in_);
    for (StateFormat to : kAllFormats) {
      SCOPED_TRACE(std::string(to_string(from)) + " to " + std::string(to_string(to)));
      convert_checkpoint(in_, out_, to);
      Model after("adamw", to);
      after.optimizer.load(out_);
      EXPECT_EQ(after.optimizer.steps(0), 3);
      for (size_t i = 0; i < before.data.size(); ++i) {
        for (size_t j = 0; j < 2; ++j) {
          expect_close(before.values(i, j), after.values(i, j), from == to ? 0 : error_of(to));
        }
      }
      after.train(1);
    }
  }
}

TEST_F(Convert, SameFormatKeepsEveryByte) {
  for (StateFormat f : kAllFormats) {
    std::move(Model("adan", f)).train(2).optimizer.save(in_);
    const Conversion c = convert_checkpoint(in_, out_, f);
    expect_same_tensors(in_, out_);
    EXPECT_EQ(c.bytes_before, c.bytes_after);
    EXPECT_EQ(c.tensors, io::SafetensorsFile::open(in_).tensors().size());
    EXPECT_EQ(io::SafetensorsFile::open(in_).metadata(),
              io::SafetensorsFile::open(out_).metadata());
  }
}

// As docs/checkpoints.md has it.
TEST_F(Convert, CodesMeanWhatTheDocumentationSays) {
  using Unit = std::function<double(uint8_t)>;
  const auto square = [](int c, int most) { return 1.0 * c * std::abs(c) / (most * most); };
  const Unit eight[] = {[&](uint8_t c) { return square(static_cast<int8_t>(c), 127); },
                        [](uint8_t c) { return std::pow(c / 255.0, 4); }};
  const Unit four[] = {[&](uint8_t c) { return square(c < 8 ? c : c - 16, 7); },
                       [](uint8_t c) { return std::pow(c / 15.0, 4); }};
  for (StateFormat f : {StateFormat::q8, StateFormat::q4}) {
    const bool half = f == StateFormat::q4;
    Model m("adamw", f);
    m.train(3).optimizer.save(in_);
    const auto file = io::SafetensorsFile::open(in_);
    for (size_t j = 0; j < 2; ++j) {
      const std::string key = std::string("state.layer.3.") + (j == 0 ? "exp_avg" : "exp_avg_sq");
      const io::TensorView &codes = *file.find(key), &absmax = *file.find(key + ".absmax");
      EXPECT_EQ(codes.dtype, half || j == 1 ? "U8" : "I8");
      EXPECT_EQ(codes.shape, std::vector<int64_t>{half ? 3001 : 6001});
      EXPECT_EQ(absmax.shape, std::vector<int64_t>{half ? 47 : 24});
      const std::vector<float> values = m.values(3, j);
      for (size_t i = 0; i < values.size(); ++i) {
        float scale;
        std::memcpy(&scale, absmax.data + 4 * (i / (half ? 128 : 256)), sizeof scale);
        const auto byte = static_cast<uint8_t>(codes.data[half ? i / 2 : i]);
        const auto nibble = static_cast<uint8_t>(i % 2 == 0 ? byte & 15 : byte >> 4);
        ASSERT_NEAR(values[i], scale * (half ? four[j](nibble) : eight[j](byte)), 1e-6 * scale)
            << key << " " << i;
      }
    }
  }
}

TEST_F(Convert, To8BitAndBackIsLossless) {
  Model("adamw", StateFormat::q8).train(3).optimizer.save(in_);
  convert_checkpoint(in_, out_, StateFormat::f32);
  convert_checkpoint(out_, out_, StateFormat::q8);
  expect_same_tensors(in_, out_);
}

// Rules with rows, exact states, matrices and scalars: the same decisions as an optimizer makes.
TEST_F(Convert, EveryRuleLoadsAfterwards) {
  const StatePolicy policies[] = {StateFormat::f32, parse_state_policy("hybrid"), StateFormat::bnb8,
                                  parse_state_policy("layer.0=4bit,size<4096=bf16,fp8")};
  for (const std::string& rule : rule_names()) {
    Hyper hyper;
    for (const char* knob : {"momentum", "amsgrad"}) {
      const int k = rule_info(rule).knob(knob);
      if (k < 0) continue;
      hyper.emplace_back(knob, rule_info(rule).knobs[static_cast<size_t>(k)].whole ? 1 : 0.9);
    }
    Model(rule, policies[0], hyper).train(2).optimizer.save(in_);
    for (size_t k = 1; k <= std::size(policies); ++k) {
      const StatePolicy& to = policies[k % std::size(policies)];
      SCOPED_TRACE(rule + " to " + to_string(to));
      convert_checkpoint(in_, in_, to);
      Model after(rule, to, hyper);
      EXPECT_NO_THROW(after.optimizer.load(in_));
      after.optimizer.save(out_);
      expect_same_tensors(in_, out_);
      EXPECT_EQ(io::SafetensorsFile::open(in_).metadata(),
                io::SafetensorsFile::open(out_).metadata());
    }
  }
}

TEST_F(Convert, FileOfAnEarlierVersion) {
  for (const char* rule : {"adamw", "adafactor", "adafactor_torch"}) {
    SCOPED_TRACE(rule);
    Model(rule, StateFormat::f32).train(2).optimizer.save(in_);
    edit_groups(in_, [](json& groups) {
      for (json& g : groups) {
        for (const char* key : {"formats", "roles", "shapes"}) g.erase(key);
        g["state"] = "fp32";
      }
    });
    convert_checkpoint(in_, out_, StateFormat::q8);
    Model after(rule, StateFormat::q8);
    EXPECT_NO_THROW(after.optimizer.load(out_));
    EXPECT_EQ(after.optimizer.steps(0), 2);
  }
}

TEST_F(Convert, EarlierVersionWithoutStateOrRolesSaysSo) {
  const auto older = [&](const char* rule) {
    Model(rule, StateFormat::f32).train(1).optimizer.save(in_);
    edit_groups(in_, [](json& groups) {
      for (json& g : groups) {
        for (const char* key : {"formats", "roles", "shapes"}) g.erase(key);
      }
    });
  };
  older("sgd");
  expect_error(ErrorCode::invalid_file, {in_, "'layer.0' has no state", "earlier version"},
               [&] { convert_checkpoint(in_, out_, StateFormat::q8); });
  older("muon");
  expect_error(ErrorCode::invalid_file, {in_},
               [&] { convert_checkpoint(in_, out_, StateFormat::q8); });
}

TEST_F(Convert, MastersAndRemaindersStay) {
  for (Rounding rounding : {Rounding::master, Rounding::remainder}) {
    Plan plan{plain("adam"),
              {DType::bf16, DType::f32, rounding, StateFormat::f32, Rounding::nearest}};
    World before(plan);
    before.fill_grads(1);
    before.optimizer.step();
    before.optimizer.save(in_);
    convert_checkpoint(in_, out_, StatePolicy::all(StateFormat::q8));
    plan.formats.state = StateFormat::q8;
    World after(plan);
    after.optimizer.load(out_);
    for (size_t i = 0; i < before.params.size(); ++i) {
      const auto bytes =
          static_cast<size_t>(before.params[i].size()) * (rounding == Rounding::master ? 4 : 2);
      if (bytes == 0) continue;
      EXPECT_EQ(std::memcmp(before.optimizer.low_bits(i), after.optimizer.low_bits(i), bytes), 0);
    }
  }
}

TEST_F(Convert, Fp64StateStaysOrIsRefused) {
  Model("adam", StateFormat::f32, {}, DType::f64).train(1).optimizer.save(in_);
  convert_checkpoint(in_, out_, StateFormat::f32);
  expect_same_tensors(in_, out_);
  expect_error(ErrorCode::invalid_argument, {"layer.0", "fp64"},
               [&] { convert_checkpoint(in_, out_, StateFormat::q8); });
}

TEST_F(Convert, InPlace) {
  Model("adamw", StateFormat::f32).train(2).optimizer.save(in_);
  const Conversion c = convert_checkpoint(in_, in_, StateFormat::q8);
  EXPECT_LT(c.bytes_after, c.bytes_before);
  Model after("adamw", StateFormat::q8);
  EXPECT_NO_THROW(after.optimizer.load(in_));
}

TEST_F(Convert, BadFilesAreRefusedAndNothingIsWritten) {
  const auto refused = [&](ErrorCode code, std::initializer_list<std::string_view> parts) {
    expect_error(code, parts, [&] { convert_checkpoint(in_, out_, StateFormat::q8); });
    EXPECT_FALSE(std::filesystem::exists(out_));
  };
  refused(ErrorCode::io, {in_, "No such file"});
  std::ofstream(in_) << "no checkpoint";
  refused(ErrorCode::invalid_file, {in_});
  io::write_safetensors(in_, {}, {});
  refused(ErrorCode::invalid_file, {in_, "'format' is missing", "gallop optimizer checkpoint"});
  io::write_safetensors(in_, {}, {{"format", "pt"}});
  refused(ErrorCode::invalid_file, {in_, "'pt'", "gallop.optimizer"});
  io::write_safetensors(in_, {}, {{"format", "gallop.optimizer"}, {"version", "9"}});
  refused(ErrorCode::invalid_file, {in_, "version", "'9'"});
  io::write_safetensors(
      in_, {},
      {{"format", "gallop.optimizer"}, {"version", "1"}, {"optimizer", "zz"}, {"groups", "[]"}});
  refused(ErrorCode::invalid_file, {in_, "'zz' is unknown"});
  io::write_safetensors(
      in_, {},
      {{"format", "gallop.optimizer"}, {"version", "1"}, {"optimizer", "adam"}, {"groups", "[{"}});
  refused(ErrorCode::invalid_file, {in_, "metadata is damaged"});
}

TEST_F(Convert, MetadataThatDoesNotFitIsRefused) {
  const auto refused = [&](std::initializer_list<std::string_view> parts,
                           const std::function<void(json&)>& change) {
    Model("adamw", StateFormat::q8).train(1).optimizer.save(in_);
    edit_groups(in_, change);
    expect_error(ErrorCode::invalid_file, parts,
                 [&] { convert_checkpoint(in_, out_, StateFormat::f32); });
    EXPECT_FALSE(std::filesystem::exists(out_));
  };
  refused({"layer.0.exp_avg", "I8 [16, 512]", "[16, 513]"}, [](json& g) {
    g[0]["shapes"][0] = {16, 513};
  });
  refused({"layer.0"}, [](json& g) { g[0]["shapes"][0] = {-1, 512}; });
  refused({"layer.0"}, [](json& g) { g[0]["shapes"][0] = {int64_t{1} << 40, int64_t{1} << 40}; });
  refused({"exp_avg", "I8", "expected F32"}, [](json& g) { g[0]["formats"][0] = "fp32"; });
  refused({"'9bit' is unknown"}, [](json& g) { g[0]["formats"][0] = "9bit"; });
  refused({"metadata is damaged"}, [](json& g) { g[0]["formats"] = json::array(); });
  refused({"metadata is damaged"}, [](json& g) { g[0].erase("hyper"); });
  refused({"metadata is damaged"}, [](json& g) { g[0]["params"][0] = 3; });
  refused({"is missing"}, [](json& g) { g[0]["params"][0] = "other"; });
  refused({"two parameters are named 'layer.0'"}, [](json& g) { g.push_back(g[0]); });
  refused({"tensors, expected"}, [](json& g) { g.erase(1); });
  refused({"step is -1"}, [](json& g) { g[0]["step"] = -1; });
}

TEST_F(Convert, AnyTruncationIsRefused) {
  Model("lion", StateFormat::q4).train(1).optimizer.save(in_);
  std::ifstream file(in_, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(file), {}};
  for (size_t n = 0; n < whole.size(); n += 1 + whole.size() / 50) {
    std::ofstream(in_, std::ios::binary) << whole.substr(0, n);
    expect_error(ErrorCode::invalid_file, {in_},
                 [&] { convert_checkpoint(in_, out_, StateFormat::f32); });
  }
}

TEST_F(Convert, UnwritableOutKeepsTheOldFile) {
  Model("adamw", StateFormat::f32).train(1).optimizer.save(in_);
  expect_error(ErrorCode::io, {"nowhere"},
               [&] { convert_checkpoint(in_, folder_ / "nowhere/out", StateFormat::q8); });
  std::filesystem::create_directory(out_);
  expect_error(ErrorCode::io, {out_, "directory"},
               [&] { convert_checkpoint(in_, out_, StateFormat::q8); });
}

}  // namespace
}  // namespace gallop::test
