// SPDX-License-Identifier: MIT
#include "bench/compare.h"
#include "lab/race_table.h"

namespace gallop::lab {

Table tuning(const RaceOptions& o, const RaceResult& result) {
  Table table;
  table.title = "Tuning";
  for (const Standing& s : result.standings) {
    const Racer& racer = o.racers[s.racer];
    for (size_t c = 0; c < racer.candidates.size(); ++c) {
      std::vector<double> values, lowest;
      int64_t spikes = 0, diverged = 0;
      for (const Finished& f : s.tuned) {
        if (f.entry.candidate != c) continue;
        values.push_back(figure(o, f.result));
        lowest.push_back(f.result.best_validation());
        spikes += f.result.spikes;
        diverged += f.result.end == TrialEnd::diverged ? 1 : 0;
      }
      if (values.empty()) continue;
      Row row;
      row.set("workload", o.workloads[s.workload].name).set("optimizer", racer.name);
      row.set("tried", settings_text(racer.candidates[c])).set("steps", o.base.steps).end_config();
      row.set(figure_name(o.goal), bench::median_with_misses(values));
      row.set("lowest_loss", bench::median_with_misses(lowest));
      row.set("spikes", spikes).set("diverged", diverged);
      row.set("chosen", s.best == c ? "yes" : "");
      table.rows.push_back(std::move(row));
    }
  }
  if (o.workloads.size() > 1) table.columns.emplace_back("workload");
  for (const char* name :
       {"optimizer", "tried", figure_name(o.goal), "lowest_loss", "spikes", "diverged", "chosen"}) {
    table.columns.emplace_back(name);
  }
  return table;
}

}  // namespace gallop::lab
