// SPDX-License-Identifier: MIT
#include "core/random.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>
#include <vector>

namespace gallop {
namespace {

constexpr Bits32 kLanes = 256;  // of one block

// As the optimizer derives it: seed, then parameter, then step, then what is rounded.
Bits64 stream_key(Bits64 seed, Bits64 param, Bits64 step, Bits64 what) {
  return combine(combine(combine(seed, param), step), what);
}

class Histogram {
 public:
  explicit Histogram(size_t bins) : counts_(bins) {}
  void add(Bits32 bin) {
    ++counts_[bin];
    ++total_;
  }
  // Standard deviations above what uniform draws would give.
  double excess() const {
    const double expected = static_cast<double>(total_) / static_cast<double>(counts_.size());
    double chi2 = 0;
    for (int c : counts_) chi2 += (c - expected) * (c - expected) / expected;
    const double freedom = static_cast<double>(counts_.size()) - 1;
    return (chi2 - freedom) / std::sqrt(2 * freedom);
  }

 private:
  std::vector<int> counts_;
  long long total_ = 0;
};

// One in 10^8 for a fair source; the draws are fixed, so the outcome is too.
constexpr double kGenerous = 6;

TEST(Random, CombineIsSplitMix64) {
  // The published first outputs for the seed 1234567.
  const Bits64 published[] = {6457827717110365317ull, 3203168211198807973ull,
                              9817491932198370423ull, 4593380528125082431ull,
                              16408922859458223821ull};
  for (Bits64 i = 0; i < 5; ++i) {
    EXPECT_EQ(combine(1234567, i), published[i]);
    EXPECT_EQ(block_key(1234567, i), published[i] >> 32);
  }
}

TEST(Random, AllSixteenBitsAreUniformOverLanesAndBlocks) {
  Histogram all(65536);
  const Bits64 key = stream_key(0, 1, 0, 0);
  for (Bits64 block = 0; block < 65536; ++block) {
    const Bits32 k = block_key(key, block);
    for (Bits32 lane = 0; lane < kLanes; ++lane) all.add(lane_bits(k, lane));
  }
  EXPECT_LT(all.excess(), kGenerous);
}

TEST(Random, EveryLaneIsUniformOverBlocks) {
  const Bits64 key = stream_key(7, 2, 3, 1);
  for (Bits32 lane = 0; lane < kLanes; ++lane) {
    Histogram high(256), low(256);
    for (Bits64 block = 0; block < 16384; ++block) {
      const Bits32 bits = lane_bits(block_key(key, block), lane);
      ASSERT_LT(bits, 65536u);
      high.add(bits >> 8);
      low.add(bits & 0xff);
    }
    ASSERT_LT(high.excess(), kGenerous) << lane;
    ASSERT_LT(low.excess(), kGenerous) << lane;
  }
}

// What an element sees over its life: the same lane and block, one step after the other.
TEST(Random, AnElementIsUniformOverStepsSeedsAndParameters) {
  Histogram steps(256), seeds(256), params(256);
  for (Bits64 i = 0; i < 100000; ++i) {
    steps.add(lane_bits(block_key(stream_key(0, 5, i, 0), 3), 17) >> 8);
    seeds.add(lane_bits(block_key(stream_key(i, 5, 0, 0), 3), 17) >> 8);
    params.add(lane_bits(block_key(stream_key(0, i, 0, 0), 3), 17) >> 8);
  }
  EXPECT_LT(steps.excess(), kGenerous);
  EXPECT_LT(seeds.excess(), kGenerous);
  EXPECT_LT(params.excess(), kGenerous);
}

TEST(Random, NeighboursAreIndependent) {
  Histogram lanes(4096), blocks(4096), steps(4096), states(4096);
  const auto pair = [](Bits32 a, Bits32 b) { return (a >> 10) << 6 | b >> 10; };
  for (Bits64 block = 0; block < 4096; ++block) {
    const auto key = [&](Bits64 step, Bits64 what, Bits64 b) {
      return block_key(stream_key(0, 9, step, what), b);
    };
    const Bits32 here = key(1, 0, block), next = key(1, 0, block + 1), later = key(2, 0, block),
                 state = key(1, 1, block);
    for (Bits32 lane = 0; lane < kLanes; ++lane) {
      const Bits32 bits = lane_bits(here, lane);
      lanes.add(pair(bits, lane_bits(here, lane + 1)));
      blocks.add(pair(bits, lane_bits(next, lane)));
      steps.add(pair(bits, lane_bits(later, lane)));
      states.add(pair(bits, lane_bits(state, lane)));
    }
  }
  EXPECT_LT(lanes.excess(), kGenerous);
  EXPECT_LT(blocks.excess(), kGenerous);
  EXPECT_LT(steps.excess(), kGenerous);
  EXPECT_LT(states.excess(), kGenerous);
}

using Stream = std::array<Bits32, kLanes>;

Stream stream(Bits32 key) {
  Stream s;
  for (Bits32 lane = 0; lane < kLanes; ++lane) s[lane] = lane_bits(key, lane);
  return s;
}

TEST(Random, NoTwoStreamsOfNearbyStepsParametersOrStatesAreEqual) {
  std::set<Stream> seen;
  size_t count = 0;
  for (Bits64 param = 0; param < 8; ++param) {
    for (Bits64 step = 0; step < 64; ++step) {
      for (Bits64 what = 0; what < 7; ++what) {
        for (Bits64 block = 0; block < 4; ++block, ++count) {
          seen.insert(stream(block_key(stream_key(0, param, step, what), block)));
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), count);
}

TEST(Random, StreamsOfAdjacentStepsAgreeNoMoreThanByChanceAtAnyShift) {
  // 200 pairs of 256 lanes at 17 shifts: about 13 of 65,536ths agree by chance.
  int equal = 0;
  for (Bits64 step = 0; step < 200; ++step) {
    const Stream a = stream(block_key(stream_key(0, 1, step, 0), 0));
    const Stream b = stream(block_key(stream_key(0, 1, step + 1, 0), 0));
    for (Bits32 shift = 0; shift < 17; ++shift) {
      for (Bits32 lane = 0; lane + shift < kLanes; ++lane) equal += a[lane] == b[lane + shift];
    }
  }
  EXPECT_LT(equal, 40);
}

TEST(Random, DrawsDependOnNothingButTheirArguments) {
  const Bits64 key = stream_key(3, 1, 4, 1);
  const Stream forward = stream(block_key(key, 5));
  for (Bits64 block = 0; block < 100; ++block) stream(block_key(key + block, block));
  for (Bits32 lane = kLanes; lane-- > 0;) {
    EXPECT_EQ(lane_bits(block_key(key, 5), lane), forward[lane]);
  }
}

}  // namespace
}  // namespace gallop
