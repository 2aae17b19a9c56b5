// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <filesystem>

#include "cli/common.h"
#include "lab/page/page.h"
#include "lab/page/server.h"
#include "lab/race_live.h"
#include "lab/signals.h"
#include "lab/store.h"

namespace gallop::cli {
namespace {

struct ServeFlags {
  std::string store, folder = "race-trials";
  lab::PageOptions page{"gallop", {}, true};
  lab::ServerOptions server{"127.0.0.1", 7420, {}, {}};
};

lab::Json data_of(const ServeFlags& f) {
  const std::string path = f.store.empty() ? lab::default_store() : f.store;
  const lab::Json running = lab::running_race(f.folder);
  // A race that is under way may be the first to make a store.
  if (!std::filesystem::exists(path)) return lab::page_data_without_store(f.page, running);
  return lab::page_data(lab::Store(path, lab::Store::Access::read), f.page, running);
}

void run(ServeFlags& f) {
  lab::ServerOptions& s = f.server;
  s.html = [&] { return lab::page_html(data_of(f)); };
  s.json = [&] { return lab::dump(data_of(f)); };
  s.ready = [&](int port) {
    const bool six = s.address.find(':') != std::string::npos;
    fmt::print("http://{}{}{}:{}/ shows results, and a race in {} as it runs; ctrl-C ends it\n",
               six ? "[" : "", s.address, six ? "]" : "", port, f.folder);
    if (!lab::is_loopback(s.address)) {
      fmt::print("whoever reaches {} can read them\n", s.address);
    }
    std::fflush(stdout);
  };
  const lab::Signals signals;
  s.stop = [] { return lab::Signals::asked(); };
  data_of(f);  // what is wrong with the store shows now
  lab::serve(s);
}

}  // namespace

void add_serve(CLI::App& app) {
  auto f = std::make_shared<ServeFlags>();
  CLI::App* serve = app.add_subcommand(
      "serve",
      "The report as a page that follows a running race, for browsers on this machine; it changes\n"
      "nothing.");
  serve->add_option("--port", f->server.port, "0: any that is free")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  serve->add_option("--address", f->server.address, "0.0.0.0: for every machine that reaches this")
      ->capture_default_str();
  serve->add_option("--folder", f->folder, "Of the race to follow, as of gallop race")
      ->type_name("DIR")
      ->capture_default_str();
  serve->add_option("--db", f->store, "The results store; default: the user's")->type_name("FILE");
  serve->callback([f] { run(*f); });
}

}  // namespace gallop::cli
