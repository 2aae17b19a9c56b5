// SPDX-License-Identifier: MIT
#include "lab/page/page.h"

#include <algorithm>
#include <string_view>

#include "lab/page/sources.h"

namespace gallop::lab {
namespace {

std::string_view source(std::string_view path) {
  const auto all = page::sources();
  const auto at =
      std::find_if(all.begin(), all.end(), [&](const page::Source& s) { return s.path == path; });
  return at == all.end() ? std::string_view() : at->text;
}

// JSON within a script element: no tag may begin in it.
std::string harmless(std::string text) {
  size_t at = 0;
  while ((at = text.find('<', at)) != std::string::npos) text.replace(at, 1, "\\u003c");
  return text;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

}  // namespace

std::string page_html(const Json& data) {
  std::string out;
  std::string_view rest = source("page.html");
  while (!rest.empty()) {
    const size_t open = rest.find("{{"), close = rest.find("}}");
    out += rest.substr(0, open);
    if (open == std::string_view::npos) break;
    const std::string_view name = rest.substr(open + 2, close - open - 2);
    if (name == "title") {
      out += escaped(data.at("title"));
    } else if (name == "data") {
      out += harmless(dump(data));
    } else {
      out += source(name);
    }
    rest.remove_prefix(close + 2);
  }
  return out;
}

}  // namespace gallop::lab
