// SPDX-License-Identifier: MIT
#include "cli/command.h"
#include "folder.h"
#include "gallop/gallop.h"

namespace gallop::test {
namespace {

using testing::HasSubstr;

// An optimizer over one matrix of 8192 elements.
struct Small {
  explicit Small(StateFormat format, const char* rule = "adamw") : o(rule) {
    GroupOptions group;
    group.state = format;
    o.add_group({{"w", {16, 512}, p.data(), g.data()}}, group);
  }
  std::vector<float> p = std::vector<float>(8192, 1.0f), g = std::vector<float>(8192, 0.5f);
  Optimizer o;
};

class ConvertCommand : public testing::Test {
 protected:
  ConvertCommand() {
    Small s(StateFormat::f32);
    s.o.step();
    s.o.save(in_);
    Small(StateFormat::bnb8).o.save(like_);
  }
  Folder folder_;
  std::string in_ = folder_ / "in", out_ = folder_ / "out", like_ = folder_ / "like";
};

TEST_F(ConvertCommand, State) {
  const Ran ran = run({"convert", in_, out_, "--state", "8bit"});
  EXPECT_EQ(ran.exit_code, 0) << ran.errors;
  EXPECT_THAT(ran.out, HasSubstr(out_ + ": 5 tensors, 65544 bytes before, 16648 after\n"));
  Small loaded(StateFormat::q8);
  loaded.o.load(out_);
  EXPECT_EQ(loaded.o.steps(0), 1);
}

TEST_F(ConvertCommand, BitsAndBytesAndBack) {
  const std::string theirs = folder_ / "theirs";
  ASSERT_EQ(run({"convert", in_, in_, "--state", "8bit-bnb"}).exit_code, 0);
  ASSERT_EQ(run({"convert", in_, theirs, "--to", "bitsandbytes"}).exit_code, 0);
  const Ran ran = run({"convert", theirs, out_, "--from", "bitsandbytes", "--like", like_});
  EXPECT_EQ(ran.exit_code, 0) << ran.errors;
  Small a(StateFormat::bnb8), b(StateFormat::bnb8);
  a.o.load(in_);
  b.o.load(out_);
  EXPECT_EQ(a.o.state_values(0, "exp_avg"), b.o.state_values(0, "exp_avg"));
}

TEST_F(ConvertCommand, BadInputIsOneSentence) {
  expect_refused({"convert", in_, out_}, "none of --state, --to and --from");
  expect_refused({"convert", in_, out_, "--state", "8bit", "--to", "bitsandbytes"},
                 "more than one of");
  expect_refused({"convert", in_, out_, "--from", "bitsandbytes"}, "--like TEMPLATE");
  expect_refused({"convert", in_, out_, "--state", "8bit", "--like", like_}, "--like TEMPLATE");
  expect_refused({"convert", in_, out_, "--to", "torch"}, "bitsandbytes");
  expect_refused({"convert", in_, out_, "--state", "9bit"}, "'9bit' is unknown");
  expect_refused({"convert", in_, out_, "--state", ""}, "'' is unknown");
  expect_refused({"convert", in_}, "out is required");
  expect_refused({"convert", folder_ / "none", out_, "--state", "8bit"}, "No such file");
  expect_refused({"convert", in_, folder_ / "none/out", "--state", "8bit"}, "No such file");
}

}  // namespace
}  // namespace gallop::test
