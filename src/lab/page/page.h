// SPDX-License-Identifier: MIT
// The report: results of a store as one HTML file that needs nothing else, no network either.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/row_json.h"
#include "lab/store.h"

namespace gallop::lab {

struct PageOptions {
  std::string title = "gallop report";
  std::vector<int64_t> runs;  // empty: the newest of every kind
  bool live = false;          // asks its server for news
};

// What the page shows, for its script: sections, each of parts (see parts.h). `running` is a
// section of a race under way, or null.
Json page_data(const Store& store, const PageOptions& options, const Json& running = {});

// The same where there is no store yet.
Json page_data_without_store(const PageOptions& options, const Json& running = {});

std::string page_html(const Json& data);

}  // namespace gallop::lab
