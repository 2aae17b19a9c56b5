// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gallop/types.h"

namespace gallop::bench {

struct Shape {
  std::string name;
  std::vector<int64_t> dims;
  Role role = Role::other;
  int64_t elements() const;
};

// A list of tensors to step over, and what to call it.
struct ShapeList {
  std::string label;
  std::vector<Shape> shapes;
  int64_t elements() const;
};

ShapeList equal_tensors(int64_t count, int64_t size);

// "gpt2:12x768": GPT-2 with 12 layers, 768 wide, vocabulary 49280, context 2048, tied embedding.
// Otherwise a file with one tensor a line, "name 768x3072", with its role behind if it has one; #
// begins a comment.
ShapeList parse_shapes(const std::string& text);

}  // namespace gallop::bench
