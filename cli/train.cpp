// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>

#include "cli/common.h"
#include "cli/train_options.h"
#include "cli/train_report.h"
#include "gallop/error.h"
#include "gpt/hugging_face.h"
#include "gpt/run.h"
#include "gpt/sample.h"
#include "gpt/trace.h"
#include "lab/signals.h"

namespace gallop::cli {
namespace {

constexpr int kDiverged = 3;

[[noreturn]] void invalid(const std::string& what) {
  throw Error(ErrorCode::invalid_argument, what);
}

std::vector<int32_t> prompt_tokens(const TrainOptions& s, const data::Corpus& corpus) {
  const std::string text = s.prompt.value_or(corpus.bytes() ? "\n" : "0");
  if (text.empty()) invalid("--prompt '', expected at least one token");
  std::vector<int32_t> tokens;
  if (corpus.bytes()) {
    for (const char letter : text) tokens.push_back(static_cast<unsigned char>(letter));
    return tokens;
  }
  for (const std::string& word : CLI::detail::split(text, ' ')) {
    int32_t token = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), token);
    if (error != std::errc() || end != word.data() + word.size()) {
      invalid(
          fmt::format("--prompt '{}', expected numbers of tokens for data that are no text", text));
    }
    tokens.push_back(token);
  }
  return tokens;
}

std::string sampled(TrainOptions& s, gpt::Trainer& trainer, const data::Corpus& corpus) {
  s.sample.seed = s.where.seed;
  std::vector<int32_t> tokens = prompt_tokens(s, corpus);
  const std::vector<int32_t> more = gpt::sample(trainer.model(), tokens, s.sample);
  tokens.insert(tokens.end(), more.begin(), more.end());
  if (!corpus.bytes()) return fmt::format("{}", fmt::join(tokens, " "));
  return printable(std::string(tokens.begin(), tokens.end()));
}

// What is made of a model that was trained: all with the same parameters.
std::string use(TrainOptions& s, gpt::Trainer& trainer, const data::Corpus& corpus) {
  std::string text;
  gpt::while_evaluating(trainer, [&] {
    gpt::Model& model = trainer.model();
    if (!s.export_file.empty()) gpt::export_hugging_face(s.export_file, model);
    if (!s.dump_file.empty()) {
      data::LoaderOptions l{trainer.options().batch, trainer.options().time};
      l.seed = s.run.data_seed;
      l.min_length = s.run.min_length;
      l.ahead = 0;
      gpt::dump_hugging_face(s.dump_file, model, data::Loader(corpus, l).next());
    }
    if (s.sample.tokens > 0) text = sampled(s, trainer, corpus);
  });
  return text;
}

// Why the run did not come to its end, and the exit code.
int explain(const TrainOptions& s, const gpt::RunResult& r) {
  const int64_t step = r.progress.step;
  const bool saved = !s.run.checkpoint.empty();
  if (r.end == gpt::RunResult::End::stopped) {
    fmt::print(stderr, "gallop: stopped after step {} of {}; {}\n", step, s.run.steps,
               saved ? fmt::format("{} has it, --resume goes on", s.run.checkpoint)
                     : "nothing was saved without --checkpoint");
    return kInterrupted;
  }
  const bool before = saved && std::filesystem::exists(s.run.checkpoint);
  fmt::print(stderr, "gallop: the loss of step {} is {}, expected a number (try a lower --lr){}\n",
             step, r.progress.loss,
             before ? fmt::format("; {} is from before", s.run.checkpoint) : "");
  return kDiverged;
}

// The first steps' trace, written as soon as they are done.
class FirstSteps {
 public:
  FirstSteps(const TrainOptions& s, const gpt::TrainerOptions& options) : path_(s.trace) {
    if (path_.empty()) return;
    gpt::TraceOptions o;
    o.path = path_;
    o.title = s.model;
    o.device = options.device;
    o.layers = options.config.layers;
    trace_.emplace(o);
  }

  void begin(gpt::Trainer& trainer) {
    if (trace_) trainer.ranges().keep_in(&*trace_);
  }
  void look(gpt::Trainer& trainer, bool last) {
    if (!trace_ || !(last || trace_->full())) return;
    trainer.ranges().keep_in(nullptr);
    const gpt::Traced traced = trace_->finish();
    trace_.reset();
    notes_.push_back(
        fmt::format("the trace of {} steps is in {}: open it in https://ui.perfetto.dev or "
                    "chrome://tracing",
                    traced.steps, path_));
    for (std::string& note : gpt::describe(traced)) notes_.push_back(std::move(note));
  }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  std::string path_;
  std::optional<gpt::Trace> trace_;
  std::vector<std::string> notes_;
};

void show(const TrainOptions& s, const lab::Row& row, const std::string& text,
          const std::vector<std::string>& notes) {
  lab::Table kept;
  kept.rows = {row};
  s.output.keep({kept});
  if (s.output.format == "table" || s.output.format == "markdown") {
    lab::Table table = upright(row);
    table.notes = notes;
    s.output.show(table);
    if (!text.empty()) fmt::print("\n{}\n", text);
    return;
  }
  lab::Table table;
  table.notes = notes;
  table.rows.push_back(row);
  if (!text.empty()) table.rows.back().set("sample", text);
  s.output.show(table);
}

int train_with(TrainOptions& s) {
  s.run.start = std::chrono::steady_clock::now();
  const gpt::TrainerOptions options = s.for_trainer();
  s.check(options.config);
  data::CorpusOptions c;
  c.validation_share = s.validation_share;
  const std::unique_ptr<data::Corpus> corpus = data::open_corpus(s.data, c);
  const bool validates = corpus->tokens(data::Split::validation) > 0;
  s.run.eval_every =
      s.eval_every.value_or(validates ? std::max<int64_t>(s.run.steps / 10, 1) : int64_t{0});
  if (s.sample.tokens > 0) {
    gpt::check_sample(options.config, prompt_tokens(s, *corpus), s.sample);
  }
  FirstSteps traced(s, options);
  gpt::Trainer trainer(options);
  traced.begin(trainer);
  if (!s.import_file.empty()) {
    gpt::import_hugging_face(s.import_file, trainer.model());
    trainer.parameters_changed();
  }

  std::optional<lab::Signals> signals(std::in_place);
  std::optional<TrainLine> line;
  std::optional<TrainLog> log;
  gpt::RunCallbacks callbacks;
  callbacks.begin = [&](int64_t first) {
    line.emplace(first, s.run.steps);
    if (!s.log.empty()) log.emplace(s.log, first);
  };
  callbacks.step = [&](const gpt::StepReport& r) {
    line->step(r);
    traced.look(trainer, false);
    if (!log || (r.step % s.log_every != 0 && !r.evaluated && r.step != s.run.steps)) return;
    std::optional<double> norm;
    if (options.clip_norm > 0) norm = trainer.optimizer()->grad_norm();
    log->step(r, norm);
  };
  callbacks.stop = [] { return lab::Signals::asked(); };
  const gpt::RunResult result = gpt::run(trainer, *corpus, s.run, callbacks);
  traced.look(trainer, true);
  signals.reset();
  line.reset();
  if (result.end != gpt::RunResult::End::finished) return explain(s, result);
  const std::string text = use(s, trainer, *corpus);
  show(s, train_row(trainer, *corpus, s.model, s.data, s.run.min_length, result), text,
       traced.notes());
  return 0;
}

}  // namespace

void add_train(CLI::App& app, int& exit_code) {
  auto s = std::make_shared<TrainOptions>();
  CLI::App* train = app.add_subcommand(
      "train", "Train a GPT from a file of text or tokens, or on a made-up language");
  const CLI::Option* optimizer = s->add_to(*train);
  train->callback([s, optimizer, &exit_code] {
    const std::vector<std::string> names = s->rules.beside(*optimizer, {s->optimizer});
    if (names.size() != 1) {
      invalid(fmt::format("optimizers {}, expected one to train with", fmt::join(names, ", ")));
    }
    s->optimizer = names[0];
    exit_code = train_with(*s);
  });
}

}  // namespace gallop::cli
