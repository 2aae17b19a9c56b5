// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <optional>

#include "cli/common.h"
#include "gallop/convert.h"
#include "gallop/error.h"

namespace gallop::cli {
namespace {

struct State {
  RuleFiles rules;
  std::string in, out;
  std::optional<std::string> policy, to, from, like;
};

Conversion convert(const State& s) {
  const int ways = s.policy.has_value() + s.to.has_value() + s.from.has_value();
  if (ways != 1) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("convert was given {} of --state, --to and --from, expected one",
                            ways == 0 ? "none" : "more than one"));
  }
  if (s.from.has_value() != s.like.has_value()) {
    throw Error(ErrorCode::invalid_argument,
                "--from bitsandbytes and --like TEMPLATE go together, expected both");
  }
  if (s.policy) return convert_checkpoint(s.in, s.out, parse_state_policy(*s.policy));
  return s.to ? to_bitsandbytes(s.in, s.out) : from_bitsandbytes(s.in, *s.like, s.out);
}

void run(const State& s) {
  const Conversion c = convert(s);
  fmt::print("{}: {} tensors, {} bytes before, {} after\n", s.out, c.tensors, c.bytes_before,
             c.bytes_after);
  if (!c.low_bits) return;
  fmt::print("{}\n", s.to
                         ? "masters or remainders were left out: bitsandbytes has none"
                         : "masters or remainders are the template's: call refresh_masters() after "
                           "loading");
}

}  // namespace

void add_convert(CLI::App& app) {
  auto s = std::make_shared<State>();
  CLI::App* convert =
      app.add_subcommand("convert", "Checkpoints to another state format, or bitsandbytes' names");
  convert->add_option("in", s->in, "A checkpoint of an optimizer")->required();
  convert->add_option("out", s->out, "Where to write the other one; may be the same file")
      ->required();
  convert->add_option("--state", s->policy,
                      "State formats to convert to: fp32, bf16, 8bit, 8bit-bnb, 4bit, fp8, hybrid, "
                      "or a policy, such as 'norm=fp32,8bit' (see gallop list --policy)");
  convert->add_option("--to", s->to, "bitsandbytes: write NAME.state1, NAME.absmax1, ...")
      ->check(CLI::IsMember({"bitsandbytes"}));
  convert->add_option("--from", s->from, "bitsandbytes: read such a file; needs --like")
      ->check(CLI::IsMember({"bitsandbytes"}));
  convert->add_option("--like", s->like,
                      "With --from: a checkpoint of gallop's to take groups, hyper-parameters and "
                      "formats from, such as one saved before the first step");
  s->rules.add_to(*convert);
  convert->footer("docs/checkpoints.md has the keys of both, and how to get them into Python.");
  convert->callback([s] { run(*s); });
}

}  // namespace gallop::cli
