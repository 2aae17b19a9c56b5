// SPDX-License-Identifier: MIT
#include "lab/page/parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include "lab/figures.h"
#include "lab/report_formats.h"

namespace gallop::lab {
namespace {

Json figures_json(std::span<const double> values) {
  Json out = Json::array();
  for (const double v : values) out.push_back(figure_json(v));
  return out;
}

// What a reader sorts by, and what is read; null where there is nothing.
Json cell(const Value* value, const std::string& text) {
  if (value == nullptr || std::holds_alternative<std::monostate>(*value)) return nullptr;
  if (const auto* n = std::get_if<int64_t>(value)) return {*n, text};
  if (const auto* d = std::get_if<double>(value)) {
    return {std::isinf(*d) ? Json(*d > 0 ? 1e308 : -1e308) : figure_json(*d), text};
  }
  return text;
}

bool is_config(const Row& row, std::string_view name) {
  const auto end = row.begin() + static_cast<std::ptrdiff_t>(row.config_size());
  return std::any_of(row.begin(), end, [&](const Row::Field& f) { return f.first == name; });
}

}  // namespace

Json figure_json(double value) {
  if (!std::isfinite(value)) return nullptr;
  return std::stod(fmt::format("{:.6g}", value));
}

Json table_part(const Table& table) {
  const std::vector<Column> columns = human_columns(table);
  Json heads = Json::array(), rows = Json::array();
  for (const Column& c : columns) heads.push_back({{"name", c.name}, {"numeric", c.numeric}});
  for (size_t i = 0; i < table.rows.size(); ++i) {
    Json row = Json::array();
    for (const Column& c : columns) row.push_back(cell(table.rows[i].find(c.name), c.cells[i]));
    rows.push_back(std::move(row));
  }
  return {{"kind", "table"},
          {"title", table.title},
          {"columns", heads},
          {"rows", rows},
          {"notes", table.notes}};
}

Json interval_part(const std::string& title, const std::string& unit, bool from_zero,
                   const std::vector<Bar>& bars) {
  Json list = Json::array();
  for (const Bar& b : bars) {
    list.push_back({{"name", b.name},
                    {"middle", figure_json(b.middle)},
                    {"low", figure_json(b.low)},
                    {"high", figure_json(b.high)},
                    {"samples", figures_json(b.samples)}});
  }
  return {
      {"kind", "intervals"}, {"title", title}, {"unit", unit}, {"zero", from_zero}, {"bars", list}};
}

Json curve_part(const std::string& title, const Axes& axes, const std::vector<Curve>& curves,
                const std::string& note) {
  Json list = Json::array();
  for (const Curve& c : curves) {
    list.push_back({{"name", c.name},
                    {"x", figures_json(c.x)},
                    {"middle", figures_json(c.middle)},
                    {"low", figures_json(c.low)},
                    {"high", figures_json(c.high)}});
  }
  return {{"kind", "curves"},    {"title", title}, {"x", axes.x}, {"y", axes.y},
          {"log_x", axes.log_x}, {"curves", list}, {"note", note}};
}

std::vector<std::string> labels_of(const std::vector<Row>& rows) {
  std::vector<std::string> telling;
  for (const std::string& name : field_names({{}, rows, {}, {}})) {
    const bool config = std::all_of(rows.begin(), rows.end(), [&](const Row& r) {
      return r.find(name) == nullptr || is_config(r, name);
    });
    const bool differs = std::any_of(rows.begin(), rows.end(), [&](const Row& r) {
      const Value *mine = r.find(name), *first = rows[0].find(name);
      return (mine == nullptr) != (first == nullptr) || (mine != nullptr && *mine != *first);
    });
    if (config && differs) telling.push_back(name);
  }
  std::vector<std::string> out;
  for (const Row& row : rows) {
    std::vector<std::string> words;
    for (const std::string& name : telling) {
      const Value* value = row.find(name);
      if (value == nullptr || std::holds_alternative<std::monostate>(*value)) continue;
      const bool is_text = std::holds_alternative<std::string>(*value);
      words.push_back(is_text ? std::get<std::string>(*value)
                              : fmt::format("{} {}", name, human_value(*value)));
    }
    out.push_back(fmt::format("{}", fmt::join(words, ", ")));
  }
  return out;
}

Json memory_part(const std::vector<Row>& rows) {
  constexpr const char* kClasses[] = {"parameters",  "gradients", "state",
                                      "activations", "logits",    "workspace"};
  std::vector<Row> with;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(with),
               [](const Row& r) { return number(r, "state_mb") && number(r, "activations_mb"); });
  if (with.empty()) return nullptr;
  Json series = Json::array();
  for (const char* name : kClasses) {
    std::vector<double> values;
    values.reserve(with.size());
    for (const Row& r : with) values.push_back(number(r, fmt::format("{}_mb", name)).value_or(0));
    if (std::all_of(values.begin(), values.end(), [](double v) { return v == 0; })) continue;
    series.push_back({{"name", name}, {"values", figures_json(values)}});
  }
  return {{"kind", "stacked"},
          {"title", "Memory at the highest point of a step"},
          {"unit", "MB"},
          {"labels", labels_of(with)},
          {"series", series}};
}

Json roofline_part(const std::vector<Row>& rows) {
  Json points = Json::array();
  std::vector<Row> with;
  for (const Row& r : rows) {
    if (number(r, "bytes_per_element") && number(r, "elements") && number(r, "median_ms") &&
        number(r, "ceiling_gb_per_s").value_or(0) > 0) {
      with.push_back(r);
    }
  }
  if (with.empty()) return nullptr;
  const std::vector<std::string> labels = labels_of(with);
  for (size_t i = 0; i < with.size(); ++i) {
    const Row& r = with[i];
    const double bytes = *number(r, "bytes_per_element") * *number(r, "elements");
    const double roof_ms = bytes / *number(r, "ceiling_gb_per_s") / 1e6;
    points.push_back({{"name", labels[i]},
                      {"group", text(r, "optimizer")},
                      {"mb", figure_json(bytes / 1e6)},
                      {"ms", figure_json(*number(r, "median_ms"))},
                      {"roof_ms", figure_json(roof_ms)}});
  }
  return {{"kind", "roofline"},
          {"title", "Time of a step over the bytes it moves"},
          {"points", points}};
}

Json heat_part(const std::vector<Row>& rows) {
  std::vector<double> counts, sizes;
  std::map<std::pair<double, double>, double> ratio;
  for (const Row& r : rows) {
    const auto count = number(r, "num_params"), size = number(r, "param_size");
    const auto slow = number(r, "unfused_ms"), fast = number(r, "multi_ms");
    if (!count || !size || !slow || !fast || *fast <= 0) continue;
    counts.push_back(*count), sizes.push_back(*size);
    ratio[{*count, *size}] = *slow / *fast;
  }
  if (ratio.size() < 2) return nullptr;
  const auto unique = [](std::vector<double>& v) {
    std::sort(v.begin(), v.end());
    v.erase(std::unique(v.begin(), v.end()), v.end());
  };
  unique(counts), unique(sizes);
  Json cells = Json::array();
  for (const double count : counts) {
    Json line = Json::array();
    for (const double size : sizes) {
      const auto at = ratio.find({count, size});
      line.push_back(at == ratio.end() ? Json() : figure_json(at->second));
    }
    cells.push_back(std::move(line));
  }
  return {{"kind", "heat"},
          {"title", "How many times as fast as one pass for each operation"},
          {"down", "tensors"},
          {"across", "elements in each"},
          {"rows", figures_json(counts)},
          {"columns", figures_json(sizes)},
          {"cells", cells}};
}

}  // namespace gallop::lab
