// SPDX-License-Identifier: MIT
#include "lab/profile_numbers.h"

namespace gallop::lab {

ProfileNumbers::ProfileNumbers(const ProfileOptions& o, const std::vector<ProfileRun>& runs)
    : baseline_(o.baseline) {
  for (const ProfileFigure& f : profile_figures()) {
    Of& of = by_figure_[f.name];
    of.values.resize(o.contenders.size());
    for (const ProfileRun& r : runs) {
      const auto value = f.of(r.spec, r.result);
      if (value) of.values[r.contender].push_back(*value);
    }
    of.spread = spread_of(of.values);
  }
}

std::optional<Change> ProfileNumbers::between(const ProfileFigure& f, size_t a, size_t b) const {
  const Of& of = by_figure_.at(f.name);
  return change_of(of.values[a], of.values[b], of.spread, f.exact);
}

}  // namespace gallop::lab
