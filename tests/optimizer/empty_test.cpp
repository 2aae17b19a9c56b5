// SPDX-License-Identifier: MIT
// Nothing to do is no special case.
#include "optimizer/fixture.h"

namespace gallop::test {
namespace {

// Everything one can ask of an optimizer, in every mode.
void use(Optimizer& o, const std::string& path) {
  for (int k = 0; k < 2; ++k) {
    EXPECT_TRUE(o.step());
    o.begin_step();
    o.end_step();
    GradScaler scaler;
    EXPECT_TRUE(o.step(scaler));
    if (has_entry(o, "hessian")) o.run("hessian");
    o.eval();
    o.train();
    o.zero_grad();
    o.refresh_masters();
    o.save(path);
    o.load(path);
    o.reset_state();
  }
  EXPECT_EQ(o.skipped(), 0);
}

template <class Fill>
void for_all_modes(Fill fill) {
  const Folder folder;
  for (const Variant& v : variants()) {
    for (Mode mode : kModes) {
      SCOPED_TRACE(v.name + " " + std::string(to_string(mode)));
      Options options;
      options.mode = mode;
      options.threads = 2;
      options.clip_norm = 1;
      options.skip_nonfinite = true;
      options.zero_grad = true;
      Optimizer o(v.rule, options);
      fill(o, v);
      use(o, folder / "checkpoint");
    }
  }
}

GroupOptions group_of(const Variant& v, Rounding rounding = Rounding::nearest,
                      StateFormat state = StateFormat::f32) {
  GroupOptions g;
  g.hyper = v.hyper;
  g.rounding = rounding;
  g.state = state;
  return g;
}

TEST(Empty, OptimizerWithoutGroups) {
  for_all_modes([](Optimizer& o, const Variant&) {
    EXPECT_EQ(o.groups(), 0u);
    EXPECT_EQ(o.bytes_per_step(), 0);
    EXPECT_EQ(o.state_bytes(), 0);
  });
}

TEST(Empty, GroupWithoutParameters) {
  for_all_modes([](Optimizer& o, const Variant& v) {
    EXPECT_EQ(o.add_group({}, group_of(v)), 0u);
    EXPECT_EQ(o.add_group({}), 1u);
  });
}

TEST(Empty, TensorsWithoutElements) {
  for_all_modes([](Optimizer& o, const Variant& v) {
    // With memory and without, in every format that keeps something beside the parameter.
    static float memory[1];
    for (void* data : {static_cast<void*>(nullptr), static_cast<void*>(memory)}) {
      for (Rounding r : {Rounding::nearest, Rounding::master, Rounding::remainder}) {
        const std::string name = std::to_string(o.size());
        o.add_group({{name, {3, 0, 2}, data, memory, DType::bf16, DType::bf16, Role::other}},
                    group_of(v, r, StateFormat::bf16));
      }
      const std::string name = std::to_string(o.size());
      o.add_group({{name, {0}, data, memory, DType::f64, DType::f64, Role::other}}, group_of(v));
    }
  });
}

TEST(Empty, TensorWithoutDimensionsHasOneElement) {
  for (const Variant& v : variants()) {
    if (find_rule(v.rule).needs_matrix) continue;
    SCOPED_TRACE(v.name);
    float scalar = 1, vector = 1, grad = 0.5f;
    const auto of = [&](const std::vector<int64_t>& shape, float* data) {
      return Param{"p", shape, data, &grad, DType::f32, DType::f32, Role::bias};
    };
    Optimizer zero_d(v.rule), one_d(v.rule);
    zero_d.add_group({of({}, &scalar)}, group_of(v));
    one_d.add_group({of({1}, &vector)}, group_of(v));
    for (int k = 0; k < 3; ++k) {
      zero_d.step();
      one_d.step();
    }
    EXPECT_NE(scalar, 1);
    EXPECT_EQ(scalar, vector);
    for (const StateView& s : zero_d.states(0)) EXPECT_EQ(s.size, 1);
    const Folder folder;
    zero_d.save(folder / "checkpoint");
    Optimizer loaded(v.rule);
    loaded.add_group({of({}, &scalar)}, group_of(v));
    loaded.load(folder / "checkpoint");
    loaded.step();
    one_d.step();
    EXPECT_EQ(scalar, vector);
  }
}

TEST(Empty, TensorsWithoutElementsBesideOthersChangeNothing) {
  for (const Variant& v : variants()) {
    SCOPED_TRACE(v.name);
    Plan with{v}, without{v};
    with.sizes = {{3, 0}, {0, 256, 0}};
    without.sizes = {{3}, {256}};
    World a(with), b(without);
    copy_bytes(a.params[3], b.params[1]);
    for (uint64_t k = 0; k < 2; ++k) {
      b.fill_grads(k);
      copy_bytes(a.grads[0], b.grads[0]);
      copy_bytes(a.grads[3], b.grads[1]);
      a.optimizer.step();
      b.optimizer.step();
    }
    EXPECT_EQ(difference(a.snapshot_of(0), b.snapshot_of(0)), "");
    EXPECT_EQ(difference(a.snapshot_of(3), b.snapshot_of(1)), "");
  }
}

}  // namespace
}  // namespace gallop::test
