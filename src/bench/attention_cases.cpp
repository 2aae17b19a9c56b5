// SPDX-License-Identifier: MIT
// What bench attention is asked for.
#include <fmt/format.h>

#include "bench/attention_bench.h"

namespace gallop::bench {
namespace {

gpt::Attention parse_attention(const std::string& text) {
  for (const gpt::Attention a : {gpt::Attention::naive, gpt::Attention::fused}) {
    if (text == attention_name(a)) return a;
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("attention '{}', expected naive or fused", text));
}

template <class T>
void require_some(const char* axis, const std::vector<T>& values) {
  if (!values.empty()) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("no {} to run with, expected at least one", axis));
}

void require_positive(const char* axis, const std::vector<int64_t>& values) {
  require_some(axis, values);
  for (const int64_t v : values) {
    if (v >= 1) continue;
    throw Error(ErrorCode::invalid_argument, fmt::format("{} {}, expected at least 1", axis, v));
  }
}

std::vector<int64_t> doubled(int64_t first, int64_t last) {
  std::vector<int64_t> out;
  for (int64_t v = first; v <= last; v *= 2) out.push_back(v);
  return out;
}

}  // namespace

AttentionAxes attention_grid(std::string_view name) {
  AttentionAxes axes;
  if (name == "seed") {
    axes.sequences = doubled(16, 128);
    axes.widths = {256, 1024, 4096, 8192, 16384};
  } else if (name == "cs336") {
    axes.sequences = {256, 1024, 4096, 8192, 16384};
    axes.widths = doubled(16, 128);
  } else if (name == "flash") {
    axes.batches = {1};
    axes.sequences = doubled(128, 65536);
    axes.widths = doubled(16, 128);
    axes.precisions = {"bf16", "fp32"};
  } else {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("grid '{}', expected seed, cs336 or flash", name));
  }
  return axes;
}

std::vector<AttentionCase> attention_cases(const AttentionAxes& axes) {
  require_positive("batch", axes.batches);
  require_positive("heads", axes.heads);
  require_positive("sequence", axes.sequences);
  require_positive("width", axes.widths);
  require_some("precision", axes.precisions);
  require_some("attention", axes.attentions);
  std::vector<AttentionCase> out;
  AttentionCase c;
  for (const std::string& precision : axes.precisions) {
    c.compute = gpt::parse_compute(precision);
    for (const int64_t batch : axes.batches) {
      for (const int64_t heads : axes.heads) {
        for (const int64_t width : axes.widths) {
          for (const int64_t sequence : axes.sequences) {
            c.shape = {batch, heads, sequence, width};
            for (const std::string& attention : axes.attentions) {
              c.how = parse_attention(attention);
              out.push_back(c);
            }
          }
        }
      }
    }
  }
  return out;
}

}  // namespace gallop::bench
