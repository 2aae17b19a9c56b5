// SPDX-License-Identifier: MIT
// NVRTC compiles without a GPU; what it makes is run by the tests in tests/cuda.
#include "jit/nvrtc.h"

#include <fmt/format.h>

#include "jit/program.h"
#include "jit/rule_file.h"
#include "jit/rule_files.h"

namespace gallop::test {
namespace {

class Nvrtc : public testing::Test {
 protected:
  void SetUp() override {
    try {
      jit::nvrtc_identity();
    } catch (const Error& e) {
      GTEST_SKIP() << "NOT RUN, needs NVRTC: " << e.what();
    }
  }
};

std::string kernel_of(const Rule& rule, const std::string& type) {
  const std::string states = fmt::format("gallop::detail::variant_states<{}>(0)", type);
  if (rule.passes.empty()) {
    return fmt::format("gallop::cuda::update<{}, 0, {}, gallop::cuda::Kind::f32>", type, states);
  }
  return fmt::format("gallop::cuda::norm_pass<{}, 0, {}, gallop::cpu::Path::f32>", type, states);
}

jit::GpuCode compile(const jit::RuleText& text, const Rule& like, int arch) {
  jit::Unit unit(text);
  unit.include(like.passes.empty() ? "cuda/update_kernel.cuh" : "cuda/norm_between.cuh");
  return jit::compile_for_gpu(unit.text(), kernel_of(like, "gallop::rules::" + text.type), arch);
}

TEST_F(Nvrtc, CompilesEveryRule) {
  for (const std::string& name : rule_names()) {
    if (find_rule(name).from_file) continue;
    const jit::RuleText& text = *jit::built_in_rule(name);
    const jit::GpuCode code = compile(text, find_rule(name), 90);
    EXPECT_THAT(code.name, testing::HasSubstr(text.type)) << name;
    EXPECT_EQ(code.image.substr(1, 3), "ELF") << name;
  }
}

TEST_F(Nvrtc, CompilesForOlderAndForUnknownGpus) {
  const jit::RuleText& text = *jit::built_in_rule("lion");
  EXPECT_EQ(compile(text, find_rule("lion"), 75).image.substr(1, 3), "ELF");
  // Newer than the compiler: PTX, which the driver compiles.
  EXPECT_THAT(compile(text, find_rule("lion"), 999).image, testing::HasSubstr(".version"));
}

TEST_F(Nvrtc, ErrorsHaveTheFilesLine) {
  const std::string wrong =
      replaced(jit::built_in_rule("lion")->text, "return ", "momentun = 1; return ");
  const std::string message =
      message_of([&] { compile(jit::rule_text("mine/lion.h", "", wrong), find_rule("lion"), 90); });
  EXPECT_THAT(message, testing::MatchesRegex("mine/lion\\.h\\([0-9]+\\): error: .*momentun.*"));
}

TEST(NvrtcMissing, IsOneSentence) {
  const Folder folder;
  const Finished ran = program(folder, "info --no-measure", "GALLOP_NVRTC=/nowhere/libnvrtc.so");
  EXPECT_EQ(ran.status, 0);
  EXPECT_THAT(ran.output, testing::HasSubstr("GALLOP_NVRTC is '/nowhere/libnvrtc.so', expected"));
}

}  // namespace
}  // namespace gallop::test
