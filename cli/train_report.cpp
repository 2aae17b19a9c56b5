// SPDX-License-Identifier: MIT
#include "cli/train_report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numbers>

#include "data/synthetic.h"
#include "gallop/error.h"
#include "io/atomic_file.h"
#include "lab/terminal.h"

namespace gallop::cli {
namespace {

using nlohmann::json;

using lab::clock_text;
using lab::stderr_redraws;
using lab::terminal_columns;

std::string rate(double tokens_per_s) {
  if (tokens_per_s < 1e4) return fmt::format("{:.0f} tokens/s", tokens_per_s);
  if (tokens_per_s < 1e7) return fmt::format("{:.1f}k tokens/s", tokens_per_s / 1e3);
  return fmt::format("{:.1f}M tokens/s", tokens_per_s / 1e6);
}

// Lines up to that of a step, without what came after it before the run was ended.
std::string kept_lines(const std::string& path, int64_t last) {
  std::ifstream in(path);
  std::string kept;
  for (std::string line; std::getline(in, line);) {
    const json j = json::parse(line, nullptr, false);
    if (!j.is_object() || j.value("step", last + 1) > last) break;
    kept += line + '\n';
  }
  return kept;
}

// Bytes of the UTF-8 character that a text begins with; 0: it begins with none.
size_t character(std::string_view text) {
  const auto byte = [&](size_t i) -> uint32_t { return static_cast<unsigned char>(text[i]); };
  const auto ones = static_cast<size_t>(std::countl_one(static_cast<uint8_t>(byte(0))));
  if (ones == 0) return 1;
  if (ones == 1 || ones > 4 || ones > text.size()) return 0;
  uint32_t code = byte(0) & (0x7FU >> ones);
  for (size_t i = 1; i < ones; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return 0;
    code = code << 6U | (byte(i) & 0x3FU);
  }
  constexpr uint32_t kLeast[] = {0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  return code < kLeast[ones - 2] || code > 0x10FFFF || surrogate ? 0 : ones;
}

std::string in_groups(int64_t whole) {
  const std::string digits = fmt::format("{}", whole);
  std::string grouped;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0 && digits[i - 1] != '-') grouped += ',';
    grouped += digits[i];
  }
  return grouped;
}

std::string shown(const lab::Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* whole = std::get_if<int64_t>(&value)) return in_groups(*whole);
  if (const auto* number = std::get_if<double>(&value)) {
    return std::abs(*number) < 1000 ? fmt::format("{:.4g}", *number)
                                    : in_groups(std::llround(*number));
  }
  return "-";
}

// Name and value as the table shows them: the unit is with the value.
lab::Row line_of(std::string name, const lab::Value& value) {
  std::string text = shown(value);
  const auto take_unit = [&](std::string_view suffix, std::string_view unit) {
    if (!name.ends_with(suffix) || name.ends_with("_per_s")) return false;
    name.resize(name.size() - suffix.size());
    text += unit;
    return true;
  };
  if (!take_unit("_s", " s") && !take_unit("_percent", " %") && take_unit("_bytes", "")) {
    text = fmt::format("{:.2f} MB", static_cast<double>(std::get<int64_t>(value)) / 1e6);
    if (name != "memory") name = "memory of " + name;
  }
  std::replace(name.begin(), name.end(), '_', ' ');
  return lab::Row().set("what", name).set("value", text);
}

}  // namespace

TrainLine::TrainLine(int64_t first, int64_t steps)
    : first_(first),
      steps_(steps),
      terminal_(stderr_redraws()),
      start_(Clock::now()),
      last_(start_) {}

TrainLine::~TrainLine() {
  if (!drawn_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
}

void TrainLine::step(const gpt::StepReport& r) {
  const Clock::time_point now = Clock::now();
  const bool due = now - last_ >= std::chrono::milliseconds(terminal_ ? 100 : 10'000);
  if (!due && !r.evaluated) return;
  std::string text =
      fmt::format("step {}/{}  loss {:.4f}  {}", r.step, steps_, r.smoothed, rate(r.tokens_per_s));
  if (r.step < steps_) {
    const double elapsed = std::chrono::duration<double>(now - start_).count();
    const double each = elapsed / static_cast<double>(r.step - first_);
    text += "  ETA " + clock_text(each * static_cast<double>(steps_ - r.step));
  }
  if (r.validation) text += fmt::format("  validation {:.4f}", *r.validation);
  if (terminal_) {
    // A line that wraps could not be redrawn in place.
    fmt::print(stderr, "\r{}\x1b[K", text.substr(0, terminal_columns() - 1));
    std::fflush(stderr);
  } else {
    fmt::print(stderr, "{}\n", text);
  }
  drawn_ = terminal_;
  last_ = now;
}

TrainLog::TrainLog(const std::string& path, int64_t first) : path_(path) {
  io::write_file_atomically(path, first == 0 ? std::string() : kept_lines(path, first));
  file_.reset(std::fopen(path.c_str(), "a"));
  if (!file_) {
    throw Error(ErrorCode::io, fmt::format("{}: {}, expected a file that can be written", path,
                                           std::strerror(errno)));
  }
}

void TrainLog::step(const gpt::StepReport& r, std::optional<double> grad_norm) {
  nlohmann::ordered_json line = {{"step", r.step}, {"loss", r.loss}, {"lr", r.lr}};
  if (grad_norm) line["grad_norm"] = *grad_norm;
  if (r.scale) {
    line["loss_scale"] = r.scale->scale;
    line["skipped_steps"] = r.scale->skipped;
  }
  line["tokens_per_s"] = std::round(r.tokens_per_s);
  if (r.evaluated) {
    line["validation_loss"] = *r.validation;
    line["accuracy"] = *r.accuracy;
  }
  const std::string text = line.dump() + '\n';
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size() ||
      std::fflush(file_.get()) != 0) {
    throw Error(ErrorCode::io,
                fmt::format("{}: {}, expected room to write", path_, std::strerror(errno)));
  }
}

lab::Row train_row(gpt::Trainer& trainer, const data::Corpus& corpus, const std::string& model,
                   const std::string& data, int64_t min_length, const gpt::RunResult& r) {
  const gpt::TrainerOptions& o = trainer.options();
  const gpt::Progress& p = r.progress;
  lab::Row row;
  row.set("model", model);
  row.set("parameters", gpt::parameter_count(o.config));
  row.set("optimizer", o.optimizer);
  if (o.optimizer != "none") row.set("state", to_string(o.state));
  for (const auto& [name, value] : o.hyper) row.set(name, value);
  row.set("precision", gpt::to_string(o.compute));
  row.set("device", to_string(o.device));
  row.set("data", data).set("batch", o.batch).set("context", o.time);
  if (min_length > 0) row.set("min_length", min_length);
  row.set("steps", p.step).end_config();
  row.set("tokens", r.tokens);
  if (p.step > 0) {
    row.set("train_loss", p.smoothed.value());
    row.set("last_loss", p.loss);
  }
  if (p.validation) {
    const double loss = *p.validation;
    row.set("validation_loss", loss);
    row.set("perplexity", std::exp(loss));
    if (p.accuracy) row.set("accuracy", *p.accuracy);
    if (corpus.bytes()) row.set("bits_per_byte", loss / std::numbers::ln2);
    if (const auto* known = dynamic_cast<const data::SyntheticCorpus*>(&corpus)) {
      const double lowest = known->lowest_loss(o.time, min_length);
      row.set("lowest_loss", lowest);
      row.set("above_lowest", loss - lowest);
    }
  }
  if (const auto scale = trainer.loss_scale()) {
    row.set("loss_scale", static_cast<double>(scale->scale));
    row.set("skipped_steps", scale->skipped);
  }
  if (r.tokens_per_s > 0) {
    row.set("tokens_per_s", r.tokens_per_s);
    row.set("first_step_after_s", r.start_s);
  }
  row.set("time_s", r.total_s);
  row.set("evaluation_s", r.evaluate_s);
  if (r.save_s > 0) row.set("saving_s", r.save_s);
  row.set("data_wait_percent", r.train_s > 0 ? 100 * r.data_wait_s / r.train_s : 0.0);
  row.set("data_work_s", r.data_work_s);
  const gpt::MemoryUse memory = trainer.memory();
  for (int c = 0; c < gpt::kMemoryClasses; ++c) {
    const auto cls = static_cast<gpt::MemoryClass>(c);
    row.set(fmt::format("{}_bytes", gpt::to_string(cls)), memory[cls]);
  }
  row.set("memory_bytes", memory.total());
  return row;
}

lab::Table upright(const lab::Row& row) {
  lab::Table table;
  for (const auto& [name, value] : row) {
    table.rows.push_back(line_of(name, value));
  }
  return table;
}

std::string printable(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t length = character(text.substr(i));
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool control = (byte < 32 && byte != '\n' && byte != '\t') || byte == 127;
    if (length == 0 || control) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += text.substr(i, length);
    }
    i += std::max<size_t>(length, 1);
  }
  return out;
}

}  // namespace gallop::cli
