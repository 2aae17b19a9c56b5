// SPDX-License-Identifier: MIT
#include "lab/adamw_8bit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "bench/statistics.h"
#include "bench/train_bench.h"
#include "data/corpus.h"
#include "data/loader.h"
#include "data/synthetic.h"
#include "gallop/error.h"
#include "lab/figures.h"
#include "lab/progress.h"
#include "lab/signals.h"

namespace gallop::lab {
namespace {

constexpr int64_t kValidation = 8;  // batches

std::vector<bench::TrainCase> cases(const Adamw8bitOptions& o, const std::string& model,
                                    int64_t batch) {
  bench::TrainAxes axes;
  axes.models = {model};
  if (o.context > 0) axes.contexts = {o.context};
  axes.batches = {batch};
  axes.precisions = {o.precision};
  axes.modes = {o.mode};
  axes.optimizers = {o.optimizer};
  axes.states = o.states;
  axes.warmups = {o.warmup};
  axes.device = o.device;
  axes.threads = o.threads;
  axes.seed = o.seed;
  return bench::train_cases(axes);
}

Row throughput(const Adamw8bitOptions& o, const std::string& model, int64_t batch,
               const std::vector<Row>& measured) {
  Row row;
  row.set("part", "throughput").set("model", model);
  row.set("context", *measured[0].find("context")).set("batch", batch).end_config();
  std::string status = "ok", message;
  for (size_t i = 0; i < measured.size(); ++i) {
    const Row& m = measured[i];
    const std::string& state = o.states[i];
    if (text(m, "status") != "ok") {
      if (status == "ok") status = text(m, "status"), message = text(m, "message");
      continue;
    }
    // By the mean, as a run of that many steps would have it.
    const auto tokens = [](const Row& r) {
      return 1e3 * *number(r, "batch") * *number(r, "context") / *number(r, "total_ms");
    };
    row.set(state + "_tokens_per_s", tokens(m));
    if (i > 0 && text(measured[0], "status") == "ok") {
      row.set(state + "_difference_percent", 100 * (tokens(m) / tokens(measured[0]) - 1));
      row.set(state + "_noise_percent", 100 * std::hypot(noise(m), noise(measured[0])));
    }
    row.set(state + "_optimizer_ms", *m.find("optimizer_ms"));
    row.set(state + "_peak_mb", *m.find("peak_mb"));
    row.set("gradient_error", *m.find("gradient_error")).set("steps", *m.find("steps"));
  }
  row.set("status", status);
  if (!message.empty()) row.set("message", message);
  return row;
}

Row memory(const Row& first, const Row& measured, int64_t batch) {
  const double mb = *number(measured, "state_mb");
  Row row;
  row.set("part", "memory").set("model", *measured.find("model"));
  row.set("state", *measured.find("state")).set("batch", batch).end_config();
  row.set("million_parameters", *number(measured, "parameters") * 1e-6);
  row.set("state_mb", mb);
  row.set("bytes_per_parameter", mb * (1 << 20) / *number(measured, "parameters"));
  row.set("saved_percent", 100 * (1 - mb / *number(first, "state_mb")));
  row.set("peak_mb", *measured.find("peak_mb")).set("status", "ok");
  return row;
}

struct Run {
  double first = 0, train = 0, validation = 0;
};

Run train(gpt::TrainerOptions options, const Adamw8bitOptions& o, const data::Corpus& corpus,
          Progress& progress) {
  options.batch = o.train_batch;
  options.hyper = {{"lr", o.lr}};
  gpt::Trainer trainer(options);
  data::LoaderOptions windows{o.train_batch, options.time, options.seed, 0, 2};
  data::Loader loader(corpus, windows);
  const int64_t counted = std::max<int64_t>(1, o.train_steps / 10);
  Run run;
  for (int64_t step = 0; step < o.train_steps; ++step) {
    trainer.step(std::span(&loader.next(), 1));
    const double loss = trainer.loss();
    if (step == 0) run.first = loss;
    if (step >= o.train_steps - counted) run.train += loss / static_cast<double>(counted);
    progress.advance(o.train_batch, "training");
  }
  const auto held_out = data::validation_batches(corpus, o.train_batch, options.time, kValidation);
  for (const data::Batch& b : held_out) {
    run.validation += trainer.evaluate(b) / static_cast<double>(held_out.size());
  }
  return run;
}

Row loss_row(const bench::TrainCase& c, const Adamw8bitOptions& o, const data::Corpus& corpus,
             Progress& progress) {
  Row row;
  row.set("part", "loss").set("model", c.model).set("state", c.state);
  row.set("train_steps", o.train_steps).set("batch", o.train_batch).set("runs", o.runs);
  row.end_config();
  try {
    std::vector<double> first, last, validation;
    for (int64_t i = 0; i < o.runs; ++i) {
      gpt::TrainerOptions options = c.options;
      options.seed = o.seed + static_cast<uint64_t>(i);
      const Run run = train(options, o, corpus, progress);
      first.push_back(run.first);
      last.push_back(run.train);
      validation.push_back(run.validation);
    }
    row.set("first_loss", bench::mean(first)).set("train_loss", bench::mean(last));
    row.set("validation_loss", bench::mean(validation));
    if (o.runs > 1) row.set("validation_std", bench::stddev(validation));
    row.set("status", "ok");
  } catch (const Error& e) {
    row.set("status", e.code() == ErrorCode::out_of_memory ? "oom"
                      : e.code() == ErrorCode::unsupported ? "unsupported"
                                                           : "error");
    row.set("message", e.what());
  }
  if (const auto* made_up = dynamic_cast<const data::SyntheticCorpus*>(&corpus)) {
    row.set("lowest_loss", made_up->lowest_loss(c.options.time));
  }
  return row;
}

void add_differences(std::vector<Row>& rows, const std::string& base) {
  for (Row& row : rows) {
    for (const Row& other : rows) {
      if (text(other, "model") != text(row, "model") || text(other, "state") != base) continue;
      const auto a = number(row, "validation_loss"), b = number(other, "validation_loss");
      if (a && b && &row != &other) row.set("loss_difference", *a - *b);
    }
  }
}

void check_options(const Adamw8bitOptions& o, const data::Corpus& corpus) {
  if (o.states.empty() || o.batches.empty() || o.models.empty()) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("{} models, {} batch sizes and {} states, expected at least one of each",
                    o.models.size(), o.batches.size(), o.states.size()));
  }
  if (o.optimizer == "none") {
    throw Error(ErrorCode::invalid_argument,
                "optimizer none has no state, expected a rule that has");
  }
  for (const std::string& model : o.models) {
    const int64_t vocabulary = gpt::parse_model(model).vocabulary;
    if (o.train_steps == 0 || corpus.vocabulary() <= vocabulary) continue;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} has a vocabulary of {}, expected at least the data's {}", model,
                            vocabulary, corpus.vocabulary()));
  }
}

}  // namespace

std::vector<std::string> read_throughput(const std::vector<Row>& rows,
                                         const std::vector<std::string>& states) {
  std::vector<std::string> notes;
  for (size_t i = 1; i < states.size(); ++i) {
    int count = 0, slower = 0, faster = 0;
    double least = std::numeric_limits<double>::infinity(), most = -least;
    for (const Row& row : rows) {
      const auto difference = number(row, states[i] + "_difference_percent");
      if (!difference) continue;
      ++count;
      least = std::min(least, *difference);
      most = std::max(most, *difference);
      if (std::abs(*difference) <= *number(row, states[i] + "_noise_percent")) continue;
      ++(*difference < 0 ? slower : faster);
    }
    if (count == 0) continue;
    notes.push_back(fmt::format(
        "{} state against {}: {:+.1f} to {:+.1f} % tokens a second; beyond the noise slower in {} "
        "and faster in {} of {} rows",
        states[i], states[0], least, most, slower, faster, count));
  }
  return notes;
}

std::vector<std::string> read_loss(const std::vector<Row>& rows, const std::string& base) {
  std::vector<std::string> notes;
  for (const Row& row : rows) {
    const auto difference = number(row, "loss_difference");
    if (!difference) continue;
    const auto spread = number(row, "validation_std");
    const std::string judged =
        !spread ? "one run cannot tell that from chance"
        : std::abs(*difference) <= 2 * *spread / std::sqrt(*number(row, "runs"))
            ? "within what seeds change"
            : "more than what seeds change";
    notes.push_back(
        fmt::format("{} after {} steps: validation loss with {} state is {:+.4f} of "
                    "{}'s, {}",
                    text(row, "model"), *number(row, "train_steps"), text(row, "state"),
                    *difference, base, judged));
  }
  return notes;
}

std::vector<Table> adamw_8bit(const Adamw8bitOptions& o) {
  const auto corpus = data::open_corpus(o.data, {.vocabulary = 0, .seed = o.seed});
  check_options(o, *corpus);
  std::vector<Table> tables(3);
  const auto states = static_cast<int64_t>(o.states.size());
  const auto sequences = [&](int64_t batch) { return states * (o.warmup + o.steps) * batch; };
  int64_t all = states * o.runs * o.train_steps * o.train_batch;
  for (const int64_t batch : o.batches) all += sequences(batch);
  Progress progress("suite adamw-8bit", static_cast<int64_t>(o.models.size()) * all);
  bench::TrainBench bench({o.steps, o.time_limit_s});
  for (const std::string& model : o.models) {
    for (const int64_t batch : o.batches) {
      if (Signals::asked()) break;
      const std::vector<Row> rows = bench.run_together(cases(o, model, batch));
      tables[0].rows.push_back(throughput(o, model, batch, rows));
      progress.advance(sequences(batch), fmt::format("{}, batch {}", model, batch));
      if (batch != o.batches.front() || text(rows[0], "status") != "ok") continue;
      for (const Row& row : rows) {
        if (text(row, "status") == "ok") tables[1].rows.push_back(memory(rows[0], row, batch));
      }
    }
    if (o.train_steps == 0) continue;
    for (const bench::TrainCase& c : cases(o, model, o.train_batch)) {
      if (Signals::asked()) break;
      tables[2].rows.push_back(loss_row(c, o, *corpus, progress));
    }
  }
  add_differences(tables[2].rows, o.states[0]);

  tables[0].title = fmt::format("{} by format of its state: tokens a second, {}, {}, {}",
                                o.optimizer, o.precision, o.mode, to_string(o.device));
  tables[0].columns = {"model", "batch", o.states[0] + "_tokens_per_s"};
  for (size_t i = 1; i < o.states.size(); ++i) {
    for (const char* f : {"_tokens_per_s", "_difference_percent", "_noise_percent"}) {
      tables[0].columns.push_back(o.states[i] + f);
    }
  }
  tables[0].columns.emplace_back("status");
  tables[0].notes = read_throughput(tables[0].rows, o.states);
  tables[0].notes.push_back(fmt::format(
      "{} steps after {} of warm-up, a step of each in turns; noise is two standard errors of a "
      "difference of means; every kind was checked against fp64 first",
      o.steps, o.warmup));
  for (const Row& row : tables[0].rows) {
    if (!text(row, "message").empty()) {
      tables[0].notes.push_back(fmt::format("batch {}: {}: {}", *number(row, "batch"),
                                            text(row, "status"), text(row, "message")));
    }
  }
  tables[1].title = "Memory";
  tables[1].columns = {
      "model",         "state",  "million_parameters", "state_mb", "bytes_per_parameter",
      "saved_percent", "peak_mb"};
  tables[1].notes.push_back(fmt::format("peak_mb is at batch {}", o.batches.front()));
  tables[2].title = fmt::format("Loss after {} steps of batch {} on {}", o.train_steps,
                                o.train_batch, corpus->describe());
  tables[2].columns = {"model",           "state",           "first_loss",  "train_loss",
                       "validation_loss", "loss_difference", "lowest_loss", "status"};
  if (o.runs > 1) tables[2].columns.insert(tables[2].columns.begin() + 5, "validation_std");
  tables[2].notes = read_loss(tables[2].rows, o.states[0]);
  tables[2].notes.emplace_back(
      "train_loss is the mean of the last tenth of the steps; all states see the same batches");
  std::erase_if(tables, [](const Table& t) { return t.rows.empty(); });
  return tables;
}

}  // namespace gallop::lab
