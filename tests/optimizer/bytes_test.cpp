// SPDX-License-Identifier: MIT
// The bytes that a step is measured by, counted by hand.
#include <ostream>

#include "optimizer/fixture.h"

namespace gallop::test {
namespace {

struct Bytes {
  int64_t all, only_read;
  bool operator==(const Bytes&) const = default;
};

// Of a matrix, for each of its elements.
Bytes bytes_of(const char* rule, const Options& options = {}, const Hyper& hyper = {},
               DType type = DType::f32) {
  double memory[12] = {};
  Optimizer o(rule, options);
  o.add_group({{"p", {3, 4}, memory, memory, type, type, Role::hidden}}, {hyper, {}});
  EXPECT_EQ(o.bytes_per_step() % 12, 0);
  return {o.bytes_per_step() / 12, o.bytes_only_read() / 12};
}

std::ostream& operator<<(std::ostream& out, const Bytes& b) {
  return out << b.all << " of which read " << b.only_read;
}

TEST(Bytes, AreThoseOfEveryPass) {
  EXPECT_EQ(bytes_of("adamw"), (Bytes{28, 0}));
  EXPECT_EQ(bytes_of("adamw", {}, {{"amsgrad", 1}}), (Bytes{36, 0}));
  EXPECT_EQ(bytes_of("adamw", {}, {}, DType::bf16), (Bytes{22, 0}));
  EXPECT_EQ(bytes_of("adamp"), (Bytes{36, 8}));  // if nothing is projected
  EXPECT_EQ(bytes_of("adafactor"), (Bytes{24, 12}));
  EXPECT_EQ(bytes_of("muon"), (Bytes{28, 0}));
}

TEST(Bytes, OfTheNormAreOnlyRead) {
  Options clipped, zeroed;
  clipped.clip_norm = 1;
  zeroed.zero_grad = true;
  EXPECT_EQ(bytes_of("adamw", clipped), (Bytes{32, 4}));
  EXPECT_EQ(bytes_of("adamw", zeroed), (Bytes{32, 0}));
  EXPECT_EQ(bytes_of("lamb"), (Bytes{44, 4}));
}

TEST(Bytes, OfStateAreKnownWithoutItsMemory) {
  for (const char* rule : {"sgd", "adamw", "adan", "lion", "adafactor", "muon", "soap"}) {
    for (const char* state : {"fp32", "bf16", "8bit", "4bit"}) {
      std::vector<float> memory(512 * 300);
      std::vector<Param> params = {
          {"p", {300, 512}, memory.data(), memory.data(), DType::f32, DType::f32, Role::hidden},
          {"b", {7}, memory.data(), memory.data(), DType::f32, DType::f32, Role::bias}};
      GroupOptions group;
      group.state = parse_state_policy(state);
      Optimizer o(rule);
      std::vector<Param> without = params;
      for (Param& p : without) p.data = p.grad = nullptr;
      const int64_t known = o.state_bytes_of(without, group);
      EXPECT_EQ(o.state_bytes(), 0);
      o.add_group(params, group);
      EXPECT_EQ(known, o.state_bytes()) << rule << ' ' << state;
    }
  }
}

}  // namespace
}  // namespace gallop::test
