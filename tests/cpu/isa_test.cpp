// SPDX-License-Identifier: MIT
#include "cpu/isa.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <set>

#include "check/data.h"
#include "gallop/error.h"
#include "gallop/optimizer.h"
#include "optimizer/rule.h"

namespace gallop::cpu {
namespace {

// GALLOP_FORCE_ISA for the time of a scope.
class ForcedIsa {
 public:
  explicit ForcedIsa(const std::string& isa) {
    if (const char* before = std::getenv("GALLOP_FORCE_ISA")) before_ = before;
    setenv("GALLOP_FORCE_ISA", isa.c_str(), 1);
  }
  ~ForcedIsa() {
    before_ ? setenv("GALLOP_FORCE_ISA", before_->c_str(), 1) : unsetenv("GALLOP_FORCE_ISA");
  }
  ForcedIsa(const ForcedIsa&) = delete;
  ForcedIsa& operator=(const ForcedIsa&) = delete;

 private:
  std::optional<std::string> before_;
};

std::vector<std::string> isas_here() {
  std::vector<std::string> out;
  for (const Toolkit* t : toolkits()) {
    if (runs_here(t->isa)) out.emplace_back(t->isa);
  }
  return out;
}

std::string refusal(const std::string& isa) {
  const ForcedIsa forced(isa);
  try {
    Optimizer optimizer("adamw");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// The parameters after three steps of adamw.
std::vector<float> trained(const std::string& isa, const std::string& rule, int64_t n) {
  const ForcedIsa forced(isa);
  check::Buffer param(DType::f32, n), grad(DType::f32, n);
  param.fill_normal(1, 1);
  grad.fill_normal(2, 0.1);
  Optimizer optimizer(rule);
  optimizer.add_group({{"p", {n}, param.data(), grad.data()}});
  for (int step = 0; step < 3; ++step) optimizer.step();
  const float* data = static_cast<const float*>(param.data());
  return {data, data + n};
}

TEST(Isa, BaselineRunsEverywhereAndComesFirst) {
  ASSERT_FALSE(toolkits().empty());
  EXPECT_STREQ(toolkits()[0]->isa, "baseline");
  EXPECT_TRUE(runs_here("baseline"));
  EXPECT_FALSE(runs_here("abacus"));
}

TEST(Isa, NamesAreDistinct) {
  std::set<std::string> names;
  for (const Toolkit* t : toolkits()) names.insert(t->isa);
  EXPECT_EQ(names.size(), toolkits().size());
}

TEST(Isa, TheForcedOneIsWhatTheKernelsWereCompiledFor) {
  for (const std::string& isa : isas_here()) {
    const ForcedIsa forced(isa);
    EXPECT_EQ(Optimizer("adamw").isa(), isa);
    EXPECT_EQ(choose_isa(), isa_index(isa));
  }
}

TEST(Isa, TheBestThatRunsIsChosenWithoutForceAndWithAnEmptyOne) {
  const ForcedIsa empty("");
  EXPECT_EQ(Optimizer("adamw").isa(), isas_here().back());
  unsetenv("GALLOP_FORCE_ISA");
  EXPECT_EQ(Optimizer("adamw").isa(), isas_here().back());
}

TEST(Isa, FusedMultiplyAddShowsInTheBitsOfAvx2) {
  const std::vector<std::string> here = isas_here();
  if (std::find(here.begin(), here.end(), "avx2") == here.end()) {
    GTEST_SKIP() << "needs a CPU with avx2 and a build for it";
  }
  const int64_t n = 100000;
  const std::vector<float> baseline = trained("baseline", "adamw", n);
  const std::vector<float> avx2 = trained("avx2", "adamw", n);
  int different = 0;
  for (size_t i = 0; i < baseline.size(); ++i) {
    different += std::memcmp(&baseline[i], &avx2[i], sizeof(float)) != 0;
    ASSERT_NEAR(baseline[i], avx2[i], 1e-5) << i;
  }
  EXPECT_GT(different, 0);
  EXPECT_LT(different, n / 2);
}

TEST(Isa, TheSameOneGivesTheSameBitsAgain) {
  for (const std::string& isa : isas_here()) {
    const std::vector<float> once = trained(isa, "adamw", 1003),
                             again = trained(isa, "adamw", 1003);
    EXPECT_EQ(std::memcmp(once.data(), again.data(), once.size() * sizeof(float)), 0) << isa;
  }
}

TEST(Isa, AnUnknownOneIsRefusedAndTheKnownAreListed) {
  for (const char* unknown : {"abacus", "AVX2", "avx", " avx2"}) {
    const std::string why = refusal(unknown);
    EXPECT_NE(why.find(std::string("'") + unknown + "'"), std::string::npos) << why;
    EXPECT_NE(why.find("GALLOP_FORCE_ISA"), std::string::npos) << why;
    for (const Toolkit* t : toolkits()) EXPECT_NE(why.find(t->isa), std::string::npos) << why;
  }
}

TEST(Isa, OneThatCannotRunHereIsRefusedAndThoseThatCanAreListed) {
  int refused = 0;
  for (const Toolkit* t : toolkits()) {
    if (runs_here(t->isa)) continue;
    const std::string why = refusal(t->isa);
    EXPECT_NE(why.find(std::string("GALLOP_FORCE_ISA=") + t->isa), std::string::npos) << why;
    for (const std::string& isa : isas_here()) EXPECT_NE(why.find(isa), std::string::npos) << why;
    ++refused;
  }
  if (refused == 0) GTEST_SKIP() << "this CPU runs all of them";
}

TEST(Isa, EveryRuleHasKernelsForEveryOne) {
  for (const std::string& name : rule_names()) {
    const Rule& rule = find_rule(name);
    ASSERT_EQ(rule.cpu.size(), toolkits().size()) << name;
    // Of a rule with norms: a kernel for each pass over vectors and over matrices, but for those
    // that have nothing to do, on any instruction set.
    const size_t entries = rule.passes.empty() ? rule.entries.size() : 2 * rule.passes.size();
    const auto kernels = entries * (size_t{1} << rule.optional_states) * 3;
    std::set<Kernel> seen;
    size_t expected = 0;
    for (size_t i = 0; i < rule.cpu.size(); ++i) {
      ASSERT_NE(rule.cpu[i], nullptr) << name;
      EXPECT_STREQ(rule.cpu[i]->isa, toolkits()[i]->isa) << name;
      std::set<size_t> passes;
      for (size_t k = 0; k < kernels; ++k) {
        const Kernel kernel = rule.cpu[i]->table[k];
        const bool idle = !rule.passes.empty() && rule.cpu[0]->table[k] == nullptr;
        ASSERT_EQ(kernel == nullptr, idle) << name << " kernel " << k;
        if (kernel == nullptr) continue;
        seen.insert(kernel);
        ++expected;
        passes.insert(k * entries / kernels / 2);
      }
      EXPECT_TRUE(rule.passes.empty() || passes.size() == rule.passes.size()) << name;
    }
    EXPECT_EQ(seen.size(), expected) << name;
  }
}

TEST(Isa, EveryRuleReportsTheForcedOne) {
  for (const std::string& isa : isas_here()) {
    const ForcedIsa forced(isa);
    for (const std::string& name : rule_names()) EXPECT_EQ(Optimizer(name).isa(), isa) << name;
  }
}

}  // namespace
}  // namespace gallop::cpu
