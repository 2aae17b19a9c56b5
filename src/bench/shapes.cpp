// SPDX-License-Identifier: MIT
#include "bench/shapes.h"

#include <fmt/format.h>

#include <charconv>
#include <fstream>
#include <sstream>

#include "gallop/error.h"

namespace gallop::bench {
namespace {

constexpr int64_t kVocabulary = 49280, kContext = 2048;

[[noreturn]] void invalid(const std::string& what) {
  throw Error(ErrorCode::invalid_argument, what);
}

// "12x768" as numbers above 0; empty when it is not that.
std::vector<int64_t> parse_dims(std::string_view text) {
  std::vector<int64_t> dims;
  while (true) {
    int64_t d = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), d);
    if (error != std::errc() || d <= 0 || d > int64_t{1} << 40) return {};
    dims.push_back(d);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (text.empty()) return dims;
    if (text[0] != 'x') return {};
    text.remove_prefix(1);
  }
}

ShapeList gpt2(const std::string& text) {
  const std::vector<int64_t> dims = parse_dims(std::string_view(text).substr(5));
  if (dims.size() != 2 || dims[0] > 1000 || dims[1] > 100000) {
    invalid(fmt::format("shapes '{}', expected gpt2:LAYERSxWIDTH such as gpt2:12x768", text));
  }
  const int64_t layers = dims[0], e = dims[1];
  using enum Role;
  ShapeList list{
      text,
      {{"wte.weight", {kVocabulary, e}, embedding}, {"wpe.weight", {kContext, e}, embedding}}};
  for (int64_t l = 0; l < layers; ++l) {
    const auto add = [&](const char* name, std::vector<int64_t> d, Role role) {
      list.shapes.push_back({fmt::format("h.{}.{}", l, name), std::move(d), role});
    };
    add("ln_1.weight", {e}, norm);
    add("ln_1.bias", {e}, norm);
    add("attn.c_attn.weight", {e, 3 * e}, hidden);
    add("attn.c_attn.bias", {3 * e}, bias);
    add("attn.c_proj.weight", {e, e}, hidden);
    add("attn.c_proj.bias", {e}, bias);
    add("ln_2.weight", {e}, norm);
    add("ln_2.bias", {e}, norm);
    add("mlp.c_fc.weight", {e, 4 * e}, hidden);
    add("mlp.c_fc.bias", {4 * e}, bias);
    add("mlp.c_proj.weight", {4 * e, e}, hidden);
    add("mlp.c_proj.bias", {e}, bias);
  }
  list.shapes.push_back({"ln_f.weight", {e}, norm});
  list.shapes.push_back({"ln_f.bias", {e}, norm});
  return list;
}

}  // namespace

int64_t Shape::elements() const {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

int64_t ShapeList::elements() const {
  int64_t n = 0;
  for (const Shape& s : shapes) n += s.elements();
  return n;
}

ShapeList equal_tensors(int64_t count, int64_t size) {
  ShapeList list{fmt::format("{}x{}", count, size), {}};
  for (int64_t i = 0; i < count; ++i) list.shapes.push_back({fmt::format("t{}", i), {size}});
  return list;
}

ShapeList parse_shapes(const std::string& text) {
  if (text.starts_with("gpt2:")) return gpt2(text);
  std::ifstream file(text);
  if (!file) {
    invalid(fmt::format("shapes '{}': no such file, expected gpt2:LAYERSxWIDTH or a file", text));
  }
  ShapeList list{text, {}};
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name, dims, role, extra;
    if (!(words >> name)) continue;
    words >> dims >> role >> extra;
    list.shapes.push_back({name, parse_dims(dims), role.empty() ? Role::other : parse_role(role)});
    if (list.shapes.back().dims.empty() || !extra.empty()) {
      invalid(fmt::format("{}:{}: '{}', expected a name, a shape such as 768x3072, perhaps a role",
                          text, number, line));
    }
  }
  if (list.shapes.empty()) invalid(fmt::format("{} names no tensor", text));
  return list;
}

}  // namespace gallop::bench
