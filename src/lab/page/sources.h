// SPDX-License-Identifier: MIT
// What pages are made of, from this folder and the chart library; generated at build.
#pragma once

#include <span>
#include <string_view>

namespace gallop::lab::page {

struct Source {
  std::string_view path, text;
};
std::span<const Source> sources();

}  // namespace gallop::lab::page
