// SPDX-License-Identifier: MIT
#include "lab/search_space.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "gallop/error.h"

namespace gallop::lab {
namespace {

using Points = std::vector<double>;

std::vector<SearchRange> ranges(const std::vector<std::string>& texts) {
  std::vector<SearchRange> out;
  for (const std::string& text : texts) out.push_back(parse_range(text));
  return out;
}

std::string error_of(const std::string& text) {
  try {
    parse_range(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "no error";
}

TEST(ParseRange, SpreadsPointsEvenlyInTheLogarithm) {
  const SearchRange range = parse_range("lr=1e-4:1e-2:log,5");
  EXPECT_EQ(range.name, "lr");
  EXPECT_EQ(range.scale, Scale::log);
  EXPECT_EQ(range.points, (Points{1e-4, 3.16227766017e-4, 1e-3, 3.16227766017e-3, 1e-2}));
}

TEST(ParseRange, SpreadsPointsEvenly) {
  EXPECT_EQ(parse_range("beta1=0.1:0.5:linear,5").points, (Points{0.1, 0.2, 0.3, 0.4, 0.5}));
  EXPECT_EQ(parse_range("beta1=0.1:0.5,3").points, (Points{0.1, 0.3, 0.5}));
  EXPECT_EQ(parse_range("x=-1:1,3").points, (Points{-1, 0, 1}));
}

TEST(ParseRange, SpreadsTheDistanceToOne) {
  // sqrt(0.05 * 0.001) = 0.00707106781187
  EXPECT_EQ(parse_range("beta2=0.95:0.999:log1m,3").points,
            (Points{0.95, 0.99292893218813, 0.999}));
  EXPECT_EQ(parse_range("beta2=0.9:0.999:log1m,3").points, (Points{0.9, 0.99, 0.999}));
}

TEST(ParseRange, KeepsEndsExact) {
  const SearchRange range = parse_range("lr=1.2345678901234567e-4:9.8765432109876543e-3:log,7");
  EXPECT_EQ(range.points.front(), 1.2345678901234567e-4);
  EXPECT_EQ(range.points.back(), 9.8765432109876543e-3);
  EXPECT_TRUE(std::is_sorted(range.points.begin(), range.points.end()));
}

TEST(ParseRange, TakesLists) {
  const SearchRange range = parse_range("wd=0,0.01,0.1");
  EXPECT_EQ(range.name, "weight_decay");
  EXPECT_EQ(range.scale, Scale::list);
  EXPECT_EQ(range.points, (Points{0, 0.01, 0.1}));
  EXPECT_EQ(parse_range("momentum=0.9").points, (Points{0.9}));
}

TEST(ParseRange, NeedsNoPointsForTrials) {
  EXPECT_TRUE(parse_range("lr=1e-4:1e-2:log").points.empty());
}

TEST(ParseRange, SaysWhatItExpected) {
  EXPECT_EQ(error_of("lr"),
            "search range is 'lr', expected NAME=LOW:HIGH[:log|linear|log1m][,POINTS] or "
            "NAME=VALUE[,VALUE...]");
  EXPECT_EQ(error_of("lr=1e-4:x:log,5"),
            "search range is 'lr=1e-4:x:log,5', expected a number instead of 'x'");
  EXPECT_EQ(error_of("lr=1e-2:1e-4:log,5"),
            "search range is 'lr=1e-2:1e-4:log,5', expected LOW:HIGH with LOW below HIGH");
  EXPECT_EQ(error_of("lr=0:1:log,5"),
            "search range is 'lr=0:1:log,5', expected LOW above 0 for log");
  EXPECT_EQ(error_of("b=0.9:1:log1m,5"),
            "search range is 'b=0.9:1:log1m,5', expected HIGH below 1 for log1m");
  EXPECT_EQ(error_of("lr=1:2:cubic,5"),
            "search range is 'lr=1:2:cubic,5', expected log, linear or log1m instead of 'cubic'");
  EXPECT_EQ(error_of("lr=1:2,1"),
            "search range is 'lr=1:2,1', expected 2 to 1000 points instead of '1'");
  EXPECT_EQ(error_of("wd=1,2,1"), "search range is 'wd=1,2,1', expected '1' once");
}

TEST(ParseRange, RefusesWhatIsNoRange) {
  for (const char* text :
       {"", "=", "=1:2,3", "lr=", "lr=1:", "lr=:2", "lr=1:2:log:log,3", "lr=1:2,3,4", "lr=1:2,",
        "lr=1:2,2.5", "lr=1:2,-3", "lr=1:2,5000", "lr=nan", "lr=1:inf,3", "lr=1,,2", "lr=1,",
        "lr=1e999", "lr=0x10", "lr= 1"}) {
    EXPECT_NE(error_of(text), "no error") << text;
  }
}

TEST(Grid, IsEveryCombinationTheLastFastest) {
  const std::vector<Settings> trials = grid(ranges({"lr=1,2", "wd=0,0.1,0.2"}));
  ASSERT_EQ(trials.size(), 6U);
  EXPECT_EQ(trials[0], (Settings{{"lr", 1}, {"weight_decay", 0}}));
  EXPECT_EQ(trials[1], (Settings{{"lr", 1}, {"weight_decay", 0.1}}));
  EXPECT_EQ(trials[5], (Settings{{"lr", 2}, {"weight_decay", 0.2}}));
}

TEST(Grid, OfNothingIsOneTrialOfDefaults) { EXPECT_EQ(grid({}), (std::vector<Settings>{{}})); }

TEST(Grid, RefusesRangesWithoutPointsNamesTwiceAndTooMany) {
  EXPECT_THROW(grid(ranges({"lr=1:2"})), Error);
  EXPECT_THROW(grid(ranges({"wd=1,2", "weight_decay=3"})), Error);
  EXPECT_THROW(grid(ranges({"a=1:2,1000", "b=1:2,1000"})), Error);
}

TEST(SpreadTrials, AreAsManyAsAskedForWhateverTheRanges) {
  EXPECT_EQ(spread_trials(ranges({"lr=1e-4:1e-2:log,5"}), 7, 0).size(), 7U);
  EXPECT_EQ(
      spread_trials(ranges({"lr=1e-4:1e-2:log", "wd=0,0.1", "beta2=0.9:0.999:log1m"}), 7, 0).size(),
      7U);
  EXPECT_EQ(spread_trials({}, 3, 0), (std::vector<Settings>{{}, {}, {}}));
}

TEST(SpreadTrials, PutOneInEachPartOfEachRange) {
  for (const uint64_t seed : {0, 1, 2}) {
    const auto halves = spread_trials(ranges({"a=0:1", "b=0:1"}), 72, seed);
    for (size_t first = 0; first < 72; first += 8) {  // every eight in a row, base 2
      std::set<int> eighths;
      for (size_t i = first; i < first + 8; ++i) {
        eighths.insert(static_cast<int>(halves[i][0].value * 8));
      }
      EXPECT_EQ(eighths.size(), 8U);
    }
    std::set<int> cells;  // 72 trials, one in each of 8 by 9 cells
    for (const Settings& trial : halves) {
      cells.insert(static_cast<int>(trial[0].value * 8) * 9 + static_cast<int>(trial[1].value * 9));
    }
    EXPECT_EQ(cells.size(), 72U);
  }
}

TEST(SpreadTrials, StayWithinTheRangesAndFollowTheirScales) {
  int low = 0;
  for (const Settings& trial : spread_trials(ranges({"lr=1e-4:1e-2:log", "wd=0,0.1,0.3"}), 64, 5)) {
    EXPECT_GE(trial[0].value, 1e-4);
    EXPECT_LE(trial[0].value, 1e-2);
    low += trial[0].value < 1e-3;
    EXPECT_TRUE(trial[1].value == 0 || trial[1].value == 0.1 || trial[1].value == 0.3);
  }
  EXPECT_EQ(low, 32);
}

TEST(SpreadTrials, DependOnTheSeedAloneAndGrowAtTheEnd) {
  const auto space = ranges({"lr=1e-4:1e-2:log", "wd=0:0.1"});
  const auto eight = spread_trials(space, 8, 1);
  auto longer = spread_trials(space, 20, 1);
  longer.resize(8);
  EXPECT_EQ(eight, longer);
  EXPECT_NE(eight, spread_trials(space, 8, 2));
}

TEST(SpreadTrials, RefuseTooManyRangesAndNamesTwice) {
  std::vector<std::string> texts;
  for (char name = 'a'; name <= 'm'; ++name) texts.push_back(std::string(1, name) + "=0:1");
  EXPECT_THROW(spread_trials(ranges(texts), 1, 0), Error);
  texts.pop_back();
  EXPECT_EQ(spread_trials(ranges(texts), 40, 0).size(), 40U);
  EXPECT_THROW(spread_trials(ranges({"a=0:1", "a=0:1"}), 1, 0), Error);
}

TEST(Brief, IsShortAndReadable) {
  EXPECT_EQ(brief(1e-3), "1e-3");
  EXPECT_EQ(brief(3e-4), "3e-4");
  EXPECT_EQ(brief(1e-5), "1e-5");
  EXPECT_EQ(brief(0.000316227766017), "0.000316");
  EXPECT_EQ(brief(3.16227766017e-5), "3.16e-5");
  EXPECT_EQ(brief(1e-10), "1e-10");
  EXPECT_EQ(brief(0), "0");
  EXPECT_EQ(brief(0.01), "0.01");
  EXPECT_EQ(brief(0.1), "0.1");
  EXPECT_EQ(brief(1), "1");
  EXPECT_EQ(brief(2.5), "2.5");
  EXPECT_EQ(brief(-0.002), "-2e-3");
  EXPECT_EQ(brief(2000), "2000");
  EXPECT_EQ(brief(0.9), "0.9");
  EXPECT_EQ(brief(0.9995), "0.9995");
  EXPECT_EQ(brief(0.99292893218813), "0.99293");
}

TEST(ExactText, ReadsBackAsTheSameNumbers) {
  const Settings trial = {{"lr", 0.1 + 0.2}, {"weight_decay", 0}};
  EXPECT_EQ(exact_text(trial), "lr=0.30000000000000004 weight_decay=0");
  for (const Settings& each : spread_trials(ranges({"lr=1e-4:1e-2:log"}), 50, 3)) {
    EXPECT_EQ(std::strtod(exact_text(each).c_str() + 3, nullptr), each[0].value);
  }
  EXPECT_EQ(exact_text({}), "");
}

}  // namespace
}  // namespace gallop::lab
