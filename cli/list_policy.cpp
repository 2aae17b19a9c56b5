// SPDX-License-Identifier: MIT
#include "cli/list_policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <tuple>

#include "gallop/optimizer.h"

namespace gallop::cli {
namespace {

// An optimizer over one parameter for what it says, not for steps: none of its memory is touched.
Optimizer optimizer_over(const bench::Shape& shape, const std::string& rule,
                         const StatePolicy& policy) {
  double element = 0;
  Options options;
  options.threads = 1;
  Optimizer o(rule, options);
  GroupOptions group;
  group.state = policy;
  o.add_group({{shape.name, shape.dims, &element, nullptr, DType::f32, DType::f32, shape.role}},
              group);
  return o;
}

int64_t bytes_of(const Optimizer& o) {
  int64_t bytes = 0;
  for (const StateView& v : o.states(0)) {
    bytes += v.bytes + v.scale_count() * int64_t{sizeof(float)};
  }
  return bytes;
}

// The format of most of its states, and those that have another by name.
std::string formats_of(const Optimizer& o) {
  const std::vector<StateView> states = o.states(0);
  if (states.empty()) return "no state";
  StateFormat most = states[0].format;
  for (const StateView& v : states) {
    if (v.format == o.state_format(0)) most = v.format;
  }
  std::string text(to_string(most));
  for (const StateView& v : states) {
    if (v.format != most) text += fmt::format(", {} {}", v.name, to_string(v.format));
  }
  return text;
}

// Why all states are fp32 although another format was chosen; or nothing.
enum class Kept { no, exact, rows };
Kept kept_fp32(const Optimizer& o) {
  if (o.state_format(0) == StateFormat::f32) return Kept::no;
  bool exact = true;
  for (const StateView& v : o.states(0)) {
    if (v.format != StateFormat::f32) return Kept::no;
    for (const StateInfo& s : o.rule().states) exact = exact && (s.name != v.name || s.exact);
  }
  return o.states(0).empty() ? Kept::no : exact ? Kept::exact : Kept::rows;
}

// Layers differ in their numbers.
std::string pattern_of(const std::string& name) {
  std::string out;
  for (char c : name) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (!digit) {
      out += c;
    } else if (out.empty() || out.back() != '*') {
      out += '*';
    }
  }
  return out;
}

struct Alike {
  std::string pattern, role, shape, format;
  std::string name;  // of the first
  int64_t count = 0, elements = 0, bytes = 0, fp32_bytes = 0;
  int64_t moved = 0, fp32_moved = 0;  // by a step
  auto key() const { return std::tie(pattern, role, shape, format); }
  void add(const Alike& a) {
    count += a.count;
    elements += a.elements;
    bytes += a.bytes;
    fp32_bytes += a.fp32_bytes;
    moved += a.moved;
    fp32_moved += a.fp32_moved;
  }
};

lab::Row row_of(const Alike& a) {
  lab::Row row;
  row.set("parameters", a.count == 1 ? a.name : a.pattern).set("count", a.count);
  row.set("role", a.role).set("shape", a.shape).set("elements", a.elements);
  row.set("state", a.format).set("state_bytes", a.bytes);
  row.set("saved_bytes", a.fp32_bytes - a.bytes);
  return row;
}

void add_totals(const Alike& total, lab::Table& table) {
  const auto mb = [](int64_t bytes) { return static_cast<double>(bytes) * 1e-6; };
  const int64_t saved = total.fp32_bytes - total.bytes;
  table.notes.push_back(fmt::format(
      "state: {:.1f} MB, in fp32 {:.1f} MB: {:.1f} MB saved ({:.1f} %)", mb(total.bytes),
      mb(total.fp32_bytes), mb(saved), saved == 0 ? 0 : 100 * mb(saved) / mb(total.fp32_bytes)));
  const auto per_parameter = [&](int64_t bytes) {
    return static_cast<double>(bytes) / static_cast<double>(total.elements);
  };
  table.notes.push_back(fmt::format(
      "a step moves {:.2f} bytes per parameter, with fp32 state {:.2f} (fp32 parameters and "
      "gradients)",
      per_parameter(total.moved), per_parameter(total.fp32_moved)));
}

}  // namespace

lab::Table policy_table(const std::string& text, const bench::ShapeList& shapes,
                        const std::string& optimizer) {
  const StatePolicy policy = parse_state_policy(text);
  std::vector<Alike> groups;
  Alike total;
  total.pattern = total.name = "all";
  int64_t exact = 0, unfit = 0;
  for (const bench::Shape& s : shapes.shapes) {
    const Optimizer chosen = optimizer_over(s, optimizer, policy),
                    fp32 = optimizer_over(s, optimizer, StateFormat::f32);
    Alike one{pattern_of(s.name), std::string(to_string(s.role)),
              fmt::format("{}", fmt::join(s.dims, "x")), formats_of(chosen), s.name};
    const auto at = std::find_if(groups.begin(), groups.end(),
                                 [&](const Alike& g) { return g.key() == one.key(); });
    Alike& group = at == groups.end() ? groups.emplace_back(one) : *at;
    one.count = 1;
    one.elements = s.elements();
    one.bytes = bytes_of(chosen);
    one.fp32_bytes = bytes_of(fp32);
    one.moved = chosen.bytes_per_step();
    one.fp32_moved = fp32.bytes_per_step();
    group.add(one);
    total.add(one);
    exact += kept_fp32(chosen) == Kept::exact;
    unfit += kept_fp32(chosen) == Kept::rows;
  }
  lab::Table table;
  table.title = fmt::format("{} over {}, state policy {}", optimizer, shapes.label, text);
  for (const Alike& a : groups) table.rows.push_back(row_of(a));
  table.rows.push_back(row_of(total));
  add_totals(total, table);
  if (text != to_string(policy)) {
    table.notes.push_back(
        fmt::format("in full, the first that fits decides: {}", to_string(policy)));
  }
  if (exact > 0) {
    table.notes.push_back(fmt::format(
        "{} parameters keep fp32 state in any policy: {} has no other for them", exact, optimizer));
  }
  if (unfit > 0) {
    table.notes.push_back(fmt::format(
        "{} parameters keep fp32 state in any policy: {} works by rows, and theirs are no multiple "
        "of 256 elements long",
        unfit, optimizer));
  }
  return table;
}

}  // namespace gallop::cli
