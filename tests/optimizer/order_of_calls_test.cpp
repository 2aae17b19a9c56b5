// SPDX-License-Identifier: MIT
// Calls in an order that makes no sense are refused, and the step in progress goes on unharmed.
#include "optimizer/fixture.h"

namespace gallop::test {
namespace {

constexpr ErrorCode kInvalid = ErrorCode::invalid_argument;
const std::vector<size_t> kFirst = {0, 1, 2}, kSecond = {3, 4, 5}, kAll = {0, 1, 2, 3, 4, 5};

// Does `wrong` in the middle of a step in pieces, which must end as a step without it does.
template <class Wrong>
void expect_harmless(const std::string& rule, Wrong wrong) {
  const Plan plan{plain(rule)};
  World w(plan), twin(plan);
  for (World* world : {&w, &twin}) {
    world->fill_grads(1);
    world->optimizer.step();
    world->fill_grads(2);
  }
  w.optimizer.begin_step({.grad_scale = 2});
  w.optimizer.step_params(kFirst);
  const Snapshot before = w.snapshot();
  wrong(w);
  EXPECT_EQ(difference(before, w.snapshot()), "");
  w.optimizer.step_params(kSecond);
  w.optimizer.end_step();
  twin.optimizer.step({.grad_scale = 2});
  EXPECT_EQ(difference(w.snapshot(), twin.snapshot()), "");
  EXPECT_EQ(w.optimizer.skipped(), twin.optimizer.skipped());
}

TEST(OrderOfCalls, BeginStepTwice) {
  expect_harmless("adam", [](World& w) {
    expect_error(kInvalid, {"begin_step", "twice"}, [&] { w.optimizer.begin_step(); });
  });
}

TEST(OrderOfCalls, StepInsideAStep) {
  expect_harmless("adam", [](World& w) {
    expect_error(kInvalid, {"begin_step"}, [&] { w.optimizer.step(); });
    GradScaler scaler;
    expect_error(kInvalid, {"begin_step"}, [&] { w.optimizer.step(scaler); });
    EXPECT_EQ(scaler.good_steps, 0);
  });
}

TEST(OrderOfCalls, AddGroupInsideAStep) {
  expect_harmless("adam", [](World& w) {
    expect_error(kInvalid, {"add_group", "end_step"}, [&] { w.optimizer.add_group({}, {}); });
  });
}

TEST(OrderOfCalls, SaveAndLoadInsideAStep) {
  const Folder folder;
  expect_harmless("adam", [&](World& w) {
    World({plain("adam")}).optimizer.save(folder / "good");
    expect_error(kInvalid, {"save", "end_step"}, [&] { w.optimizer.save(folder / "file"); });
    expect_error(kInvalid, {"load", "end_step"}, [&] { w.optimizer.load(folder / "good"); });
    EXPECT_FALSE(std::filesystem::exists(folder / "file"));
  });
}

TEST(OrderOfCalls, ResetStateInsideAStep) {
  expect_harmless("adam", [](World& w) {
    expect_error(kInvalid, {"reset_state", "end_step"}, [&] { w.optimizer.reset_state(); });
  });
}

TEST(OrderOfCalls, OtherEntriesInsideAStep) {
  expect_harmless("sophiag", [](World& w) {
    expect_error(kInvalid, {"end_step"}, [&] { w.optimizer.run("hessian"); });
  });
}

TEST(OrderOfCalls, EvalInsideAStep) {
  expect_harmless("schedulefree_adamw", [](World& w) {
    expect_error(kInvalid, {"end_step"}, [&] { w.optimizer.eval(); });
  });
}

TEST(OrderOfCalls, ParameterTwiceInOneStep) {
  expect_harmless("adam", [](World& w) {
    expect_error(kInvalid, {"'p1'", "twice"}, [&] {
      w.optimizer.step_params(std::vector<size_t>{4, 1});
    });
  });
}

TEST(OrderOfCalls, ParameterTwiceInOneCall) {
  expect_harmless("adam", [](World& w) {
    expect_error(kInvalid, {"'p4'", "twice"}, [&] {
      w.optimizer.step_params(std::vector<size_t>{4, 5, 4});
    });
  });
}

TEST(OrderOfCalls, ParameterThatDoesNotExist) {
  expect_harmless("adam", [](World& w) {
    expect_error(kInvalid, {"parameter 6", "there are 6"}, [&] {
      w.optimizer.step_params(std::vector<size_t>{5, 6});
    });
  });
}

TEST(OrderOfCalls, PiecesOutsideAStep) {
  World w({plain("adam")}), twin({plain("adam")});
  for (World* world : {&w, &twin}) world->fill_grads(1);
  expect_error(kInvalid, {"end_step", "begin_step"}, [&] { w.optimizer.end_step(); });
  expect_error(kInvalid, {"step_params", "begin_step"}, [&] { w.optimizer.step_params(kAll); });
  for (World* world : {&w, &twin}) world->optimizer.step();
  EXPECT_EQ(difference(w.snapshot(), twin.snapshot()), "");
}

TEST(OrderOfCalls, StepInEvalMode) {
  World w({plain("schedulefree_adamw")}), twin({plain("schedulefree_adamw")});
  for (World* world : {&w, &twin}) {
    world->fill_grads(1);
    world->optimizer.step();
    world->optimizer.eval();
  }
  expect_error(kInvalid, {"schedulefree_adamw", "eval", "train()"}, [&] { w.optimizer.step(); });
  expect_error(kInvalid, {"eval"}, [&] { w.optimizer.begin_step(); });
  for (World* world : {&w, &twin}) {
    world->optimizer.train();
    world->optimizer.step();
  }
  EXPECT_EQ(difference(w.snapshot(), twin.snapshot()), "");
}

TEST(OrderOfCalls, EvalMeansNothingToOtherRules) {
  for (const Variant& v : variants()) {
    if (v.rule == "schedulefree_adamw") continue;
    SCOPED_TRACE(v.name);
    World w({v});
    w.fill_grads(1);
    w.optimizer.step();
    const Snapshot before = w.snapshot();
    w.optimizer.eval();
    EXPECT_EQ(difference(before, w.snapshot()), "");
    EXPECT_TRUE(w.optimizer.step());
    w.optimizer.train();
  }
}

TEST(OrderOfCalls, GroupsMayBeAddedBetweenSteps) {
  Plan plan{plain("adam")};
  World w(plan), twin(plan);
  Buffer data(DType::f32, 3, false, test_device()), grad(DType::f32, 3, false, test_device());
  for (int64_t i = 0; i < 3; ++i) {
    data.set(i, 1 + static_cast<double>(i));
    grad.set(i, 1);
  }
  for (uint64_t k = 0; k < 3; ++k) {
    for (World* world : {&w, &twin}) world->fill_grads(k);
    if (k == 1) w.optimizer.add_group({{"late", {3}, data.data(), grad.data()}});
    for (World* world : {&w, &twin}) world->optimizer.step();
  }
  EXPECT_EQ(w.optimizer.steps(6), 2);
  EXPECT_EQ(w.optimizer.group_of(6), 2u);
  EXPECT_LT(data.at(0), 1);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(difference(w.snapshot_of(i), twin.snapshot_of(i)), "");
  }
}

}  // namespace
}  // namespace gallop::test
