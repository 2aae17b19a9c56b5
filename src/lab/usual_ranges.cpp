// SPDX-License-Identifier: MIT
#include <algorithm>
#include <string_view>

#include "gallop/rules.h"
#include "lab/race.h"

namespace gallop::lab {
namespace {

struct Usual {
  std::string_view optimizer;
  double low, high;  // of lr, for transformers
};

constexpr Usual kUsual[] = {{"adadelta", 0.1, 10},
                            {"adafactor", 1e-3, 3e-2},
                            {"adafactor_torch", 1e-3, 3e-2},
                            {"adagrad", 3e-3, 1e-1},
                            {"adam", 3e-4, 1e-2},
                            {"adamax", 1e-3, 3e-2},
                            {"adamp", 3e-4, 1e-2},
                            {"adamw", 3e-4, 1e-2},
                            {"adan", 3e-4, 1e-2},
                            {"ademamix", 3e-4, 1e-2},
                            {"lamb", 1e-3, 3e-2},
                            {"lars", 0.1, 10},
                            {"lion", 3e-5, 1e-3},
                            {"muon", 3e-3, 1e-1},
                            {"nadam", 3e-4, 1e-2},
                            {"qhadam", 3e-4, 1e-2},
                            {"qhm", 1e-2, 1},
                            {"radam", 3e-4, 1e-2},
                            {"rmsprop", 1e-4, 3e-3},
                            {"schedulefree_adamw", 1e-3, 3e-2},
                            {"sgd", 1e-2, 1},
                            {"soap", 3e-4, 1e-2},
                            {"sophiag", 1e-4, 3e-3},
                            {"stable_adamw", 3e-4, 1e-2}};

}  // namespace

SearchRange usual_range(const std::string& optimizer) {
  const auto* at = std::find_if(std::begin(kUsual), std::end(kUsual),
                                [&](const Usual& u) { return u.optimizer == optimizer; });
  SearchRange range{"lr", Scale::log, 0, 0, {}};
  if (at != std::end(kUsual)) {
    range.low = at->low, range.high = at->high;
  } else {  // a rule of one's own
    const RuleInfo& info = rule_info(optimizer);
    const double lr = info.knobs[static_cast<size_t>(info.knob("lr"))].value;
    range.low = lr / 10, range.high = lr * 10;
  }
  return range;
}

}  // namespace gallop::lab
