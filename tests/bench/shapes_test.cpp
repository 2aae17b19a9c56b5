// SPDX-License-Identifier: MIT
#include "bench/shapes.h"

#include <gtest/gtest.h>

#include <fstream>

#include "folder.h"
#include "gallop/error.h"

namespace gallop::bench {
namespace {

// The shapes that a file of this text says.
ShapeList of_file(const std::string& text) {
  const test::Folder folder;
  const std::string path = folder / "shapes.txt";
  std::ofstream(path) << text;
  return parse_shapes(path);
}

template <class Read>
std::string refusal(Read read, const std::string& text) {
  try {
    read(text);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Shapes, OfGpt2HaveTheirRoles) {
  const ShapeList list = parse_shapes("gpt2:2x64");
  ASSERT_EQ(list.shapes.size(), 2u + 2 * 12 + 2);
  int hidden = 0;
  for (const Shape& s : list.shapes) {
    const bool embedding = s.name.starts_with("w"), norm = s.name.find("ln_") != std::string::npos;
    const bool matrix = s.name.starts_with("h.") && s.dims.size() == 2;
    EXPECT_EQ(s.role == Role::embedding, embedding) << s.name;
    EXPECT_EQ(s.role == Role::norm, norm) << s.name;
    EXPECT_EQ(s.role == Role::hidden, matrix) << s.name;
    hidden += s.role == Role::hidden ? 1 : 0;
  }
  EXPECT_EQ(hidden, 8);
}

TEST(Shapes, OfAFileMaySayWhatTheyAre) {
  const ShapeList list = of_file("a 3x4\n# nothing\nb 5 bias # a comment\n\nc 6x7 hidden\n");
  ASSERT_EQ(list.shapes.size(), 3u);
  EXPECT_EQ(list.shapes[0].role, Role::other);
  EXPECT_EQ(list.shapes[1].role, Role::bias);
  EXPECT_EQ(list.shapes[2].role, Role::hidden);
  EXPECT_EQ(list.elements(), 12 + 5 + 42);
}

TEST(Shapes, WrongLinesAreNamed) {
  EXPECT_NE(refusal(of_file, "a 3x4 wheel\n").find("role 'wheel' is unknown"), std::string::npos);
  EXPECT_NE(refusal(of_file, "ok 3\nb 3y4\n").find(":2: 'b 3y4'"), std::string::npos);
  EXPECT_NE(refusal(of_file, "b 3x4 bias more\n").find("perhaps a role"), std::string::npos);
  EXPECT_NE(refusal(of_file, "# empty\n").find("names no tensor"), std::string::npos);
  EXPECT_NE(refusal(parse_shapes, "gpt2:12").find("gpt2:LAYERSxWIDTH"), std::string::npos);
}

}  // namespace
}  // namespace gallop::bench
