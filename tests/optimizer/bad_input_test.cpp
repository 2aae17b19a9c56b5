// SPDX-License-Identifier: MIT
#include <fmt/format.h>

// What is refused, with which words, and that nothing has changed after it.
#include <cmath>
#include <limits>
#include <map>

#include "optimizer/fixture.h"

namespace gallop::test {
namespace {

using Parts = std::initializer_list<std::string_view>;
constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

// An optimizer and one that is spared the bad input. When the test ends both must step alike.
class Pair {
 public:
  explicit Pair(const Variant& v = plain("adam"), const Formats& f = kF32)
      : w({v, f}), twin_({v, f}) {
    for (World* world : {&w, &twin_}) {
      world->fill_grads(1);
      world->optimizer.step();
    }
  }
  ~Pair() {
    EXPECT_EQ(w.optimizer.groups(), twin_.optimizer.groups());
    EXPECT_EQ(w.optimizer.size(), twin_.optimizer.size());
    for (World* world : {&w, &twin_}) {
      world->fill_grads(2);
      world->optimizer.step();
    }
    EXPECT_EQ(difference(w.snapshot(), twin_.snapshot()), "");
  }
  template <class Action>
  void refuses(Parts parts, Action action) {
    expect_error(ErrorCode::invalid_argument, parts, action);
    EXPECT_EQ(difference(w.snapshot(), twin_.snapshot()), "");
  }

  World w;

 private:
  World twin_;
};

// Four elements of every type, where the tests' optimizers are.
void* memory(DType type, size_t which = 0) {
  static std::map<std::pair<DType, size_t>, Buffer> all;
  return all.try_emplace({type, which}, type, 4, false, test_device()).first->second.data();
}
void* data() { return memory(DType::f32); }
void* grad() { return memory(DType::f32, 1); }
void* wide() { return memory(DType::f64); }

Param param(const std::string& name = "new") { return {name, {4}, data(), grad()}; }

TEST(BadInput, UnknownRule) {
  expect_error(ErrorCode::invalid_argument, {"'adamm'", "adam,", "sgd"},
               [] { Optimizer("adamm"); });
  expect_error(ErrorCode::invalid_argument, {"'Adam'", "adam,"}, [] { rule_info("Adam"); });
}

TEST(BadInput, Options) {
  const auto with = [](auto change) {
    Options o;
    change(o);
    Optimizer("adam", o);
  };
  const auto refused = [&](Parts parts, auto change) {
    expect_error(ErrorCode::invalid_argument, parts, [&] { with(change); });
  };
  refused({"threads is -1", "0 (all) to 4096"}, [](Options& o) { o.threads = -1; });
  refused({"threads is 4097", "4096"}, [](Options& o) { o.threads = 4097; });
  refused({"clip_value is -1", "0 (off) or more"}, [](Options& o) { o.clip_value = -1; });
  refused({"clip_value is nan"}, [](Options& o) { o.clip_value = kNan; });
  refused({"clip_norm is -0.5", "0 (off) or more"}, [](Options& o) { o.clip_norm = -0.5; });
  refused({"clip_norm is nan"}, [](Options& o) { o.clip_norm = kNan; });
}

TEST(BadInput, UnknownKnob) {
  Pair t;
  t.refuses({"adam", "'beta3'", "beta1", "amsgrad"}, [&] {
    t.w.optimizer.add_group({}, {{{"beta3", 0.5}}, {}});
  });
  t.refuses({"'beta3'"}, [&] { t.w.optimizer.set(0, "beta3", 0.5); });
  t.refuses({"'beta3'"}, [&] { t.w.optimizer.set_all("beta3", 0.5); });
  t.refuses({"'beta3'"}, [&] { t.w.optimizer.get(0, "beta3"); });
}

TEST(BadInput, ValuesOutOfRangeAreNamedWithTheRange) {
  Pair t;
  t.refuses({"lr is -1", "at least 0"}, [&] { t.w.optimizer.set(0, "lr", -1); });
  t.refuses({"beta1 is 1,", "in [0, 1)"}, [&] { t.w.optimizer.set(0, "beta1", 1); });
  t.refuses({"lr is nan", "at least 0"}, [&] { t.w.optimizer.set(0, "lr", kNan); });
  t.refuses({"lr is inf", "at least 0"}, [&] { t.w.optimizer.set(0, "lr", kInf); });
  t.refuses({"amsgrad is 0.5", "0 or 1"}, [&] { t.w.optimizer.set(0, "amsgrad", 0.5); });
  expect_error(ErrorCode::invalid_argument, {"weight_decay_type is 0.5", "grad or direct"}, [] {
    Optimizer("qhm").add_group({}, {{{"weight_decay_type", 0.5}}, {}});
  });
  expect_error(ErrorCode::invalid_argument, {"beta1 is 0,", "in (0, 1]"}, [] {
    Optimizer("schedulefree_adamw").add_group({}, {{{"beta1", 0}}, {}});
  });
}

TEST(BadInput, EveryKnobOfEveryRuleKeepsItsRange) {
  for (const std::string& rule : rule_names()) {
    Pair t(plain(rule));
    for (const KnobInfo& k : rule_info(rule).knobs) {
      std::vector<double> bad = {kNan, kInf, -kInf, k.low - 0.5};
      if (!k.low_included) bad.push_back(k.low);
      if (std::isfinite(k.high)) bad.push_back(k.high_included ? k.high + 2 : k.high);
      if (k.whole) bad.push_back(0.5);
      for (double value : bad) {
        SCOPED_TRACE(rule + " " + k.name + " " + std::to_string(value));
        t.refuses({rule, k.name, "expected"}, [&] { t.w.optimizer.set(0, k.name, value); });
        t.refuses({rule, k.name, "expected"}, [&] {
          t.w.optimizer.add_group({}, {{{k.name, value}}, {}});
        });
      }
    }
  }
}

TEST(BadInput, KnobsThatDoNotGoTogether) {
  const Parts why = {"nesterov", "momentum", "dampening"};
  Optimizer o("sgd");
  expect_error(ErrorCode::invalid_argument, why, [&] {
    o.add_group({param()}, {{{"nesterov", 1}}, {}});
  });
  o.add_group({param()}, {{{"momentum", 0.9}, {"dampening", 0.5}}, {}});
  expect_error(ErrorCode::invalid_argument, why, [&] { o.set(0, "nesterov", 1); });
  EXPECT_EQ(o.get(0, "nesterov"), 0);
}

TEST(BadInput, KnobThatDecidesWhichStatesExistIsFixed) {
  for (double start : {0.0, 0.9}) {
    Variant v = plain("sgd");
    v.hyper.emplace_back("momentum", start);
    Pair t(v);
    t.refuses({"momentum", "0.9", "from 0", "to 0"},
              [&] { t.w.optimizer.set(0, "momentum", 0.9 - start); });
    EXPECT_EQ(t.w.optimizer.get(0, "momentum"), start);
    if (start > 0) t.w.optimizer.set(0, "momentum", 0.9);
  }
}

TEST(BadInput, SetAllIsAllOrNothing) {
  Optimizer o("sgd");
  o.add_group({param("a")}, {{{"momentum", 0.9}}, {}});
  o.add_group({param("b")}, {{{"momentum", 0.9}, {"nesterov", 1}}, {}});
  expect_error(ErrorCode::invalid_argument, {"dampening"}, [&] { o.set_all("dampening", 0.5); });
  EXPECT_EQ(o.get(0, "dampening"), 0);
  EXPECT_EQ(o.get(1, "dampening"), 0);
}

TEST(BadInput, Parameters) {
  Pair t;
  const auto refused = [&](Parts parts, std::vector<Param> params, GroupOptions group = {}) {
    // A good one before it must not stay.
    params.insert(params.begin(), param("good"));
    t.refuses(parts, [&] { t.w.optimizer.add_group(params, group); });
  };
  refused({"'twice'"}, {param("twice"), param("twice")});
  refused({"'p3'"}, {param("p3")});
  Param p = param();
  p.data = nullptr;
  refused({"'new'", "data is null"}, {p});
  p = param();
  p.shape = {2, -3};
  refused({"'new'", "[2, -3]"}, {p});
  p.shape = {int64_t{1} << 40, int64_t{1} << 40};
  refused({"'new'", "[1099511627776, 1099511627776]"}, {p});
  p = {"new", {4}, wide(), grad(), DType::f64, DType::f32, Role::other};
  refused({"'new'", "fp64 parameter", "fp32 gradient"}, {p});
  p = {"new", {4}, data(), wide(), DType::f32, DType::f64, Role::other};
  refused({"'new'", "fp32 parameter", "fp64 gradient"}, {p});

  GroupOptions group;
  group.rounding = Rounding::remainder;
  p = {"new", {4}, data(), grad(), DType::f16, DType::f16, Role::other};
  refused({"'new'", "remainder", "bf16", "fp16"}, {p}, group);
  group = {};
  group.state = StateFormat::bf16;
  p = {"new", {4}, wide(), wide(), DType::f64, DType::f64, Role::other};
  refused({"'new'", "bf16", "fp64"}, {p}, group);
  group = {};
  group.state_rounding = Rounding::master;
  refused({"state_rounding is master", "nearest or stochastic"}, {}, group);
  group = {};
  group.schedule.kind = ScheduleKind::cosine;  // without total_steps
  refused({"total_steps"}, {}, group);
}

TEST(BadInput, MoreStateThanThereIsMemory) {
  Pair t;
  Param p = param();
  p.shape = {int64_t{1} << 50};
  p.grad = nullptr;
  expect_error(ErrorCode::out_of_memory, {"no memory for 90071992547", " bytes"},
               [&] { t.w.optimizer.add_group({p}, {}); });
}

TEST(BadInput, StepArguments) {
  Pair t;
  for (double bad : {0.0, -1.0, kNan, kInf}) {
    t.refuses({"grad_scale is", "above 0"}, [&] { t.w.optimizer.step({.grad_scale = bad}); });
    t.refuses({"accumulation is", "above 0"}, [&] { t.w.optimizer.step({.accumulation = bad}); });
    t.refuses({"grad_scale is"}, [&] { t.w.optimizer.begin_step({.grad_scale = bad}); });
  }
  t.refuses({"grad_scale is 0,"}, [&] { t.w.optimizer.step({.grad_scale = 0}); });
  t.refuses({"grad_scale is nan"}, [&] { t.w.optimizer.step({.grad_scale = kNan}); });
  t.refuses({"'hessian'", "step"}, [&] { t.w.optimizer.run("hessian"); });
  t.refuses({"step()"}, [&] { t.w.optimizer.run("step"); });
  Pair sophia(plain("sophiag"));
  sophia.refuses({"grad_scale is 0"},
                 [&] { sophia.w.optimizer.run("hessian", {.grad_scale = 0}); });
}

TEST(BadInput, IndicesThatDoNotExist) {
  Pair t;
  Optimizer& o = t.w.optimizer;
  const Parts group = {"group 2", "there are 2"}, parameter = {"parameter 6", "there are 6"};
  t.refuses(group, [&] { o.set(2, "lr", 1); });
  t.refuses(group, [&] { o.get(2, "lr"); });
  t.refuses(group, [&] { o.current_lr(2); });
  t.refuses(group, [&] { o.set_schedule(2, {}); });
  t.refuses(group, [&] { o.schedule(2); });
  t.refuses(parameter, [&] { o.set_grad(6, nullptr); });
  t.refuses(parameter, [&] { o.set_data(6, data()); });
  t.refuses(parameter, [&] { o.param(6); });
  t.refuses(parameter, [&] { o.group_of(6); });
  t.refuses(parameter, [&] { o.states(6); });
  t.refuses(parameter, [&] { o.low_bits(6); });
  t.refuses(parameter, [&] { o.steps(6); });
  t.refuses({"'p5'", "null"}, [&] { o.set_data(5, nullptr); });
  t.refuses({"total_steps"}, [&] { o.set_schedule(0, {.kind = ScheduleKind::linear}); });
}

TEST(BadInput, NamesOfTypes) {
  const auto refused = [](Parts parts, auto action) {
    expect_error(ErrorCode::invalid_argument, parts, action);
  };
  refused({"'fp8'", "fp32", "bf16", "fp16", "fp64"}, [] { parse_dtype("fp8"); });
  refused({"'up'", "nearest", "remainder"}, [] { parse_rounding("up"); });
  refused({"'int8'", "fp32", "bf16"}, [] { parse_state_format("int8"); });
  refused({"'fused'", "unfused", "single", "multi"}, [] { parse_mode("fused"); });
  for (const char* name : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "CPU"}) {
    refused({fmt::format("'{}'", name), "cpu", "cuda"}, [=] { parse_device(name); });
  }
  for (DType d : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    EXPECT_EQ(parse_dtype(to_string(d)), d);
  }
}

TEST(Device, NamesGoBothWays) {
  EXPECT_EQ(parse_device("cpu"), Device{});
  EXPECT_EQ(parse_device("cuda"), (Device{Device::Kind::cuda, 0}));
  EXPECT_EQ(parse_device("cuda:3"), (Device{Device::Kind::cuda, 3}));
  for (const char* name : {"cpu", "cuda:0", "cuda:12"}) {
    EXPECT_EQ(to_string(parse_device(name)), name);
  }
}

TEST(Device, AGpuThatIsNotThereIsRefusedInOneSentence) {
  Options o;
  o.device = {Device::Kind::cuda, 77};
  const auto make = [&] { Optimizer opt("adamw", o); };
  try {
    make();
    FAIL() << "there are 78 GPUs here";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::unsupported) << e.what();
  }
}

}  // namespace
}  // namespace gallop::test
