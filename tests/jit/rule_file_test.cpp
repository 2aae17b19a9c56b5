// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "jit/library.h"
#include "jit/program.h"
#include "jit/rule_files.h"
#include "optimizer/fixture.h"

namespace gallop::test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// A user's rule, as short as one can be.
constexpr const char* kDescent = R"(#pragma once
#include "core/rule.h"
namespace gallop::rules {
struct Descent {
  static constexpr const char* name = "descent";
  static constexpr const char* about = "Gradient descent with momentum";
  static constexpr const char* formula = "m = b m + g; p = p - lr m";
  static constexpr State states[] = {{"momentum"}};
  struct Hyper { double lr = 0.1, momentum = 0.5; };
  static constexpr Knob<Hyper> knobs[] = {{"lr", &Hyper::lr, at_least(0)},
                                          {"momentum", &Hyper::momentum, fraction()}};
  template <class T> struct Coef { T b, neg_lr; };
  static GALLOP_FN Coef<double> coef(const Hyper& h, Clock) { return {h.momentum, -h.lr}; }
  template <class T, class K>
  static GALLOP_FN T update(T p, T g, T (&s)[1], const K& k) {
    s[0] = fma(k.b, s[0], g);
    return fma(k.neg_lr, s[0], p);
  }
};
}  // namespace gallop::rules
)";

Snapshot after_steps_of(const std::string& rule, const Variant& like, const Formats& f, Mode mode) {
  Plan plan{like, f};
  plan.variant.rule = rule;
  plan.sizes = {{0, 1, 255, 256}, {257, 1003, 5120}};
  return after_steps(plan, mode, 3);
}

// Entries, scalars, counts by group, norms, matrices, bases.
class SameRule : public testing::TestWithParam<const char*> {};

TEST_P(SameRule, FromAFileGivesTheSameBits) {
  const Folder folder;
  const std::string rule = GetParam(), mine = "my_" + rule;
  EXPECT_EQ(load_rule_file(file_like(folder, rule, mine)), mine);
  const Formats codes = {DType::bf16, DType::bf16, Rounding::remainder, StateFormat::q8,
                         Rounding::nearest};
  const Variant like = plain(rule);
  for (const Formats& f : {kF32, codes}) {
    const Snapshot expected = after_steps_of(rule, like, f, Mode::multi);
    for (const Mode mode : {Mode::unfused, Mode::single, Mode::multi, Mode::compiled}) {
      EXPECT_EQ(difference(expected, after_steps_of(mine, like, f, mode)), "")
          << to_string(f) << " " << to_string(mode);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, SameRule,
                         testing::Values("lion", "adamw", "nadam", "sophiag", "schedulefree_adamw",
                                         "qhadam", "lamb", "adafactor", "muon", "soap"));

TEST(RuleFile, IsAnOptimizer) {
  const Folder folder;
  Optimizer o = Optimizer::from_rule_file(write(folder / "descent.h", kDescent));
  EXPECT_EQ(o.rule().name, "descent");
  EXPECT_EQ(o.rule().about, "Gradient descent with momentum");
  ASSERT_EQ(o.rule().knobs.size(), 2u);
  EXPECT_EQ(o.rule().knobs[1].value, 0.5);
  float p[3] = {1, 2, 3}, g[3] = {1, -2, 0};
  o.add_group({{"p", {3}, p, g}});
  o.step();
  o.step();
  // m is g, then 1.5 g: p falls by 0.1 * 2.5 g.
  EXPECT_FLOAT_EQ(p[0], 0.75f);
  EXPECT_FLOAT_EQ(p[1], 2.5f);
  EXPECT_FLOAT_EQ(p[2], 3.0f);
  EXPECT_EQ(o.states(0).front().name, "momentum");
}

TEST(RuleFile, CheckpointsNameTheRuleAndCompileNothing) {
  const Folder folder;
  const std::string path = write(folder / "descent.h", kDescent), saved = folder / "saved";
  float p[2] = {1, 2}, g[2] = {1, 1};
  Optimizer o = Optimizer::from_rule_file(path);
  o.add_group({{"p", {2}, p, g}});
  o.step();
  o.save(saved);
  Optimizer other = Optimizer::from_rule_file(path);
  float q[2] = {p[0], p[1]};
  other.add_group({{"p", {2}, q, g}});
  other.load(saved);
  o.step();
  other.step();
  EXPECT_EQ(p[0], q[0]);
  EXPECT_EQ(p[1], q[1]);
  // Where nobody has loaded the rule, its checkpoint is refused, not looked for.
  const Finished ran =
      program(folder, "convert " + saved + " " + (folder / "out") + " --state bf16");
  EXPECT_NE(ran.status, 0);
  EXPECT_THAT(ran.output, HasSubstr("'descent' is unknown"));
  const Finished given = program(
      folder, "convert --rule " + path + " " + saved + " " + (folder / "out") + " --state bf16");
  EXPECT_EQ(given.status, 0) << given.output;
}

TEST(RuleFile, MayIncludeWhatLiesBesideIt) {
  const Folder folder;
  std::filesystem::create_directory(folder / "parts");
  write(folder / "parts/decay.h", "#pragma once\n#include \"deeper.h\"\n");
  write(folder / "parts/deeper.h", "#pragma once\ninline constexpr double kMine = 0.25;\n");
  std::string text = replaced(kDescent, "#include \"core/rule.h\"",
                              "#include \"parts/decay.h\"\n#include \"parts/decay.h\"");
  text = replaced(text, "momentum = 0.5", "momentum = kMine");
  Optimizer o = Optimizer::from_rule_file(write(folder / "descent.h", text));
  EXPECT_EQ(o.rule().knobs[1].value, 0.25);
}

TEST(RuleFile, OneThatHasChangedReplacesWhatItWas) {
  const Folder folder;
  const std::string path = write(folder / "descent.h", kDescent);
  Optimizer before = Optimizer::from_rule_file(path);
  write(path, replaced(kDescent, "lr = 0.1", "lr = 0.2"));
  Optimizer after = Optimizer::from_rule_file(path);
  EXPECT_EQ(after.rule().knobs[0].value, 0.2);
  EXPECT_EQ(before.rule().knobs[0].value, 0.1);
  float p = 1, g = 1;
  before.add_group({{"p", {1}, &p, &g}});
  before.step();
  EXPECT_FLOAT_EQ(p, 0.9f);
}

// ---- what is wrong with a file ----

std::string error_for(const std::string& text, const std::string& file = "descent.h") {
  const Folder folder;
  const std::string path = write(folder / file, text);
  std::string message = message_of([&] { load_rule_file(path); });
  for (size_t at = 0; (at = message.find(folder.path(), at)) != std::string::npos;) {
    message.replace(at, folder.path().size(), "HERE");
  }
  return message;
}

TEST(RuleFile, ErrorsHaveTheFilesLineAndTheFirstIsOnTop) {
  const std::string message =
      error_for(replaced(kDescent, "return fma(k.neg_lr", "momentun = 1; return fma(k.neg_rl"));
  EXPECT_THAT(message, StartsWith("HERE/descent.h:17:"));
  EXPECT_THAT(message, HasSubstr("momentun"));
  EXPECT_LT(message.find("momentun"), message.find("neg_rl"));
  EXPECT_THAT(message, Not(HasSubstr("gallop/core")));
}

TEST(RuleFile, ErrorsInIncludedFilesHaveTheirLines) {
  const Folder folder;
  write(folder / "mine.h", "#pragma once\n\nint x = nothing;\n");
  const std::string path =
      write(folder / "descent.h", std::string("#include \"mine.h\"\n") + kDescent);
  EXPECT_THAT(message_of([&] { load_rule_file(path); }), StartsWith(folder / "mine.h:3:"));
}

TEST(RuleFile, ABranchOnAnElementIsExplained) {
  const std::string message =
      error_for(replaced(kDescent, "return fma(", "if (g > 0) return p; return fma("));
  EXPECT_THAT(message, StartsWith("HERE/descent.h:17:"));
  EXPECT_THAT(message, HasSubstr("no if and no comparison"));
}

TEST(RuleFile, WhatIsMissingIsNamed) {
  const std::pair<const char*, const char*> cases[] = {{"* name", "'name'"},
                                                       {"* about", "'about'"},
                                                       {"* formula", "'formula'"},
                                                       {"State states", "'states'"},
                                                       {" coef(", "'coef'"}};
  for (const auto& [part, named] : cases) {
    const std::string before = part;
    const size_t end = before.find_last_of("abcdefghijklmnopqrstuvwxyz") + 1;
    const std::string other = fmt::format("{}x{}", before.substr(0, end), before.substr(end));
    const std::string message = error_for(replaced(kDescent, before, other));
    EXPECT_THAT(message, HasSubstr(std::string("Descent has no ")));
    EXPECT_THAT(message, HasSubstr(named));
    EXPECT_THAT(message, StartsWith("HERE/descent.h:4:")) << part;
  }
}

TEST(RuleFile, WhatNoCompilerSeesIsNamed) {
  EXPECT_EQ(error_for(replaced(kDescent, "{\"lr\"", "{\"rate\"")),
            "rule 'descent' has no knob 'lr', which every rule must have");
  EXPECT_EQ(error_for(replaced(kDescent, "{\"momentum\", &", "{\"lr\", &")),
            "rule 'descent' has two knobs 'lr'");
  EXPECT_EQ(error_for(replaced(kDescent, "{{\"momentum\"}}", "{{\"m\", Sign::any, \"amsgrad\"}}")),
            "rule 'descent' keeps the state 'm' when 'amsgrad' is set, but has no such knob");
  EXPECT_EQ(error_for(replaced(kDescent, "momentum = 0.5", "momentum = 1.5")),
            "rule 'descent' has the default 1.5 for 'momentum', expected in [0, 1)");
  EXPECT_EQ(error_for(replaced(kDescent, "name = \"descent\"", "name = \"ascent\"")),
            "HERE/descent.h: the rule's name is 'ascent', expected its file's, 'descent'");
  EXPECT_EQ(error_for(kDescent, "adamw.h"),
            "HERE/adamw.h: a rule named 'adamw' exists already, expected a file and a rule of "
            "another name");
  EXPECT_THAT(error_for("int x;\n"), StartsWith("HERE/descent.h: no line begins with 'struct'"));
  EXPECT_THAT(error_for(""), StartsWith("HERE/descent.h: no line begins with 'struct'"));
  EXPECT_THAT(message_of([] { load_rule_file("/nowhere/x.h"); }),
              StartsWith("rule file '/nowhere/x.h' does not exist"));
  EXPECT_THAT(message_of([] { load_rule_file("/tmp"); }),
              StartsWith("rule file '/tmp' cannot be read"));
}

// ---- compilers and the cache, in processes of their own ----

TEST(RuleFile, WithoutACompilerOneSentenceAndTheRestWorks) {
  const Folder folder;
  const std::string path = write(folder / "descent.h", kDescent);
  const std::string fresh = "GALLOP_CACHE=" + (folder / "cache");
  const Finished none = program(folder, "check --rule " + path, fresh + " PATH=/nowhere");
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(none.output, StartsWith("gallop: rules cannot be compiled here: no c++, g++ or"));
  EXPECT_EQ(std::count(none.output.begin(), none.output.end(), '\n'), 1);
  const Finished wrong = program(folder, "check --rule " + path, fresh + " GALLOP_CXX=no-such-c++");
  EXPECT_THAT(wrong.output, StartsWith("gallop: GALLOP_CXX is 'no-such-c++', expected"));
  const Finished other = program(folder, "check --only '^lion$' --sizes 257", "PATH=/nowhere");
  EXPECT_EQ(other.status, 0) << other.output;
}

TEST(RuleFile, ADamagedCacheIsRebuilt) {
  const Folder folder;
  const std::string path = write(folder / "descent.h", kDescent);
  const std::string environment = "GALLOP_CACHE=" + (folder / "cache");
  const std::string words = "check --sizes 257 --rule " + path;
  ASSERT_EQ(program(folder, words, environment).status, 0);
  int damaged = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "cache")) {
    const auto size = std::filesystem::file_size(entry.path());
    std::filesystem::resize_file(entry.path(), damaged % 2 == 0 ? size / 2 : size - 1);
    ++damaged;
  }
  EXPECT_GE(damaged, 2);
  const Finished again = program(folder, words, environment);
  EXPECT_EQ(again.status, 0) << again.output;
  EXPECT_THAT(again.output, HasSubstr("pass"));
}

TEST(RuleFile, WorksWhereNothingCanBeKept) {
  const Folder folder;
  const std::string path = write(folder / "descent.h", kDescent);
  for (const char* environment : {"GALLOP_CACHE=/dev/null/x", "GALLOP_CACHE_MB=0"}) {
    const Finished ran =
        program(folder, "list --rule " + path,
                std::string(environment) + " XDG_CACHE_HOME=" + (folder / "other"));
    EXPECT_EQ(ran.status, 0) << ran.output;
    EXPECT_THAT(ran.output, HasSubstr("Gradient descent with momentum"));
  }
}

TEST(RuleFile, SeveralProcessesCompileAtOnce) {
  const Folder folder;
  const std::string path = write(folder / "descent.h", kDescent);
  std::vector<std::thread> threads;
  std::vector<Finished> ran(4);
  for (size_t i = 0; i < ran.size(); ++i) {
    std::filesystem::create_directory(folder / std::to_string(i));
    threads.emplace_back([&, i] {
      const std::string out = folder / fmt::format("{}/output", i);
      const std::string command =
          fmt::format("GALLOP_CACHE={} {} check --sizes 1003 --rule {} >{} 2>&1", folder / "cache",
                      GALLOP_PROGRAM, path, out);
      ran[i].status = std::system(command.c_str());
      ran[i].output = contents(out);
    });
  }
  for (std::thread& t : threads) t.join();
  for (const Finished& r : ran) EXPECT_EQ(r.status, 0) << r.output;
}

TEST(RuleFile, FlagsOfItsHyperParametersExist) {
  const Folder folder;
  const std::string path = write(folder / "descent.h", kDescent);
  const std::string words = "bench step --tensors 1 --size 1000 --time-limit 0.01 --rule " + path;
  const Finished ran = program(folder, words + " --momentum 0.9");
  EXPECT_EQ(ran.status, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("descent"));
  EXPECT_THAT(ran.output, Not(HasSubstr("adamw")));
  const Finished both = program(folder, words + " --optimizer lion,sgd");
  for (const char* name : {"descent", "lion", "sgd"}) EXPECT_THAT(both.output, HasSubstr(name));
  EXPECT_NE(program(folder, words + " --momentum 1.5").status, 0);
  EXPECT_NE(program(folder, words + " --amsgrad 1").status, 0);
  EXPECT_THAT(program(folder, words + " --fold").output, HasSubstr("--fold is for mode compiled"));
}

// Compiled kernels replay recorded runs too, and bench rows say what compiling costs.
TEST(RuleFile, ModeCompiledWorksWhereOthersDo) {
  const Folder folder;
  const Finished golden = program(
      folder, "check --mode compiled --only '^(adamw|lion)$' --golden " GALLOP_TEST_DATA "/golden");
  EXPECT_EQ(golden.status, 0) << golden.output;
  EXPECT_THAT(golden.output, HasSubstr("pass"));
  for (const char* mode : {"single", "unfused"}) {
    const Finished check = program(
        folder, fmt::format("check --mode {} --only '^lion$' --sizes 257 --isa baseline", mode));
    EXPECT_EQ(check.status, 0) << check.output;
  }
  EXPECT_THAT(program(folder, "check --mode fused").output, HasSubstr("'fused'"));
  const Finished bench =
      program(folder,
              "bench step --mode multi,compiled --tensors 1 --size 1000 --time-limit 0.01 "
              "--format json --out " +
                  (folder / "rows"));
  ASSERT_EQ(bench.status, 0) << bench.output;
  const auto rows = nlohmann::json::parse(contents(folder / "rows")).at("rows");
  EXPECT_FALSE(rows.at(0).contains("compile_warmup_ms"));
  EXPECT_GT(rows.at(1).at("compile_warmup_ms"), 0);
  EXPECT_GT(rows.at(1).at("cached_warmup_ms"), 0);
}

}  // namespace
}  // namespace gallop::test
