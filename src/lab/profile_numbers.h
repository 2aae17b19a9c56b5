// SPDX-License-Identifier: MIT
// The figures of a profile's runs that finished, by contender.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lab/profile.h"
#include "lab/profile_figures.h"

namespace gallop::lab {

class ProfileNumbers {
 public:
  ProfileNumbers(const ProfileOptions& options, const std::vector<ProfileRun>& runs);

  const std::vector<double>& of(const ProfileFigure& f, size_t contender) const {
    return by_figure_.at(f.name).values[contender];
  }
  const Spread& spread(const ProfileFigure& f) const { return by_figure_.at(f.name).spread; }
  std::optional<Change> between(const ProfileFigure& f, size_t a, size_t b) const;  // b next to a
  std::optional<Change> next_to_baseline(const ProfileFigure& f, size_t contender) const {
    return between(f, baseline_, contender);
  }

 private:
  struct Of {
    std::vector<std::vector<double>> values;
    Spread spread;
  };
  size_t baseline_;
  std::map<std::string, Of> by_figure_;
};

}  // namespace gallop::lab
