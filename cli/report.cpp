// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include "cli/common.h"
#include "gallop/error.h"
#include "io/atomic_file.h"
#include "lab/page/page.h"
#include "lab/store.h"

namespace gallop::cli {
namespace {

struct ReportFlags {
  std::string store, path = "report.html";
  lab::PageOptions page;
};

void run(const ReportFlags& f) {
  const std::string path = f.store.empty() ? lab::default_store() : f.store;
  const lab::Store store(path, lab::Store::Access::read);
  const lab::Json data = lab::page_data(store, f.page);
  if (store.runs({}).empty()) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("{} has no results yet, expected some of a race, bench or suite", path));
  }
  const std::string html = lab::page_html(data);
  io::write_file_atomically(f.path, html);
  fmt::print("wrote {} ({:.0f} kB, {} sections): open it in a browser\n", f.path,
             static_cast<double>(html.size()) / 1e3, data.at("sections").size());
}

}  // namespace

void add_report(CLI::App& app) {
  auto f = std::make_shared<ReportFlags>();
  CLI::App* report = app.add_subcommand(
      "report",
      "Results as a page: races with their curves, suites, memory, rooflines. One file that needs\n"
      "no network.");
  report->add_option("-o,--out", f->path, "The file to write")
      ->type_name("FILE")
      ->capture_default_str();
  report->add_option("--db", f->store, "The results store; default: the user's")->type_name("FILE");
  report
      ->add_option("--run", f->page.runs,
                   "Only these runs (see gallop history); default: the newest of every kind")
      ->type_name("NUMBER")
      ->delimiter(',');
  report->add_option("--title", f->page.title, "Of the page")->capture_default_str();
  report->callback([f] { run(*f); });
}

}  // namespace gallop::cli
