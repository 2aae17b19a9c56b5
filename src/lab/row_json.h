// SPDX-License-Identifier: MIT
// Rows as JSON that reads back as the same rows: types, order, infinities and NaN.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lab/row.h"

namespace gallop::lab {

using Json = nlohmann::ordered_json;

// Text without line breaks; bytes that are no UTF-8 become U+FFFD.
std::string dump(const Json& json);

Json exact_json(const Value& value);
Value value_from(const Json& json);

Json config_json(const Row& row);
Json result_json(const Row& row);   // what is not configuration
Json samples_json(const Row& row);  // by field
Row row_from(const Json& config, const Json& result, const Json& samples);

// Of the same length for all: what tells configurations apart.
std::string config_hash(const std::string& kind, const Row& row);

}  // namespace gallop::lab
