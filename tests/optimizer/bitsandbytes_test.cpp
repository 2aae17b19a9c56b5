// SPDX-License-Identifier: MIT
// States under bitsandbytes' names and back.
#include <cmath>
#include <map>

#include "core/quantise.h"
#include "gallop/convert.h"
#include "io/safetensors.h"
#include "optimizer/fixture.h"

namespace gallop::test {
namespace {

Plan plan_of(const Variant& v, StateFormat format) {
  Plan plan{v, {DType::f32, DType::f32, Rounding::nearest, format, Rounding::nearest}};
  plan.sizes = {{0, 1, 255, 1003}, {200000}};
  return plan;
}
Variant with(const std::string& rule, Hyper hyper) { return {rule, rule, std::move(hyper)}; }
const Variant kAdamW = with("adamw", {});

void train(World& w, uint64_t steps = 2) {
  for (uint64_t k = 0; k < steps; ++k) {
    w.fill_grads(k);
    w.optimizer.step();
  }
}

struct Tensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
  bool operator==(const Tensor&) const = default;
};
using Tensors = std::map<std::string, Tensor>;

Tensors read(const std::string& path) {
  const auto file = io::SafetensorsFile::open(path);
  Tensors out;
  for (const auto& [key, t] : file.tensors()) {
    out[key] = {t.dtype, t.shape, {reinterpret_cast<const char*>(t.data), t.bytes}};
  }
  return out;
}
void write(const std::string& path, const Tensors& tensors) {  // as Python would: no metadata
  std::vector<io::TensorOut> out;
  for (const auto& [key, t] : tensors) {
    out.push_back({key, t.dtype, t.shape, t.bytes.data(), t.bytes.size()});
  }
  io::write_safetensors(path, out, {});
}
float& value(Tensor& t, size_t i) { return reinterpret_cast<float*>(t.bytes.data())[i]; }

class BitsAndBytes : public testing::Test {
 protected:
  // A trained checkpoint in in_, one before the first step in like_, the export in theirs_.
  void make(const Variant& v = kAdamW, StateFormat format = StateFormat::bnb8) {
    World(plan_of(v, format)).optimizer.save(like_);
    World w(plan_of(v, format));
    train(w);
    w.optimizer.save(in_);
    to_bitsandbytes(in_, theirs_);
  }
  void expect_refused(std::initializer_list<std::string_view> parts,
                      const std::function<void(Tensors&)>& change) {
    make();
    Tensors t = read(theirs_);
    change(t);
    write(theirs_, t);
    expect_error(ErrorCode::invalid_file, parts, [&] { from_bitsandbytes(theirs_, like_, out_); });
    EXPECT_FALSE(std::filesystem::exists(out_));
  }

  Folder folder_;
  std::string in_ = folder_ / "in", like_ = folder_ / "like", theirs_ = folder_ / "theirs",
              out_ = folder_ / "out";
};

TEST_F(BitsAndBytes, KeysTypesAndMaps) {
  make();
  Tensors t = read(theirs_), ours = read(in_);
  EXPECT_EQ(t.size(), 5 * 7u);
  Tensor &state1 = t["p4.state1"], &absmax1 = t["p4.absmax1"], &qmap1 = t["p4.qmap1"],
         &qmap2 = t["p4.qmap2"];
  EXPECT_EQ(state1, ours["state.p4.exp_avg"]);
  EXPECT_EQ(state1.dtype, "U8");
  EXPECT_EQ(state1.shape, (std::vector<int64_t>{800, 250}));
  EXPECT_EQ(t["p4.state2"], ours["state.p4.exp_avg_sq"]);
  EXPECT_EQ(absmax1, ours["state.p4.exp_avg.absmax"]);
  EXPECT_EQ(absmax1.shape, (std::vector<int64_t>{782}));
  EXPECT_EQ(t["p4.step"], ours["state.p4.step"]);
  ASSERT_EQ(qmap1.shape, (std::vector<int64_t>{256}));
  ASSERT_EQ(qmap2.shape, (std::vector<int64_t>{256}));
  // Values of bitsandbytes' own create_dynamic_map().
  EXPECT_FLOAT_EQ(value(qmap1, 0), -0.99296875f);
  EXPECT_FLOAT_EQ(value(qmap1, 127), 0);
  EXPECT_FLOAT_EQ(value(qmap1, 128), 5.5e-7f);
  EXPECT_FLOAT_EQ(value(qmap1, 255), 1);
  EXPECT_FLOAT_EQ(value(qmap2, 0), 0);
  EXPECT_FLOAT_EQ(value(qmap2, 1), 3.25e-7f);
  EXPECT_FLOAT_EQ(value(qmap2, 254), 0.99648437f);
  EXPECT_FLOAT_EQ(value(qmap2, 255), 1);
  for (size_t c = 1; c < 256; ++c) {
    EXPECT_GT(value(qmap1, c), value(qmap1, c - 1));
    EXPECT_GT(value(qmap2, c), value(qmap2, c - 1));
  }
}

TEST_F(BitsAndBytes, RoundTripIsLossless) {
  for (const Variant& v :
       {kAdamW, with("adam", {}), with("lion", {}), with("sgd", {{"momentum", 0.9}}),
        with("rmsprop", {}), with("adagrad", {})}) {
    for (StateFormat f : {StateFormat::bnb8, StateFormat::f32}) {
      SCOPED_TRACE(v.rule + " " + std::string(to_string(f)));
      make(v, f);
      write(theirs_, read(theirs_));
      const Conversion c = from_bitsandbytes(theirs_, like_, out_);
      EXPECT_EQ(read(in_), read(out_));
      EXPECT_EQ(c.tensors, read(in_).size());
      World before(plan_of(v, f)), after(plan_of(v, f));
      train(before, 3);
      after.optimizer.load(out_);
      for (World* w : {&before, &after}) w->fill_grads(7);
      EXPECT_EQ(after.optimizer.steps(1), 2);
      EXPECT_EQ(after.optimizer.current_lr(0), before.optimizer.current_lr(0));
    }
  }
}

// Only the schedule of an optimizer counts a group's steps.
TEST_F(BitsAndBytes, SchedulesGoOn) {
  Plan plan = plan_of(kAdamW, StateFormat::bnb8);
  plan.group.schedule = parse_schedule("linear:warmup=10,total=100");
  World fresh(plan), trained(plan), loaded(plan);
  fresh.optimizer.save(like_);
  train(trained, 5);
  trained.optimizer.save(in_);
  to_bitsandbytes(in_, theirs_);
  from_bitsandbytes(theirs_, like_, out_);
  loaded.optimizer.load(out_);
  EXPECT_EQ(loaded.optimizer.current_lr(0), trained.optimizer.current_lr(0));
}

TEST_F(BitsAndBytes, OtherFormatsBecome8BitWhereLargeEnough) {
  for (StateFormat f : {StateFormat::bf16, StateFormat::q8, StateFormat::q4, StateFormat::fp8}) {
    make(kAdamW, f);
    Tensors t = read(theirs_);
    EXPECT_EQ(t["p4.state1"].dtype, "U8");
    EXPECT_EQ(t["p3.state1"].dtype, "F32");
    EXPECT_EQ(t.count("p3.qmap1"), 0u);
    EXPECT_NO_THROW(from_bitsandbytes(theirs_, like_, out_));
    World w(plan_of(kAdamW, f));
    EXPECT_NO_THROW(w.optimizer.load(out_));
  }
}

TEST_F(BitsAndBytes, MastersAreReported) {
  Plan plan = plan_of(kAdamW, StateFormat::bnb8);
  plan.formats.param = DType::bf16;
  plan.formats.rounding = Rounding::master;
  World w(plan);
  w.optimizer.save(in_);
  EXPECT_TRUE(to_bitsandbytes(in_, theirs_).low_bits);
  EXPECT_TRUE(from_bitsandbytes(theirs_, in_, out_).low_bits);
  make();
  EXPECT_FALSE(to_bitsandbytes(in_, theirs_).low_bits);
}

TEST_F(BitsAndBytes, RulesItDoesNotHaveAreRefused) {
  const auto refused = [&](const Variant& v, std::initializer_list<std::string_view> parts) {
    World(plan_of(v, StateFormat::f32)).optimizer.save(in_);
    expect_error(ErrorCode::unsupported, parts, [&] { to_bitsandbytes(in_, theirs_); });
    EXPECT_FALSE(std::filesystem::exists(theirs_));
  };
  refused(with("ademamix", {}), {"ademamix", "two averages"});
  refused(with("adan", {}), {"adan", "expected adam, adamw"});
  refused(with("sgd", {}), {"sgd without momentum", "momentum_buffer"});
  refused(with("adam", {{"amsgrad", 1}}), {"max_exp_avg_sq"});
  refused(with("rmsprop", {{"momentum", 0.9}}), {"momentum_buffer"});
  Plan plan = plan_of(kAdamW, StateFormat::f32);
  plan.formats = kF64;
  World(plan).optimizer.save(in_);
  expect_error(ErrorCode::unsupported, {"fp64"}, [&] { to_bitsandbytes(in_, theirs_); });
}

TEST_F(BitsAndBytes, FilesThatDoNotFitAreRefused) {
  expect_refused({"'p4.state1' is missing"}, [](Tensors& t) { t.erase("p4.state1"); });
  expect_refused({"'p4.step' is missing"}, [](Tensors& t) { t.erase("p4.step"); });
  expect_refused({"'p4.qmap2' is missing"}, [](Tensors& t) { t.erase("p4.qmap2"); });
  expect_refused({"'p4.absmax1' is missing"}, [](Tensors& t) { t.erase("p4.absmax1"); });
  expect_refused({"'p4.state1'", "[250, 800]", "[800, 250]"}, [](Tensors& t) {
    t["p4.state1"].shape = {250, 800};
  });
  expect_refused({"'p4.state1' is I8"}, [](Tensors& t) { t["p4.state1"].dtype = "I8"; });
  expect_refused({"'p4.absmax2'", "[2, 391]"}, [](Tensors& t) {
    t["p4.absmax2"].shape = {2, 391};
  });
  expect_refused({"'p4.absmax1'", "2048"}, [](Tensors& t) {
    t["p4.absmax1"].shape = {98};
    t["p4.absmax1"].bytes.resize(98 * 4);
  });
  expect_refused({"'p4.qmap1'", "code 200", "signed"},
                 [](Tensors& t) { value(t["p4.qmap1"], 200) *= 1.0001f; });
  expect_refused({"'p4.qmap2'", "code 0", "unsigned"},
                 [](Tensors& t) { value(t["p4.qmap2"], 0) = 1e-9f; });
  expect_refused({"'p4.qmap1'"}, [](Tensors& t) { value(t["p4.qmap1"], 1) = NAN; });
  expect_refused({"'more'", "template"}, [](Tensors& t) { t["more.state1"] = t["p4.state1"]; });
  expect_refused({"p4.step is -2"}, [](Tensors& t) {
    const int64_t steps = -2;
    std::memcpy(t["p4.step"].bytes.data(), &steps, sizeof steps);
  });
}

TEST_F(BitsAndBytes, MapsThatDifferByRoundingAreTaken) {
  make();
  Tensors t = read(theirs_);
  for (size_t c = 0; c < 256; ++c) value(t["p4.qmap1"], c) *= 1 + 1e-6f;
  write(theirs_, t);
  EXPECT_NO_THROW(from_bitsandbytes(theirs_, like_, out_));
}

TEST_F(BitsAndBytes, AnotherOptimizersFileIsRefused) {
  make();
  World(plan_of(with("adam", {}), StateFormat::bnb8)).optimizer.save(like_);
  expect_error(ErrorCode::invalid_file, {theirs_, "adamw", "adam"},
               [&] { from_bitsandbytes(theirs_, like_, out_); });
  expect_error(ErrorCode::invalid_file, {in_, "is missing"},
               [&] { from_bitsandbytes(in_, in_, out_); });
  expect_error(ErrorCode::invalid_file, {theirs_, "gallop.optimizer"},
               [&] { to_bitsandbytes(theirs_, out_); });
  expect_error(ErrorCode::io, {"nothing"},
               [&] { from_bitsandbytes(theirs_, folder_ / "nothing", out_); });
}

}  // namespace
}  // namespace gallop::test
