// SPDX-License-Identifier: MIT
#include "jit/unit.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <regex>
#include <utility>

#include "gallop/error.h"
#include "jit/sources.h"

namespace gallop::jit {
namespace fs = std::filesystem;
namespace {

std::optional<std::string> read(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in) return std::nullopt;
  return text;
}

const Source* embedded(std::string_view path) {
  for (const Source& s : sources()) {
    if (path == s.path) return &s;
  }
  return nullptr;
}

std::string_view trimmed(std::string_view s) {
  const size_t first = s.find_first_not_of(" \t\r");
  return first == std::string_view::npos ? "" : s.substr(first);
}

// What a line includes in quotes; or nothing.
std::string included_by(std::string_view line) {
  line = trimmed(line);
  if (line.empty() || line.front() != '#') return "";
  line = trimmed(line.substr(1));
  constexpr std::string_view kWord = "include";
  if (!line.starts_with(kWord)) return "";
  line = trimmed(line.substr(kWord.size()));
  if (line.empty() || line.front() != '"') return "";
  line = line.substr(1);
  const size_t end = line.find('"');
  return end == std::string_view::npos ? "" : std::string(line.substr(0, end));
}

bool is_pragma_once(std::string_view line) {
  line = trimmed(line);
  return line.starts_with("#pragma once");
}

std::string escaped(std::string_view path) {
  std::string out;
  for (const char c : path) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

RuleText rule_text(std::string path, std::string folder, std::string text) {
  RuleText rule;
  rule.name = fs::path(path).stem().string();
  rule.path = std::move(path);
  rule.folder = std::move(folder);
  rule.text = std::move(text);
  static const std::regex begins("^struct +([A-Za-z_][A-Za-z0-9_]*)");
  size_t at = 0;
  for (int line = 1; at < rule.text.size(); ++line) {
    const size_t end = std::min(rule.text.find('\n', at), rule.text.size());
    std::smatch found;
    const std::string one = rule.text.substr(at, end - at);
    if (std::regex_search(one, found, begins)) {
      rule.type = found[1];
      rule.line = line;
      return rule;
    }
    at = end + 1;
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: no line begins with 'struct', expected the rule's struct in "
                          "namespace gallop::rules (see docs/own-rule.md)",
                          rule.path));
}

RuleText read_rule_file(const std::string& path) {
  std::optional<std::string> text = read(path);
  if (!text) {
    std::error_code error;
    throw Error(ErrorCode::io,
                fmt::format("rule file '{}' {}, expected a C++ header that holds a rule", path,
                            fs::exists(path, error) ? "cannot be read" : "does not exist"));
  }
  std::string folder = fs::path(path).parent_path().string();
  return rule_text(path, folder.empty() ? "." : folder, std::move(*text));
}

const RuleText* built_in_rule(std::string_view name) {
  static const std::map<std::string, RuleText, std::less<>> all = [] {
    std::map<std::string, RuleText, std::less<>> out;
    for (const Source& s : sources()) {
      if (!std::string_view(s.path).starts_with("rules/")) continue;
      RuleText rule = rule_text(s.path, "", s.text);
      out.emplace(rule.name, std::move(rule));
    }
    return out;
  }();
  const auto it = all.find(name);
  return it == all.end() ? nullptr : &it->second;
}

Unit::Unit(const RuleText& rule) {
  include("core/rule.h");  // whatever the file forgets
  included_[rule.path] = true;
  add(rule.path, rule.folder, rule.text);
  // In words, at the struct's line, before templates say it in theirs.
  include("core/rule_parts.h");
  constexpr std::pair<const char*, const char*> kParts[] = {
      {"name", "has no text 'name'"},
      {"about", "has no text 'about'"},
      {"formula", "has no text 'formula'"},
      {"hyper", "has no struct 'Hyper' with its hyper-parameters and their defaults"},
      {"knobs", "has no list 'knobs' that names its hyper-parameters"},
      {"states", "has no list 'states' of what it keeps for each element"},
      {"coefs", "has no struct template 'Coef' of what is the same for all elements"},
      {"coef", "has no function 'coef' that computes its Coef<double>"}};
  for (const auto& [part, missing] : kParts) {
    line(fmt::format("#line {} \"{}\"", rule.line, escaped(rule.path)));
    line(fmt::format("static_assert(gallop::parts::{}<gallop::rules::{}>, \"{} {}\");", part,
                     rule.type, rule.type, missing));
  }
}

void Unit::include(const std::string& header) {
  if (std::exchange(included_[header], true)) return;
  const Source* s = embedded(header);
  if (s == nullptr) {
    throw Error(ErrorCode::unsupported,
                fmt::format("this build of gallop does not hold its header '{}'", header));
  }
  add("gallop/" + header, "", s->text);
}

void Unit::line(std::string_view text) {
  text_ += text;
  text_ += '\n';
}

void Unit::function(std::string_view signature, std::string_view body) {
  line(fmt::format("extern \"C\" __attribute__((visibility(\"default\"))) {} {{ {} }}", signature,
                   body));
}

void Unit::add(const std::string& shown, const std::string& folder, std::string_view text) {
  const auto resume = [&](int number) {
    line(fmt::format("#line {} \"{}\"", number, escaped(shown)));
  };
  resume(1);
  int number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view one = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    const std::string wanted = included_by(one);
    if (!wanted.empty() && embedded(wanted) != nullptr) {
      include(wanted);
      resume(number + 1);
      continue;
    }
    if (!wanted.empty() && !folder.empty()) {
      const fs::path path = fs::path(folder) / wanted;
      if (const auto theirs = read(path)) {
        if (!std::exchange(included_[path.lexically_normal().string()], true)) {
          add(path.string(), path.parent_path().string(), *theirs);
        }
        resume(number + 1);
        continue;
      }
    }
    line(is_pragma_once(one) ? "" : one);
  }
}

}  // namespace gallop::jit
