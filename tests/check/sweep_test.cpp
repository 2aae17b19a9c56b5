// SPDX-License-Identifier: MIT
// The check passes what is right, and rules that are wrong on purpose prove that it can fail.
#include "check/sweep.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

#include "cpu/isa.h"
#include "gallop/error.h"
#include "optimizer/rule.h"
#include "rules/adam.h"
#include "rules/lion.h"

namespace gallop::check {
namespace {

std::string text(const lab::Row& row, std::string_view field) {
  const lab::Value* value = row.find(field);
  const std::string* s = value == nullptr ? nullptr : std::get_if<std::string>(value);
  return s == nullptr ? "" : *s;
}

std::vector<std::string> isas_here() {
  std::vector<std::string> out;
  for (const cpu::Toolkit* t : cpu::toolkits()) {
    if (cpu::runs_here(t->isa)) out.emplace_back(t->isa);
  }
  return out;
}

SweepOptions small(const std::string& only) {
  SweepOptions o;
  o.only = only;
  o.sizes = {0, 1, 257};
  o.threads = 2;
  return o;
}

// A built-in rule under another name, registered for this process.
Rule renamed(const std::string& rule, const std::string& name) {
  Rule copy = find_rule(rule);
  copy.info.name = name;
  return copy;
}

// Every instruction set must find the rule wrong, in words that name `what`.
void expect_found(const Rule& wrong, const std::string& what) {
  register_rule(wrong);
  const lab::Table table = sweep(small("^" + wrong.info.name + "$"));
  ASSERT_FALSE(table.rows.empty());
  for (const lab::Row& row : table.rows) {
    EXPECT_EQ(text(row, "status"), "fail") << text(row, "isa");
    EXPECT_NE(text(row, "detail").find(what), std::string::npos) << text(row, "detail");
    EXPECT_NE(text(row, "detail").find(wrong.info.name), std::string::npos);
  }
}

// ---- what is right ----

TEST(Sweep, PassesOnEveryInstructionSetAtSmallSizes) {
  const lab::Table table = sweep(small("^(lion|adamw|sgd)$"));
  std::set<std::pair<std::string, std::string>> seen;
  for (const lab::Row& row : table.rows) {
    EXPECT_EQ(text(row, "status"), "pass") << text(row, "detail");
    EXPECT_EQ(*row.find("cases"), lab::Value(static_cast<int64_t>(all_formats().size()) * 3 * 2));
    EXPECT_LE(std::get<double>(*row.find("worst_over_bound")), 1);
    seen.emplace(text(row, "optimizer"), text(row, "isa"));
  }
  // Each with and without its optional state.
  EXPECT_EQ(seen.size(), 5 * isas_here().size());
  for (const std::string& isa : isas_here()) {
    for (const char* rule : {"lion", "adamw", "adamw+amsgrad", "sgd", "sgd+momentum"}) {
      EXPECT_TRUE(seen.contains({rule, isa})) << rule << " " << isa;
    }
  }
}

// Of this many elements some sum cancels, to a zero of either sign; bitsandbytes' map has another
// code for what is just below.
TEST(Sweep, ASumThatCancelsMayBeStoredOnEitherSideOfZero) {
  SweepOptions o = small("^qhm$");
  o.sizes = {70001};
  for (const lab::Row& row : sweep(o).rows) {
    EXPECT_EQ(text(row, "status"), "pass") << text(row, "detail");
  }
}

TEST(Sweep, SeesErrorsThatAreNotNothing) {
  // A bound that is never come near to would let wrong kernels through.
  for (const lab::Row& row : sweep(small("^adamw$")).rows) {
    EXPECT_GT(std::get<double>(*row.find("worst_over_bound")), 0.3);
  }
}

TEST(Sweep, CoversEveryCombinationOfFormats) {
  std::set<std::string> names;
  for (const Formats& f : all_formats()) names.insert(to_string(f));
  // 8 kinds of 16- and 32-bit parameters, 3 of gradients, 3 of states, and fp64 alone; each of the
  // four formats that share scales with 4 of these.
  EXPECT_EQ(names.size(), 8u * 3 * 3 + 1 + 4 * 4);
  EXPECT_EQ(all_formats().size(), names.size());
}

TEST(Sweep, RunsOnlyTheInstructionSetsAskedFor) {
  SweepOptions o = small("^lion$");
  o.isas = {"baseline"};
  const lab::Table table = sweep(o);
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(text(table.rows[0], "isa"), "baseline");
}

TEST(Sweep, LeavesTheEnvironmentAsItWas) {
  unsetenv("GALLOP_FORCE_ISA");
  sweep(small("^lion$"));
  EXPECT_EQ(std::getenv("GALLOP_FORCE_ISA"), nullptr);
  setenv("GALLOP_FORCE_ISA", "baseline", 1);
  sweep(small("^lion$"));
  EXPECT_STREQ(std::getenv("GALLOP_FORCE_ISA"), "baseline");
  unsetenv("GALLOP_FORCE_ISA");
}

// ---- what is wrong ----

TEST(Sweep, FindsAStepSizeOffByAThousandth) {
  Rule wrong = renamed("adamw", "test_step_size");
  wrong.reference = [](Arithmetic a, int entry, Bounded* p, Bounded g, Bounded* states,
                       const double* coef) {
    auto k = detail::narrow<rules::Adam, double>(coef);
    k.neg_step *= 1.001;
    find_rule("adamw").reference(a, entry, p, g, states, &k.l2);
  };
  expect_found(wrong, "parameter[");
}

TEST(Sweep, FindsAnAverageOffByAMillionth) {
  Rule wrong = renamed("lion", "test_average");
  wrong.reference = [](Arithmetic a, int entry, Bounded* p, Bounded g, Bounded* states,
                       const double* coef) {
    auto k = detail::narrow<rules::Lion, double>(coef);
    k.w2 *= 1 + 1e-6;
    find_rule("lion").reference(a, entry, p, g, states, &k.keep);
  };
  expect_found(wrong, "exp_avg[");
}

TEST(Sweep, FindsTheFormulaOfAnotherRule) {
  Rule wrong = renamed("lion", "test_formula");
  const Rule& other = find_rule("qhm");
  ASSERT_EQ(other.info.states.size(), wrong.info.states.size());
  ASSERT_LE(other.coefs, wrong.coefs);
  wrong.reference = other.reference;
  expect_found(wrong, "parameter[");
}

// Kernels of lion that are wrong in what they touch.
template <void (*Kernel)(int path, const cpu::KernelArgs&)>
Rule with_kernels(const std::string& name) {
  static const cpu::Kernel table[] = {[](const cpu::KernelArgs& a) { Kernel(0, a); },
                                      [](const cpu::KernelArgs& a) { Kernel(1, a); },
                                      [](const cpu::KernelArgs& a) { Kernel(2, a); }};
  static std::vector<cpu::RuleKernels> kernels;
  kernels.clear();
  Rule rule = renamed("lion", name);
  for (const cpu::RuleKernels* k : rule.cpu) kernels.push_back({k->isa, table});
  for (size_t i = 0; i < kernels.size(); ++i) rule.cpu[i] = &kernels[i];
  return rule;
}

void right_kernel(int path, const cpu::KernelArgs& a) {
  find_rule("lion").cpu[static_cast<size_t>(cpu::choose_isa())]->table[path](a);
}

void forgets_the_last(int path, const cpu::KernelArgs& a) {
  cpu::KernelArgs shorter = a;
  if (a.n > 1) --shorter.n;
  right_kernel(path, shorter);
}

// In plain fp32 only, where the bound is a few units in the last place.
void rounds_badly(int path, const cpu::KernelArgs& a) {
  right_kernel(path, a);
  if (static_cast<cpu::Path>(path) != cpu::Path::f32) return;
  float& p = static_cast<float*>(a.param)[a.n / 2];
  for (int i = 0; i < 8; ++i) p = std::nextafter(p, 10.0f);
}

void writes_one_too_many(int path, const cpu::KernelArgs& a) {
  right_kernel(path, a);
  const size_t bytes = static_cast<size_t>(a.param_codec->data_bytes / cpu::kBlock);
  std::memset(static_cast<char*>(a.param) + static_cast<size_t>(a.n) * bytes, 0, bytes);
}

void writes_the_gradient(int path, const cpu::KernelArgs& a) {
  right_kernel(path, a);
  const size_t bytes = static_cast<size_t>(a.grad_codec->data_bytes / cpu::kBlock);
  std::memset(static_cast<char*>(const_cast<void*>(a.grad)) - bytes, 0, bytes);
}

TEST(Sweep, WrappedKernelsThatAreRightPass) {
  register_rule(with_kernels<right_kernel>("test_right"));
  for (const lab::Row& row : sweep(small("^test_right$")).rows) {
    EXPECT_EQ(text(row, "status"), "pass") << text(row, "detail");
  }
}

TEST(Sweep, FindsAnFp32ParameterEightUnitsInTheLastPlaceOff) {
  expect_found(with_kernels<rounds_badly>("test_units"), "parameter[");
}

TEST(Sweep, FindsAKernelThatForgetsTheLastElement) {
  expect_found(with_kernels<forgets_the_last>("test_last"), "[256]");
}

TEST(Sweep, FindsAKernelThatWritesPastTheParameter) {
  expect_found(with_kernels<writes_one_too_many>("test_past"), "wrote outside its memory");
}

TEST(Sweep, FindsAKernelThatWritesBeforeTheGradient) {
  expect_found(with_kernels<writes_the_gradient>("test_before"), "wrote outside its memory");
}

// ---- what cannot be done ----

std::string refusal(const SweepOptions& o) {
  try {
    sweep(o);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Sweep, RefusesAPatternThatMatchesNoOptimizerOrIsNone) {
  EXPECT_NE(refusal(small("^nothing$")).find("'^nothing$'"), std::string::npos);
  EXPECT_NE(refusal(small("adam(")).find("'adam('"), std::string::npos);
}

TEST(SweepDeathTest, RefusesAnUnknownInstructionSet) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  SweepOptions o = small("^lion$");
  o.isas = {"abacus"};
  EXPECT_EXIT(
      {
        const std::string why = refusal(o);
        std::fputs(why.c_str(), stderr);
        _exit(why.empty() ? 0 : 3);
      },
      testing::ExitedWithCode(3), "abacus");
}

}  // namespace
}  // namespace gallop::check
