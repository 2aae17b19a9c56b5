// SPDX-License-Identifier: MIT
// Fused attention in fp32: blocks own more rows where there are many.
#include <gtest/gtest.h>

#include <vector>

#include "core/random.h"
#include "cuda/gpu.h"
#include "gpt/config.h"
#include "gpt/ops.h"

namespace gallop::gpt {
namespace {

class Flash : public test::GpuTest {
 protected:
  struct Result {
    std::vector<float> out, dqkv;
  };

  // Of so many sequences; element i of all of them is the same however many there are.
  static Result attention(int64_t batch, int64_t time, int64_t width) {
    const Config config = parse_model("nano:heads=1:width=" + std::to_string(width));
    const std::unique_ptr<Ops> ops = gpu_ops(config, {});
    const AttentionShape shape{batch, 1, time, width};
    const int64_t rows = batch * time;
    std::vector<void*> memory;
    const auto tensor = [&](int64_t r, int64_t columns, uint64_t seed) {
      Tensor t{nullptr, DType::f32, r, columns};
      memory.push_back(ops->allocate(t.bytes()));
      t.data = memory.back();
      if (seed == 0) return t;
      std::vector<float> values(static_cast<size_t>(t.elements()));
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(combine(seed, i) >> 40) * 0x1p-23f - 1;
      }
      ops->upload(t.data, values.data(), t.bytes());
      return t;
    };
    const auto extent = [&](const Extent& e) { return tensor(e.rows, e.columns, 0); };
    const Tensor qkv = tensor(rows, 3 * width, 1), dout = tensor(rows, width, 2);
    const Tensor out = tensor(rows, width, 0), dqkv = tensor(rows, 3 * width, 0);
    const Tensor saved = extent(ops->attention_saved(Attention::fused, shape, DType::f32));
    const auto scratch = [&](bool back) {
      const Extent e = ops->attention_scratch(Attention::fused, shape, DType::f32, back);
      return e.rows == 0 ? Tensor{} : extent(e);
    };
    ops->attention(Attention::fused, shape, qkv, out, saved, scratch(false));
    ops->attention_backward(Attention::fused, shape, qkv, out, saved, dout, dqkv, scratch(true));
    Result r;
    const auto read = [&](const Tensor& t) {
      std::vector<float> values(static_cast<size_t>(t.elements()));
      ops->download(values.data(), t.data, t.bytes());
      return values;
    };
    r.out = read(out), r.dqkv = read(dqkv);
    for (void* m : memory) ops->release(m);
    return r;
  }

  static void expect_begins_with(const std::vector<float>& many, const std::vector<float>& few) {
    ASSERT_GT(many.size(), few.size());
    for (size_t i = 0; i < few.size(); ++i) ASSERT_EQ(many[i], few[i]) << i;
  }
};

TEST_F(Flash, GivesARowTheSameBitsHoweverManyThereAre) {
  // From 512 blocks of 64 rows on, blocks are that large.
  for (const auto& [time, width] : {std::pair<int64_t, int64_t>{67, 24}, {9, 64}}) {
    const Result few = attention(3, time, width);
    const Result many = attention(512, time, width);
    expect_begins_with(many.out, few.out);
    expect_begins_with(many.dqkv, few.dqkv);
  }
}

}  // namespace
}  // namespace gallop::gpt
