// SPDX-License-Identifier: MIT
#include "bench/precision.h"
#include "cli/common.h"

namespace gallop::cli {

void add_precision(CLI::App& bench) {
  struct State {
    Output output;
    bench::PrecisionOptions options;
  };
  auto s = std::make_shared<State>();
  CLI::App* precision = bench.add_subcommand(
      "precision", "What 16-bit sums and parameters make of many small additions");
  precision->add_option("--value", s->options.value, "Added to 0")->capture_default_str();
  precision->add_option("--count", s->options.count, "How many times")->capture_default_str();
  precision
      ->add_option("--updates", s->options.updates,
                   "Added to a parameter of 1 as many times, separated by commas")
      ->delimiter(',')
      ->capture_default_str();
  precision
      ->add_option("--seeds", s->options.seeds,
                   "Runs of stochastic rounding: results are their means")
      ->capture_default_str();
  precision->add_option("--seed", s->options.seed, "The first of them")->capture_default_str();
  s->output.add_to(*precision);
  s->output.keep_as(*precision, "bench precision");
  precision->callback([s] {
    invocation().seed = static_cast<int64_t>(s->options.seed);
    s->output.emit(bench::precision(s->options));
  });
}

}  // namespace gallop::cli
