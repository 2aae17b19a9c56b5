// SPDX-License-Identifier: MIT
// Which parameters get state in which format.
#include "gallop/policy.h"

#include "optimizer/fixture.h"

namespace gallop::test {
namespace {

constexpr StateFormat kF = StateFormat::f32, kB = StateFormat::bf16, kQ = StateFormat::q8;

Param param(const std::string& name, std::vector<int64_t> shape = {8192}, Role role = Role::other) {
  Param p;
  p.name = name;
  p.shape = std::move(shape);
  p.role = role;
  return p;
}

StateFormat chosen(std::string_view policy, const Param& p) {
  return parse_state_policy(policy).choose(p);
}

// ---- what is chosen ----

TEST(StatePolicy, IsFp32WithoutARule) {
  EXPECT_EQ(StatePolicy().choose(param("p")), kF);
  EXPECT_EQ(StatePolicy(std::vector<StateRule>{}).choose(param("p")), kF);
  EXPECT_EQ(chosen("a*=8bit", param("b")), kF);
}

TEST(StatePolicy, AFormatAloneLeavesSmallParametersInFp32IfScalesAreShared) {
  for (StateFormat f : kShared) {
    for (const StatePolicy& policy : {StatePolicy(f), parse_state_policy(to_string(f))}) {
      EXPECT_EQ(policy.choose(param("p", {4095})), kF);
      EXPECT_EQ(policy.choose(param("p", {4096})), f);
      EXPECT_EQ(policy.choose(param("p", {64, 64})), f);
      EXPECT_EQ(policy.choose(param("p", {64, 63})), kF);
      EXPECT_EQ(policy.choose(param("p", {})), kF);
    }
    EXPECT_EQ(StatePolicy::all(f).choose(param("p", {1})), f);
  }
  for (StateFormat f : {kF, kB}) {
    EXPECT_EQ(StatePolicy(f).choose(param("p", {1})), f);
    EXPECT_EQ(parse_state_policy(to_string(f)).choose(param("p", {1})), f);
  }
}

TEST(StatePolicy, TheFirstRuleThatFitsDecides) {
  EXPECT_EQ(chosen("a*=bf16,*b=8bit,fp8", param("ab")), kB);
  EXPECT_EQ(chosen("*b=8bit,a*=bf16,fp8", param("ab")), kQ);
  EXPECT_EQ(chosen("*b=8bit,a*=bf16,fp8", param("c")), StateFormat::fp8);
  EXPECT_EQ(chosen("*=fp32,ab=8bit", param("ab")), kF);
}

TEST(StatePolicy, ARuleWithAConditionIsForSmallParametersToo) {
  EXPECT_EQ(chosen("*=8bit", param("p", {1})), kQ);
  EXPECT_EQ(chosen("p=4bit,8bit", param("p", {1})), StateFormat::q4);
}

TEST(StatePolicy, PatternsAreOfWholeNames) {
  const auto fits = [](std::string_view pattern, const std::string& name) {
    return chosen(std::string(pattern) + "=8bit", param(name)) == kQ;
  };
  EXPECT_TRUE(fits("layer.0.weight", "layer.0.weight"));
  EXPECT_FALSE(fits("layer.0", "layer.0.weight"));
  EXPECT_FALSE(fits("weight", "layer.0.weight"));
  EXPECT_TRUE(fits("layer.*", "layer."));
  EXPECT_TRUE(fits("*.weight", "layer.0.weight"));
  EXPECT_TRUE(fits("*0*", "layer.0.weight"));
  EXPECT_TRUE(fits("l*.?.w*t", "layer.7.weight"));
  EXPECT_FALSE(fits("l*.?.w*t", "layer.17.weight"));
  EXPECT_TRUE(fits("a*b*c", "a-b-b-c"));
  EXPECT_TRUE(fits("a*bc", "abcbc"));
  EXPECT_FALSE(fits("a*bc", "abcb"));
  EXPECT_TRUE(fits("**", ""));
  EXPECT_TRUE(fits("?", "x"));
  EXPECT_FALSE(fits("?", ""));
  EXPECT_FALSE(fits("?", "xy"));
}

TEST(StatePolicy, SizesAndDimsHaveBounds) {
  EXPECT_EQ(chosen("size<100=bf16", param("p", {99})), kB);
  EXPECT_EQ(chosen("size<100=bf16", param("p", {100})), kF);
  EXPECT_EQ(chosen("size>=100=bf16", param("p", {10, 10})), kB);
  EXPECT_EQ(chosen("size>=100=bf16", param("p", {99})), kF);
  EXPECT_EQ(chosen("dims<2=bf16", param("p", {5})), kB);
  EXPECT_EQ(chosen("dims<2=bf16", param("p", {5, 5})), kF);
  EXPECT_EQ(chosen("dims>=2=bf16", param("p", {5, 5, 5})), kB);
  EXPECT_EQ(chosen("dims<1=bf16", param("p", {})), kB);
  EXPECT_EQ(chosen("size<1=bf16", param("p", {0, 7})), kB);
}

TEST(StatePolicy, AllConditionsOfARuleMustFit) {
  const std::string_view policy = "w*&hidden&size>=100&size<1000&dims>=2=8bit";
  EXPECT_EQ(chosen(policy, param("w1", {10, 20}, Role::hidden)), kQ);
  EXPECT_EQ(chosen(policy, param("v1", {10, 20}, Role::hidden)), kF);
  EXPECT_EQ(chosen(policy, param("w1", {10, 20}, Role::head)), kF);
  EXPECT_EQ(chosen(policy, param("w1", {9, 11}, Role::hidden)), kF);
  EXPECT_EQ(chosen(policy, param("w1", {10, 100}, Role::hidden)), kF);
  EXPECT_EQ(chosen(policy, param("w1", {200}, Role::hidden)), kF);
}

TEST(StatePolicy, RolesAreWordsOfTheirOwn) {
  for (Role role :
       {Role::other, Role::embedding, Role::norm, Role::bias, Role::head, Role::hidden}) {
    const std::string policy = std::string(to_string(role)) + "=8bit";
    EXPECT_EQ(chosen(policy, param("p", {9}, role)), kQ);
    EXPECT_EQ(chosen(policy, param(std::string(to_string(role)), {9},
                                   role == Role::other ? Role::bias : Role::other)),
              kF);
  }
}

TEST(StatePolicy, HybridKeepsEmbeddingsAndNormsInFp32) {
  EXPECT_EQ(chosen("hybrid", param("p", {64, 64}, Role::hidden)), kQ);
  EXPECT_EQ(chosen("hybrid", param("p", {64, 64}, Role::head)), kQ);
  EXPECT_EQ(chosen("hybrid", param("p", {64, 64}, Role::embedding)), kF);
  EXPECT_EQ(chosen("hybrid", param("p", {8192}, Role::norm)), kF);
  EXPECT_EQ(chosen("hybrid", param("p", {100}, Role::bias)), kF);
  EXPECT_EQ(to_string(parse_state_policy("hybrid")),
            to_string(parse_state_policy("embedding=fp32,norm=fp32,8bit")));
}

// ---- its text ----

TEST(StatePolicy, IsWrittenAsItIsRead) {
  EXPECT_EQ(to_string(StatePolicy()), "fp32");
  EXPECT_EQ(to_string(StatePolicy(kB)), "bf16");
  for (const char* text :
       {"fp32", "bf16", "8bit", "8bit-bnb", "4bit", "fp8", "hybrid", "*=8bit",
        "embedding=fp32,norm=fp32,8bit", "a*&head&size>=5&size<70&dims>=1&dims<3=4bit,bf16",
        "size<4096=fp32,*=fp8", "dims<2=bf16,*.bias=fp32,?=8bit-bnb", "a=b=fp32"}) {
    const std::string once = to_string(parse_state_policy(text));
    const std::string twice = to_string(parse_state_policy(once));
    EXPECT_EQ(once, twice) << text;
    for (const Param& p : {param("a"), param("abc", {69}, Role::head), param("x.bias", {3, 5}),
                           param("e", {64, 64}, Role::embedding), param("n", {100}, Role::norm),
                           param("a=b", {7})}) {
      EXPECT_EQ(chosen(text, p), chosen(once, p)) << text << " " << p.name;
    }
  }
}

TEST(StatePolicy, RefusesWhatItCannotRead) {
  const auto refused = [](std::string_view text, std::initializer_list<std::string_view> parts) {
    SCOPED_TRACE(text);
    expect_error(ErrorCode::invalid_argument, parts, [&] { parse_state_policy(text); });
  };
  refused("", {"state format ''", "8bit-bnb", "fp8"});
  refused("9bit", {"state format '9bit'", "expected one of"});
  refused("a=", {"state format ''"});
  refused("a=9bit", {"state format '9bit'"});
  refused("a=8bit,", {"state format ''"});
  refused(",8bit", {"for all others", "at the end"});
  refused("8bit,a=fp32", {"'8bit'", "at the end"});
  refused("=8bit", {"a condition is empty"});
  refused("a&=8bit", {"a condition is empty"});
  refused("&a=8bit", {"a condition is empty"});
  refused("size<=8bit", {"''", "whole"});
  refused("size<x=8bit", {"'x'", "whole"});
  refused("size<-1=8bit", {"'-1'", "whole"});
  refused("size<1.5=8bit", {"'1.5'"});
  refused("size<99999999999999999999=8bit", {"99999999999999999999"});
  refused("dims>=two=8bit", {"'two'"});
  for (const char* bound : {"size<=5", "size>5", "dims==2<3", "width<5"}) {
    refused(std::string(bound) + "=8bit", {bound, "size<N"});
  }
}

// ---- what an optimizer makes of it ----

struct Held {
  std::vector<Buffer> memory;
  Optimizer optimizer;

  Held(const char* rule, const Hyper& hyper, const std::vector<Param>& params, StatePolicy policy)
      : optimizer(rule, on_device(one_thread(), test_device())) {
    GroupOptions group;
    group.hyper = hyper;
    group.state = std::move(policy);
    std::vector<Param> added = params;
    for (Param& p : added) {
      int64_t n = 1;
      for (int64_t d : p.shape) n *= d;
      p.data = memory.emplace_back(p.dtype, n, false, test_device()).data();
      p.grad = memory.emplace_back(p.grad_dtype, n, false, test_device()).data();
    }
    optimizer.add_group(added, group);
  }
};

TEST(StatePolicy, IsAppliedToEachParameter) {
  const Held h("adamw", {},
               {param("embed", {100, 64}, Role::embedding), param("w", {64, 64}, Role::hidden),
                param("b", {64}, Role::bias), param("other.w", {5000})},
               parse_state_policy("embedding=bf16,other.*=4bit,8bit"));
  const StateFormat want[] = {kB, kQ, kF, StateFormat::q4};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(h.optimizer.state_format(i), want[i]);
    for (const StateView& v : h.optimizer.states(i)) {
      EXPECT_EQ(v.format, want[i]) << v.name;
      EXPECT_EQ(v.scales != nullptr, shares_scales(want[i])) << v.name;
      EXPECT_EQ(v.block, want[i] == kQ ? 256 : want[i] == StateFormat::q4 ? 128 : 0);
      EXPECT_EQ(v.nonneg, shares_scales(want[i]) && v.name == "exp_avg_sq");
    }
  }
}

// In bitsandbytes an optimizer's only state is signed, whatever it holds.
TEST(StatePolicy, AnOnlyStateIsSignedAsInBitsandbytes) {
  const auto nonneg = [](const char* rule, StateFormat f) {
    const Held h(rule, {}, {param("p")}, f);
    EXPECT_EQ(h.optimizer.states(0).size(), 1u);
    return h.optimizer.states(0)[0].nonneg;
  };
  EXPECT_FALSE(nonneg("adagrad", StateFormat::bnb8));
  EXPECT_TRUE(nonneg("adagrad", StateFormat::q8));
  EXPECT_FALSE(nonneg("lion", StateFormat::q8));
}

TEST(StatePolicy, AnFp64ParameterKeepsFp64State) {
  Param wide = param("wide", {5000});
  wide.dtype = wide.grad_dtype = DType::f64;
  expect_error(ErrorCode::invalid_argument, {"'wide'", "8bit", "fp64"},
               [&] { Held("adamw", {}, {wide}, kQ); });
  wide.shape = {100};
  EXPECT_EQ(Held("adamw", {}, {wide}, kQ).optimizer.states(0)[0].dtype, DType::f64);
}

// Rows that are summed up must not share scales.
TEST(StatePolicy, MatricesWhoseRowsDoNotFitBlocksStayFp32WhereRowsAreSummedUp) {
  const auto format = [](const char* rule, const Hyper& hyper, std::vector<int64_t> shape) {
    const Held h(rule, hyper, {param("p", std::move(shape), Role::hidden)}, kQ);
    EXPECT_EQ(h.optimizer.state_format(0), kQ);
    for (const StateView& v : h.optimizer.states(0)) {
      if (v.name == "exp_avg" || v.name == "momentum_buffer") return v.format;
    }
    ADD_FAILURE() << rule << " has no momentum";
    return kF;
  };
  const Hyper momentum = {{"beta1", 0.9}};
  EXPECT_EQ(format("adafactor", momentum, {20, 256}), kQ);
  EXPECT_EQ(format("adafactor", momentum, {20, 257}), kF);
  EXPECT_EQ(format("adafactor", momentum, {2, 20, 512}), kQ);
  EXPECT_EQ(format("adafactor", momentum, {5000}), kQ);
  EXPECT_EQ(format("adamp", {}, {20, 256}), kQ);
  EXPECT_EQ(format("adamp", {}, {20, 257}), kF);
  EXPECT_EQ(format("adamw", {}, {20, 257}), kQ);
  EXPECT_EQ(format("lamb", {}, {20, 257}), kQ);  // sums over all of a tensor only
}

// In bitsandbytes' maps a small one becomes zero, which must not be divided by.
TEST(StatePolicy, SecondMomentsThatLaterPassesReadAreFp32BesideBitsandbytesFormat) {
  for (StateFormat f : kShared) {
    for (const char* rule : {"lamb", "adamp"}) {
      const Held h(rule, {}, {param("p", {5000})}, f);
      const auto states = h.optimizer.states(0);
      EXPECT_EQ(states[0].format, f) << rule;
      EXPECT_EQ(states[1].format, f == StateFormat::bnb8 ? kF : f) << rule;
    }
  }
}

TEST(StateValues, AreFp32WhateverTheFormat) {
  for (StateFormat f : {kF, kB, kQ, StateFormat::bnb8, StateFormat::q4, StateFormat::fp8}) {
    Plan plan{plain("adamw")};
    plan.formats.state = f;
    World w(plan);
    for (uint64_t k = 0; k < 2; ++k) {
      w.fill_grads(k);
      w.optimizer.step();
    }
    for (const StateView& v : w.optimizer.states(5)) {
      const std::vector<float> got = w.optimizer.state_values(5, v.name);
      ASSERT_EQ(got.size(), 1003u);
      for (int64_t i = 0; i < 1003; ++i) {
        const double want = check::read_state(v, i);
        ASSERT_NEAR(got[static_cast<size_t>(i)], want, 1e-6 * std::abs(want)) << v.name;
      }
    }
  }
}

TEST(StateValues, OfAStateThatIsNotThereAreRefused) {
  World w({plain("adamw")});
  expect_error(ErrorCode::invalid_argument, {"'p5'", "'momentum'", "exp_avg, exp_avg_sq"},
               [&] { w.optimizer.state_values(5, "momentum"); });
  expect_error(ErrorCode::invalid_argument, {"parameter 99"},
               [&] { w.optimizer.state_values(99, "exp_avg"); });
  expect_error(ErrorCode::invalid_argument, {"parameter 99"},
               [&] { w.optimizer.state_format(99); });
}

}  // namespace
}  // namespace gallop::test
