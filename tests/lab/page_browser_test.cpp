// SPDX-License-Identifier: MIT
// The page in headless Chromium.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "folder.h"
#include "io/atomic_file.h"
#include "lab/page/page.h"
#include "lab/page/parts.h"

namespace gallop::lab {
namespace {

using testing::HasSubstr;
using testing::Not;

Json some_page() {
  Row a, b, c;
  a.set("optimizer", "bravo").end_config().set("loss", 2.0);
  b.set("optimizer", "alpha").end_config().set("loss", 30.0);
  c.set("optimizer", "delta").end_config().set("loss", 10.0);
  const Json heat = {{"kind", "heat"},
                     {"title", "H"},
                     {"down", "tensors"},
                     {"across", "elements"},
                     {"rows", {1, 2}},
                     {"columns", {1, 2}},
                     {"cells", {{1, 2}, {3, nullptr}}}};
  const Json stacked = {{"kind", "stacked"},
                        {"title", "M"},
                        {"unit", "MB"},
                        {"labels", {"x", "y"}},
                        {"series", {{{"name", "state"}, {"values", {1, 2}}}}}};
  const Json roofline = {
      {"kind", "roofline"},
      {"title", "R"},
      {"points", {{{"name", "p"}, {"group", "g"}, {"mb", 1}, {"ms", 2}, {"roof_ms", 1}}}}};
  const Json parts = {
      table_part({"Standing", {a, b, c}, {"a note"}, {}}),
      interval_part("I", "s", true, {{"bravo", 2, 1, 3, {1, 2, 3}}, {"lost", NAN, NAN, NAN, {}}}),
      curve_part("C", {"steps", "loss"}, {{"bravo", {1, 2}, {3, 2}, {2, 1}, {4, 3}}}, "note"),
      heat,
      stacked,
      roofline};
  return {{"title", "A report"},
          {"made", "now"},
          {"version", "0"},
          {"live", false},
          {"sections", {{{"title", "One"}, {"group", "race"}, {"parts", parts}}}}};
}

struct Seen {
  int exit_code = 0;
  std::string dom, log;
};

std::string contents(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

Seen browse(const test::Folder& folder, const std::string& html) {
  io::write_file_atomically(folder / "page.html", html);
  const std::string out = folder / "dom", log = folder / "log";
  const std::string command =
      "timeout 60 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage "
      "--no-first-run --disable-background-networking --disable-component-update --disable-sync "
      "--enable-logging=stderr --virtual-time-budget=3000 --dump-dom --user-data-dir=" +
      (folder / "profile") + " file://" + (folder / "page.html") + " >" + out + " 2>" + log;
  Seen seen;
  seen.exit_code = std::system(command.c_str());
  seen.dom = contents(out), seen.log = contents(log);
  return seen;
}

class PageInBrowser : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("chromium --version >/dev/null 2>&1") != 0) {
      GTEST_SKIP() << "SKIPPED: there is no chromium that starts";
    }
  }
  const test::Folder folder_;
};

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) ++n;
  return n;
}

TEST_F(PageInBrowser, DrawsEverythingWithoutAComplaintAndSortsOnAClick) {
  std::string html = page_html(some_page());
  const std::string click =
      "<script>for (const n of [1, 0]) { document.querySelectorAll('section thead button')[n]"
      ".click(); document.body.insertAdjacentText('beforeend', 'ORDER:' + [...document"
      ".querySelectorAll('section .part tbody tr td:first-child')].map((c) => c.textContent)"
      ".join() + ';'); }\ndocument.querySelector('#theme').click();</script></body>";
  html.replace(html.rfind("</body>"), 7, click);
  const Seen seen = browse(folder_, html);
  ASSERT_EQ(seen.exit_code, 0) << seen.log;
  EXPECT_THAT(seen.log, Not(HasSubstr("CONSOLE"))) << seen.log;
  EXPECT_THAT(seen.dom, HasSubstr("<h1>A report</h1>"));
  EXPECT_THAT(seen.dom, HasSubstr("ORDER:bravo,delta,alpha;ORDER:alpha,bravo,delta;"));
  EXPECT_THAT(seen.dom, HasSubstr("aria-sort=\"ascending\""));
  EXPECT_THAT(seen.dom, HasSubstr("data-theme=\"dark\""));
  EXPECT_THAT(seen.dom, HasSubstr("a note"));
  EXPECT_THAT(seen.dom, HasSubstr("3.0×"));
  // Charts that were drawn have a size of their own.
  EXPECT_EQ(count(seen.dom, "<canvas role=\"img\""), 4U);
  EXPECT_EQ(count(seen.dom, "style=\"display: block;"), 4U);
}

TEST_F(PageInBrowser, SaysWhereThereIsNothing) {
  Json empty = some_page();
  empty["sections"] = Json::array();
  const Seen seen = browse(folder_, page_html(empty));
  ASSERT_EQ(seen.exit_code, 0) << seen.log;
  EXPECT_THAT(seen.log, Not(HasSubstr("CONSOLE"))) << seen.log;
  EXPECT_THAT(seen.dom, HasSubstr("No results yet"));
}

}  // namespace
}  // namespace gallop::lab
