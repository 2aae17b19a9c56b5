// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "core/convert.h"
#include "cpu/isa.h"

namespace gallop::cpu {
namespace {

constexpr unsigned char kFiller = 0xa5;

const char* const kNames[] = {"f32",           "f64",
                              "bf16_nearest",  "bf16_stochastic",
                              "f16_nearest",   "f16_stochastic",
                              "bf16_master",   "f16_master",
                              "bf16_remainder"};

bool is_f16(Storage s) {
  return s == Storage::f16_nearest || s == Storage::f16_stochastic || s == Storage::f16_master;
}

// Storage for one block with room beyond it that nothing may write.
struct Memory {
  std::vector<unsigned char> data, low;

  Memory(const Codec& codec)  // NOLINT(google-explicit-constructor)
      : data(static_cast<size_t>(codec.data_bytes) + 64, kFiller),
        low(codec.low_bytes == 0 ? 0 : static_cast<size_t>(codec.low_bytes) + 64, kFiller) {}
  Block block(int n, Bits32 key = 0) {
    return {data.data(), low.empty() ? nullptr : low.data(), n, key};
  }
  bool operator==(const Memory&) const = default;
  bool untouched_past(int n, const Codec& codec) const {
    const auto clean = [n](const std::vector<unsigned char>& bytes, int of_block) {
      for (size_t i = static_cast<size_t>(n * of_block / kBlock); i < bytes.size(); ++i) {
        if (bytes[i] != kFiller) return false;
      }
      return true;
    };
    return clean(data, codec.data_bytes) && clean(low, codec.low_bytes);
  }
};

template <class T>
void put(std::vector<unsigned char>& bytes, int i, T value) {
  std::memcpy(bytes.data() + static_cast<size_t>(i) * sizeof value, &value, sizeof value);
}

// Any fp32 but NaN, all exponents alike, with zeros and infinities among them.
float any_float(std::mt19937& random) {
  const Bits32 special[] = {0, 0x80000000u, 0x7f800000u, 0xff800000u, 0x7f7fffffu, 1u};
  if (random() % 16 == 0) return float_of(special[random() % 6]);
  const Bits32 exponent = random() % 255;
  return float_of((random() & 0x807fffffu) | exponent << 23);
}

// What a value of any storage looks like, and which fp32 it stands for.
float put_stored(Storage s, Memory& m, int i, std::mt19937& random) {
  const float x = any_float(random);
  const Half high = is_f16(s) ? to_f16_nearest(x) : to_bf16_nearest(x);
  switch (s) {
    case Storage::f32:
      put(m.data, i, x);
      return x;
    case Storage::f64:
      return 0;
    case Storage::bf16_nearest:
    case Storage::bf16_stochastic:
      put(m.data, i, high);
      return from_bf16(high);
    case Storage::f16_nearest:
    case Storage::f16_stochastic:
      put(m.data, i, high);
      return from_f16(high);
    case Storage::bf16_master:
    case Storage::f16_master:
      put(m.data, i, high);
      put(m.low, i, x);
      return x;
    case Storage::bf16_remainder: {
      const SplitFloat parts = split_float(x);
      put(m.data, i, parts.bf16);
      put(m.low, i, parts.remainder);
      return x;
    }
    default:  // see quantised_codec_test.cpp
      return 0;
  }
}

class CodecOf : public testing::TestWithParam<int> {
 protected:
  // Calls f(isa, codec) for every instruction set that runs here.
  template <class F>
  void for_each_isa(F f) const {
    for (const Toolkit* t : toolkits()) {
      if (!runs_here(t->isa)) continue;
      SCOPED_TRACE(t->isa);
      f(t->codecs[GetParam()]);
    }
  }
  Storage storage() const { return static_cast<Storage>(GetParam()); }
  std::mt19937 random{static_cast<unsigned>(GetParam())};
};

// All but fp64, which is read and written in place, and those that share scales.
INSTANTIATE_TEST_SUITE_P(Storages, CodecOf, testing::Values(0, 2, 3, 4, 5, 6, 7, 8),
                         [](const auto& i) { return kNames[i.param]; });

TEST_P(CodecOf, LoadsWhatIsStoredAndZerosPastTheEnd) {
  for_each_isa([&](const Codec& codec) {
    for (int n = 1; n <= kBlock; ++n) {
      Memory memory(codec);
      std::vector<float> want(kBlock, 0.0f), got(kBlock + 16, -7.0f);
      for (int i = 0; i < n; ++i) {
        want[static_cast<size_t>(i)] = put_stored(storage(), memory, i, random);
      }
      const Memory before = memory;
      codec.load(memory.block(n), got.data());
      for (size_t i = 0; i < kBlock; ++i) ASSERT_EQ(bits_of(got[i]), bits_of(want[i])) << n << i;
      for (size_t i = kBlock; i < got.size(); ++i) ASSERT_EQ(got[i], -7.0f) << n;
      ASSERT_TRUE(memory == before) << n;
    }
  });
}

TEST_P(CodecOf, StoringWhatWasLoadedChangesNothing) {
  for_each_isa([&](const Codec& codec) {
    for (int n = 1; n <= kBlock; ++n) {
      Memory memory(codec);
      for (int i = 0; i < n; ++i) put_stored(storage(), memory, i, random);
      const Memory before = memory;
      std::vector<float> values(kBlock);
      codec.load(memory.block(n), values.data());
      codec.store(memory.block(n, random()), values.data());
      ASSERT_TRUE(memory == before) << n;
    }
  });
}

TEST_P(CodecOf, StoresNothingPastTheEnd) {
  for_each_isa([&](const Codec& codec) {
    for (int n = 1; n <= kBlock; ++n) {
      Memory memory(codec);
      std::vector<float> values(kBlock);
      for (float& v : values) v = any_float(random);
      codec.store(memory.block(n, random()), values.data());
      ASSERT_TRUE(memory.untouched_past(n, codec)) << n;
      ASSERT_FALSE(memory.untouched_past(n - 1, codec)) << n;
    }
  });
}

TEST_P(CodecOf, GivesTheSameBitsOnEveryInstructionSet) {
  for (int n : {1, 7, 8, 15, 16, 17, 63, 64, 255, 256}) {
    for (int round = 0; round < 100; ++round) {
      std::vector<float> values(kBlock);
      for (float& v : values) v = any_float(random);
      values[0] = NAN;
      const Bits32 key = random();
      std::vector<Memory> stored;
      for_each_isa([&](const Codec& codec) {
        stored.emplace_back(codec);
        codec.store(stored.back().block(n, key), values.data());
        ASSERT_TRUE(stored.back() == stored.front()) << n;
      });
    }
  }
}

TEST_P(CodecOf, KeepsNan) {
  for_each_isa([&](const Codec& codec) {
    for (Bits32 nan : {0x7f800001u, 0x7fffffffu, 0xffc00000u, 0x7f80ffffu}) {
      Memory memory(codec);
      std::vector<float> values(kBlock, float_of(nan));
      codec.store(memory.block(kBlock, random()), values.data());
      codec.load(memory.block(kBlock), values.data());
      for (float v : values) ASSERT_TRUE(std::isnan(v)) << nan;
      // What the model computes with is NaN too.
      if (codec.data_bytes == 2 * kBlock) {
        Half h;
        std::memcpy(&h, memory.data.data(), sizeof h);
        ASSERT_TRUE(std::isnan(is_f16(storage()) ? from_f16(h) : from_bf16(h))) << nan;
      }
    }
  });
}

// A quarter of the way between two values: a quarter of the elements go up, others in another
// block.
TEST(StochasticCodec, RoundsUpInProportionAndDifferentlyInEveryBlock) {
  for (const Toolkit* t : toolkits()) {
    if (!runs_here(t->isa)) continue;
    for (Storage s : {Storage::bf16_stochastic, Storage::f16_stochastic}) {
      const Codec& codec = t->codecs[static_cast<size_t>(s)];
      const Half one = is_f16(s) ? 0x3c00 : 0x3f80;
      const float spacing = is_f16(s) ? 0x1p-10f : 0x1p-7f;
      const std::vector<float> values(kBlock, 1 + spacing / 4);
      int up = 0, same_as_before = 0;
      std::vector<Half> before(kBlock);
      for (Bits64 block = 0; block < 1000; ++block) {
        Memory memory(codec);
        codec.store(memory.block(kBlock, block_key(1, block)), values.data());
        std::vector<Half> stored(kBlock);
        std::memcpy(stored.data(), memory.data.data(), kBlock * sizeof(Half));
        for (Half h : stored) {
          ASSERT_TRUE(h == one || h == one + 1);
          up += h != one;
        }
        same_as_before += stored == before;
        before = stored;
      }
      // 256,000 draws: six standard deviations are 1314.
      EXPECT_NEAR(up, 64000, 1314) << t->isa;
      EXPECT_EQ(same_as_before, 0) << t->isa;
    }
  }
}

}  // namespace
}  // namespace gallop::cpu
