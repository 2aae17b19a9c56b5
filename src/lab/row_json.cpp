// SPDX-License-Identifier: MIT
#include "lab/row_json.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "jit/cache.h"

namespace gallop::lab {
namespace {

// JSON has no number for what is not finite.
constexpr const char* kNotFinite = "double";

Json number_json(double x) {
  if (std::isfinite(x)) return x;
  return {{kNotFinite, std::isnan(x) ? "nan" : x > 0 ? "inf" : "-inf"}};
}

double number_from(const Json& json) {
  if (!json.is_object()) return json.get<double>();
  const std::string text = json.at(kNotFinite).get<std::string>();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  return text == "inf" ? inf : -inf;
}

Json fields_json(const Row& row, bool config) {
  Json out = Json::object();
  size_t at = 0;
  for (const auto& [name, value] : row) {
    if ((at++ < row.config_size()) == config) out[name] = exact_json(value);
  }
  return out;
}

}  // namespace

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json exact_json(const Value& value) {
  if (const auto* x = std::get_if<double>(&value)) return number_json(*x);
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* whole = std::get_if<int64_t>(&value)) return *whole;
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  return nullptr;
}

Value value_from(const Json& json) {
  if (json.is_null()) return {};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_string()) return json.get<std::string>();
  return number_from(json);
}

Json config_json(const Row& row) { return fields_json(row, true); }

Json result_json(const Row& row) { return fields_json(row, false); }

Json samples_json(const Row& row) {
  Json out = Json::object();
  for (const auto& [name, values] : row.samples()) {
    Json list = Json::array();
    for (const double x : values) list.push_back(number_json(x));
    out[name] = std::move(list);
  }
  return out;
}

Row row_from(const Json& config, const Json& result, const Json& samples) {
  Row row;
  for (const auto& [name, value] : config.items()) row.set(name, value_from(value));
  row.end_config();
  for (const auto& [name, value] : result.items()) row.set(name, value_from(value));
  for (const auto& [name, values] : samples.items()) {
    std::vector<double> list;
    for (const Json& x : values) list.push_back(number_from(x));
    row.keep_samples(name, std::move(list));
  }
  return row;
}

std::string config_hash(const std::string& kind, const Row& row) {
  constexpr size_t kDigits = 16;
  return jit::digest(kind + '\n' + dump(config_json(row))).substr(0, kDigits);
}

}  // namespace gallop::lab
