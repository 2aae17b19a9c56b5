// SPDX-License-Identifier: MIT
// Codecs whose blocks share a scale, against the formats' definitions in double.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "check/data.h"
#include "core/quantise.h"
#include "cpu/isa.h"

namespace gallop::cpu {
namespace {

constexpr unsigned char kFiller = 0xa5;
constexpr float kInf = std::numeric_limits<float>::infinity();

struct Kind {
  const char* name;
  Storage storage;
  StateFormat format;
  bool nonneg;
};
constexpr Kind kKinds[] = {{"q8", Storage::q8, StateFormat::q8, false},
                           {"q8_nonneg", Storage::q8_nonneg, StateFormat::q8, true},
                           {"bnb8", Storage::bnb8, StateFormat::bnb8, false},
                           {"bnb8_nonneg", Storage::bnb8_nonneg, StateFormat::bnb8, true},
                           {"q4", Storage::q4, StateFormat::q4, false},
                           {"q4_nonneg", Storage::q4_nonneg, StateFormat::q4, true},
                           {"fp8", Storage::fp8, StateFormat::fp8, false}};

class QuantisedCodec : public testing::TestWithParam<Kind> {
 protected:
  // A block's codes and scales with room beyond them that nothing may write.
  struct Memory {
    std::vector<unsigned char> data = std::vector<unsigned char>(kBlock + 64, kFiller);
    std::vector<float> scales = std::vector<float>(8, -7.0f);

    Block block(int n, Bits32 key = 0) { return {data.data(), scales.data(), n, key}; }
    bool operator==(const Memory&) const = default;
  };

  Storage storage() const { return GetParam().storage; }
  bool nonneg() const { return GetParam().nonneg; }
  bool bitsandbytes() const { return is_bitsandbytes(storage()); }
  size_t scale_of(int i) const { return static_cast<size_t>(i / scaled_block(storage())); }

  template <class F>
  void for_each_isa(F f) const {
    for (const Toolkit* t : toolkits()) {
      if (!runs_here(t->isa)) continue;
      SCOPED_TRACE(t->isa);
      f(t->codecs[static_cast<size_t>(storage())]);
    }
  }
  double defined(Memory& m, int i) const {
    StateView v{};
    v.data = m.data.data();
    v.size = kBlock;
    v.format = GetParam().format;
    v.nonneg = nonneg();
    v.scales = m.scales.data();
    v.block = scaled_block(storage());
    return check::read_state(v, i);
  }
  // 0 to 15 or 0 to 255.
  int code(const Memory& m, int i) const {
    const auto at = static_cast<size_t>(i);
    return is_4_bit(storage()) ? m.data[at / 2] >> (at % 2 * 4) & 15 : m.data[at];
  }
  // In the order of what codes stand for.
  int rank(const Memory& m, int i) const {
    const int c = code(m, i);
    switch (storage()) {
      case Storage::q8:
        return c < 128 ? c : c - 256;
      case Storage::q4:
        return c < 8 ? c : c - 16;
      case Storage::fp8:
        return c < 128 ? c : 128 - c;
      default:
        return c;
    }
  }

  // Magnitudes over many decades, below `most`.
  std::vector<float> any_values(float most = 1) {
    std::normal_distribution<float> normal;
    std::vector<float> out(kBlock);
    for (float& x : out) {
      x = normal(random) * std::pow(10.0f, -static_cast<float>(random() % 9));
      x = std::fmin(std::fabs(x) / 8, 1.0f) * (random() % 2 == 0 || nonneg() ? most : -most);
      if (random() % 16 == 0) x = 0;
    }
    return out;
  }
  std::vector<float> loaded(const Codec& codec, Memory& m, int n = kBlock) const {
    std::vector<float> out(kBlock);
    codec.load(m.block(n), out.data());
    return out;
  }

  std::mt19937 random{static_cast<unsigned>(GetParam().storage)};
};

INSTANTIATE_TEST_SUITE_P(Storages, QuantisedCodec, testing::ValuesIn(kKinds),
                         [](const auto& i) { return i.param.name; });

// ---- loading ----

TEST_P(QuantisedCodec, LoadsWhatIsDefinedAndZerosPastTheEnd) {
  for_each_isa([&](const Codec& codec) {
    for (int n = 1; n <= kBlock; ++n) {
      Memory memory;
      for (unsigned char& c : memory.data) {
        c = static_cast<unsigned char>(random());
        if (storage() == Storage::fp8 && (c & 127) == 127) c = 0;  // no number
      }
      for (float& s : memory.scales) s = std::ldexp(1.3f, static_cast<int>(random() % 180) - 90);
      const Memory before = memory;
      std::vector<float> got(kBlock + 16, -7.0f);
      codec.load(memory.block(n), got.data());
      for (int i = 0; i < n; ++i) {
        const double want = defined(memory, i);
        ASSERT_NEAR(got[static_cast<size_t>(i)], want, 1e-6 * std::abs(want)) << n << " " << i;
      }
      for (size_t i = static_cast<size_t>(n); i < kBlock; ++i) ASSERT_EQ(bits_of(got[i]), 0u) << n;
      for (size_t i = kBlock; i < got.size(); ++i) ASSERT_EQ(got[i], -7.0f) << n;
      ASSERT_TRUE(memory == before) << n;
    }
  });
}

// ---- storing ----

TEST_P(QuantisedCodec, StoresNothingPastTheEnd) {
  for_each_isa([&](const Codec& codec) {
    for (int n = 1; n <= kBlock; ++n) {
      Memory memory;
      ASSERT_TRUE(codec.store(memory.block(n, random()), any_values().data()));
      const auto bytes = static_cast<size_t>(bytes_for(storage(), n));
      const auto scales = static_cast<size_t>(scales_for(storage(), n));
      for (size_t i = bytes; i < memory.data.size(); ++i) ASSERT_EQ(memory.data[i], kFiller) << n;
      for (size_t i = scales; i < memory.scales.size(); ++i) ASSERT_EQ(memory.scales[i], -7) << n;
      for (size_t i = 0; i < scales; ++i) ASSERT_GE(memory.scales[i], 0) << n;
      // The half of a byte that no element has.
      if (is_4_bit(storage()) && n % 2 == 1) {
        ASSERT_EQ(memory.data[bytes - 1] >> 4, 0) << n;
      }
    }
  });
}

TEST_P(QuantisedCodec, IsOffByACodesWidthAtMost) {
  for_each_isa([&](const Codec& codec) {
    for (int round = 0; round < 300; ++round) {
      const int n = round % 3 == 0 ? kBlock : 1 + static_cast<int>(random() % kBlock);
      const std::vector<float> values =
          any_values(std::ldexp(1.7f, static_cast<int>(random() % 180) - 90));
      Memory memory;
      ASSERT_TRUE(codec.store(memory.block(n, random()), values.data()));
      const std::vector<float> got = loaded(codec, memory, n);
      for (int i = 0; i < n; ++i) {
        const auto at = static_cast<size_t>(i);
        const double bound = check::stored_within(GetParam().format, nonneg(), values[at],
                                                  memory.scales[scale_of(i)]);
        ASSERT_LE(std::abs(static_cast<double>(got[at]) - values[at]), bound)
            << values[at] << " of " << memory.scales[scale_of(i)] << " became " << got[at];
      }
    }
  });
}

TEST_P(QuantisedCodec, TheScaleIsTheLargestMagnitude) {
  for_each_isa([&](const Codec& codec) {
    for (int n : {1, 127, 128, 129, 255, 256}) {
      const std::vector<float> values = any_values(3);
      Memory memory;
      codec.store(memory.block(n, random()), values.data());
      std::vector<float> most(2, 0.0f);
      for (int i = 0; i < n; ++i) {
        float& m = most[scale_of(i)];
        m = std::fmax(m, std::fabs(values[static_cast<size_t>(i)]));
      }
      for (size_t s = 0; s < static_cast<size_t>(scales_for(storage(), n)); ++s) {
        EXPECT_EQ(memory.scales[s], most[s]) << n;
      }
    }
  });
}

// An extreme of either sign, in any place, at any dither. bitsandbytes has no code for -1.
TEST_P(QuantisedCodec, ABlocksExtremeIsExact) {
  for_each_isa([&](const Codec& codec) {
    for (float most : {1.0f, 0.1f, 3.3e-30f, 1e38f, std::numeric_limits<float>::max()}) {
      for (int round = 0; round < 100; ++round) {
        const float extreme = round % 2 == 0 || nonneg() ? most : -most;
        std::vector<float> values = any_values(most / 2);
        const auto at = random() % kBlock;
        values[at] = extreme;
        Memory memory;
        codec.store(memory.block(kBlock, random()), values.data());
        const float got = loaded(codec, memory)[at];
        if (bitsandbytes() && extreme < 0) {
          EXPECT_NEAR(got / extreme, 0.99296874, 1e-5);
        } else {
          EXPECT_EQ(got, extreme);
        }
      }
    }
  });
}

TEST_P(QuantisedCodec, StoringWhatWasLoadedChangesNothing) {
  for_each_isa([&](const Codec& codec) {
    for (int n = 1; n <= kBlock; ++n) {
      std::vector<float> values =
          any_values(std::ldexp(1.1f, static_cast<int>(random() % 180) - 90));
      if (bitsandbytes()) values[random() % static_cast<unsigned>(n)] = 0x1p100f;
      Memory memory;
      codec.store(memory.block(n, random()), values.data());
      const Memory before = memory;
      for (int round = 0; round < 8; ++round) {
        ASSERT_TRUE(codec.store(memory.block(n, random()), loaded(codec, memory, n).data()));
        ASSERT_TRUE(memory == before) << n;
      }
    }
  });
}

TEST_P(QuantisedCodec, ZerosStayZero) {
  for_each_isa([&](const Codec& codec) {
    for (float zero : {0.0f, -0.0f}) {
      for (int round = 0; round < 20; ++round) {
        Memory memory;
        ASSERT_TRUE(
            codec.store(memory.block(kBlock, random()), std::vector<float>(kBlock, zero).data()));
        EXPECT_EQ(memory.scales[0], 0);
        for (float x : loaded(codec, memory)) ASSERT_EQ(x, 0);
        // Beside others.
        if (bitsandbytes() && std::signbit(zero)) continue;  // there, a -0 is the least negative
        std::vector<float> values(kBlock, zero);
        values[3] = values[200] = 5;
        codec.store(memory.block(kBlock, random()), values.data());
        const std::vector<float> got = loaded(codec, memory);
        for (size_t i = 0; i < kBlock; ++i) ASSERT_EQ(got[i], values[i]) << i;
      }
    }
  });
}

// A largest magnitude that is subnormal cannot be divided by: the block becomes zero.
TEST_P(QuantisedCodec, SubnormalBlocksBecomeZeroAndTheLeastNormalIsKept) {
  for_each_isa([&](const Codec& codec) {
    for (float tiny : {0x1p-149f, 0x1p-130f, std::nextafter(0x1p-126f, 0.0f)}) {
      Memory memory;
      ASSERT_TRUE(
          codec.store(memory.block(kBlock, random()), std::vector<float>(kBlock, tiny).data()));
      EXPECT_EQ(memory.scales[0], 0);
      for (float x : loaded(codec, memory)) ASSERT_EQ(x, 0);
    }
    Memory memory;
    codec.store(memory.block(kBlock, random()), std::vector<float>(kBlock, 0x1p-126f).data());
    for (float x : loaded(codec, memory)) ASSERT_EQ(x, 0x1p-126f);
  });
}

// A second moment that is not zero must not become it: it is divided by.
TEST_P(QuantisedCodec, OwnFormatsOfSecondMomentsKeepTinyValuesApartFromZero) {
  if (bitsandbytes() || (!nonneg() && storage() != Storage::fp8)) return;
  for_each_isa([&](const Codec& codec) {
    for (float tiny : {1e-20f, 1e-30f, 1e-7f}) {
      for (int round = 0; round < 100; ++round) {
        std::vector<float> values(kBlock, tiny);
        values[0] = values[128] = 1;
        Memory memory;
        codec.store(memory.block(kBlock, random()), values.data());
        for (int i = 0; i < kBlock; ++i) ASSERT_GE(code(memory, i), 1) << i;
      }
    }
  });
}

TEST_P(QuantisedCodec, RefusesWhatIsNotFiniteAndLeavesMemoryAlone) {
  for_each_isa([&](const Codec& codec) {
    for (float bad : {NAN, -NAN, kInf, -kInf}) {
      for (int n : {1, 100, 129, 200, 255, 256}) {
        std::vector<float> values = any_values();
        values[random() % static_cast<unsigned>(n)] = bad;
        Memory memory;
        EXPECT_FALSE(codec.store(memory.block(n, random()), values.data())) << n;
        EXPECT_TRUE(memory == Memory()) << n;
        // Past the end it is nobody's.
        if (n == kBlock) continue;
        values = any_values();
        values[static_cast<size_t>(n)] = bad;
        EXPECT_TRUE(codec.store(memory.block(n, random()), values.data())) << n;
      }
    }
  });
}

// ---- dither ----

TEST_P(QuantisedCodec, InstructionSetsAreWithinOneCode) {
  int64_t codes = 0, others = 0;
  for (int round = 0; round < 500; ++round) {
    const std::vector<float> values = any_values(1.9f);
    const Bits32 key = random();
    std::vector<Memory> stored;
    for_each_isa([&](const Codec& codec) {
      stored.emplace_back();
      codec.store(stored.back().block(kBlock, key), values.data());
      ASSERT_EQ(stored.back().scales, stored.front().scales);
      for (int i = 0; i < kBlock; ++i) {
        const int apart = rank(stored.back(), i) - rank(stored.front(), i);
        ASSERT_LE(std::abs(apart), 1) << values[static_cast<size_t>(i)];
        codes += 1;
        others += apart != 0;
      }
    });
  }
  EXPECT_LE(others, codes / 1000);
}

// Over the steps that a tensor sees, the mean is the value; of what is never negative, the mean of
// the codes is its fourth root.
TEST_P(QuantisedCodec, TheMeanOverStepsIsTheValue) {
  if (bitsandbytes()) return;  // rounds to the nearest
  constexpr int kSteps = 4096;
  const bool by_value = storage() == Storage::fp8 || !nonneg();
  const double most = is_4_bit(storage()) ? 15 : 255;
  for_each_isa([&](const Codec& codec) {
    std::vector<float> values = any_values(1);
    values[0] = values[128] = 1;
    std::vector<double> sum(kBlock);
    Memory memory;
    for (int step = 1; step <= kSteps; ++step) {
      const Bits32 dither = dither_of_stream(dither_of(1, 0x123456789abcdefull, step), 1);
      codec.store(memory.block(kBlock, dither), values.data());
      for (int i = 0; i < kBlock; ++i) {
        sum[static_cast<size_t>(i)] +=
            by_value ? defined(memory, i) : static_cast<double>(rank(memory, i));
      }
    }
    for (size_t i = 0; i < kBlock; ++i) {
      const double y = std::abs(values[i]), mean = sum[i] / kSteps;
      if (by_value) {
        const double width = check::stored_within(GetParam().format, false, values[i], 1);
        const bool lifted = storage() == Storage::fp8 && y > 0;
        const double want = lifted ? std::fmax(y, 0x1p-9 / 448) : y;
        ASSERT_NEAR(mean, std::copysign(want, values[i]), 0.01 * width) << i;
      } else {
        const double root = most * std::pow(y, 0.25);
        ASSERT_NEAR(mean, y > 0 ? std::fmax(root, 1.0) : 0, 0.01) << y;
      }
    }
  });
}

// Neighbours and streams are dithered differently: errors of a block cancel too.
TEST_P(QuantisedCodec, TheMeanOverABlockIsNearTheValue) {
  if (bitsandbytes()) return;
  for_each_isa([&](const Codec& codec) {
    std::vector<float> values(kBlock, 0.31f);
    values[0] = values[128] = 1;
    Memory memory;
    codec.store(memory.block(kBlock, random()), values.data());
    double sum = 0, codes = 0;
    for (int i = 1; i < 128; ++i) {
      sum += defined(memory, i);
      codes += rank(memory, i);
    }
    double low = 1e9, high = -1e9;
    for (int i = 1; i < 128; ++i) {
      low = std::fmin(low, rank(memory, i));
      high = std::fmax(high, rank(memory, i));
    }
    EXPECT_EQ(high - low, 1);
    if (storage() == Storage::fp8 || !nonneg()) {
      const double width = check::stored_within(GetParam().format, false, 0.31, 1);
      EXPECT_NEAR(sum / 127, 0.31, 0.03 * width);
    } else {
      EXPECT_NEAR(codes / 127, (is_4_bit(storage()) ? 15 : 255) * std::pow(0.31, 0.25), 0.03);
    }
  });
}

}  // namespace
}  // namespace gallop::cpu
