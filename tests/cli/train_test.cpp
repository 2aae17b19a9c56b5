// SPDX-License-Identifier: MIT
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/command.h"
#include "cli/train_report.h"
#include "folder.h"
#include "io/safetensors.h"

namespace gallop::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> train(std::vector<std::string> more = {}, const std::string& steps = "12",
                               const std::string& lr = "1e-3") {
  std::vector<std::string> words = {
      "train",
      "--model",
      "nano:layers=1:width=32:heads=2:context=16:vocabulary=16",
      "--data",
      "synthetic:vocabulary=16,classes=2,branching=3,tokens=100000,validation=5000",
      "--steps",
      steps,
      "--batch",
      "4",
      "--threads",
      "1",
      "--lr",
      lr,
      "--format",
      "json"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

json row(const std::vector<std::string>& words) {
  const Ran ran = run(words);
  EXPECT_EQ(ran.exit_code, 0) << ran.errors;
  return json::parse(ran.out).at("rows").at(0);
}

std::vector<json> lines(const std::string& path) {
  std::vector<json> all;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) all.push_back(json::parse(line));
  return all;
}

bool same_parameters(const std::string& a, const std::string& b) {
  const auto x = io::SafetensorsFile::open(a), y = io::SafetensorsFile::open(b);
  for (const auto& [name, t] : x.tensors()) {
    const io::TensorView* u = y.find(name);
    if (u == nullptr || u->bytes != t.bytes || std::memcmp(u->data, t.data, t.bytes) != 0) {
      return false;
    }
  }
  return x.tensors().size() == y.tensors().size();
}

TEST(TrainCommand, SaysWhatCameOut) {
  const json r = row(train());
  EXPECT_EQ(r.at("optimizer"), "adamw");
  EXPECT_EQ(r.at("parameters"), 13792);
  EXPECT_EQ(r.at("steps"), 12);
  EXPECT_EQ(r.at("tokens"), 12 * 4 * 16);
  EXPECT_GT(r.at("tokens_per_s"), 0);
  EXPECT_GT(r.at("first_step_after_s"), 0);
  EXPECT_EQ(r.at("parameters_bytes"), r.at("gradients_bytes"));
  const double loss = r.at("validation_loss");
  EXPECT_NEAR(r.at("perplexity").get<double>(), std::exp(loss), 1e-6);
  EXPECT_GT(r.at("accuracy"), 0);
  EXPECT_LT(r.at("accuracy"), 1);
  EXPECT_FALSE(r.contains("min_length"));
  EXPECT_NEAR(r.at("above_lowest").get<double>(), loss - r.at("lowest_loss").get<double>(), 1e-6);
  EXPECT_FALSE(r.contains("bits_per_byte"));
}

TEST(TrainCommand, SequencesMayBeShorter) {
  const json whole = row(train()), r = row(train({"--min-length", "4"}));
  EXPECT_EQ(r.at("min_length"), 4);
  EXPECT_EQ(r.at("tokens"), whole.at("tokens"));
  EXPECT_NE(r.at("validation_loss"), whole.at("validation_loss"));
  EXPECT_GT(r.at("lowest_loss"), whole.at("lowest_loss"));
}

TEST(TrainCommand, LinesTellHowItGoes) {
  std::vector<std::string> words = train();
  words.back() = "table";
  const Ran ran = run(words);
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.out, HasSubstr("validation loss"));
  EXPECT_THAT(ran.errors, HasSubstr("step 12/12  loss 2."));
  EXPECT_THAT(ran.errors, HasSubstr("tokens/s  validation 2."));
  EXPECT_THAT(ran.out + ran.errors, Not(HasSubstr("\x1b")));
}

TEST(TrainCommand, EvaluationAndLogsChangeNothing) {
  const Folder folder;
  const std::string a = folder / "a", b = folder / "b", log = folder / "log";
  row(train({"--eval-every", "0", "--checkpoint", a}));
  row(train({"--eval-every", "3", "--checkpoint", b, "--log", log, "--clip-norm", "0.5"}));
  EXPECT_FALSE(same_parameters(a, b));  // another clipping
  std::filesystem::remove(b);
  row(train({"--eval-every", "5", "--checkpoint", b, "--log", log, "--save-every", "4"}));
  EXPECT_TRUE(same_parameters(a, b));
  const std::vector<json> logged = lines(log);
  ASSERT_EQ(logged.size(), 12u);
  EXPECT_EQ(logged[4].at("step"), 5);
  EXPECT_TRUE(logged[4].contains("validation_loss"));
  EXPECT_GT(logged[4].at("accuracy"), 0);
  EXPECT_FALSE(logged[5].contains("validation_loss"));
  EXPECT_GT(logged[0].at("grad_norm"), 0);
  EXPECT_EQ(logged[0].at("lr"), 1e-3);
}

TEST(TrainCommand, ResumesWithItsLog) {
  const Folder folder;
  const std::string whole = folder / "whole", part = folder / "part";
  row(train({"--checkpoint", whole, "--log", whole + ".log"}));
  row(train({"--checkpoint", part, "--log", part + ".log"}, "5"));
  // As if it had gone on for a while and then been killed, in the middle of a line.
  std::ofstream(part + ".log", std::ios::app) << "{\"step\":6,\"loss\":1}\n{\"step\":7,\"lo";
  row(train({"--checkpoint", part, "--log", part + ".log", "--resume"}));
  EXPECT_TRUE(same_parameters(whole, part));
  const std::vector<json> a = lines(whole + ".log"), b = lines(part + ".log");
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].at("loss"), b[i].at("loss"));
  const json again = row(train({"--checkpoint", part, "--resume"}));
  EXPECT_EQ(again.at("steps"), 12);
  EXPECT_GT(again.at("validation_loss"), 0);
}

TEST(TrainCommand, ASignalEndsItAfterAStep) {
  const Folder folder;
  const std::string file = folder / "run";
  std::thread user([&] {
    while (!std::filesystem::exists(file + ".log")) std::this_thread::yield();  // it has begun
    kill(getpid(), SIGINT);
  });
  const Ran ran = run(train({"--checkpoint", file, "--log", file + ".log"}, "1000000"));
  user.join();
  EXPECT_EQ(ran.exit_code, 130);
  EXPECT_THAT(ran.errors, HasSubstr("gallop: stopped after step "));
  EXPECT_THAT(ran.errors, HasSubstr("--resume goes on"));
  EXPECT_EQ(ran.out, "");
  const auto step = std::stoll(io::SafetensorsFile::open(file).metadata().at("step"));
  EXPECT_GT(step, 0);
  EXPECT_EQ(row(train({"--checkpoint", file, "--resume"}, std::to_string(step + 2))).at("steps"),
            step + 2);
}

TEST(TrainCommand, DivergenceHasAnExitCodeOfItsOwn) {
  std::vector<std::string> words = train({"--optimizer", "sgd", "--clip-norm", "0"}, "12", "1e30");
  const Ran ran = run(words);
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_THAT(ran.errors, HasSubstr("expected a number (try a lower --lr)"));
  words.emplace_back("--keep-going");
  EXPECT_EQ(run(words).exit_code, 0);
}

TEST(TrainCommand, TextIsTrainedOnAndWritten) {
  const Folder folder;
  const std::string text = folder / "text";
  {
    std::ofstream out(text);
    for (int i = 0; i < 400; ++i) out << "the horse runs over the hill. ";
  }
  const std::vector<std::string> words = {"train",
                                          "--model",
                                          "nano:layers=1:width=32:heads=2:context=16",
                                          "--data",
                                          text,
                                          "--steps",
                                          "150",
                                          "--lr",
                                          "1e-2",
                                          "--threads",
                                          "1",
                                          "--sample",
                                          "30",
                                          "--prompt",
                                          "the h",
                                          "--temperature",
                                          "0.5",
                                          "--top-k",
                                          "5"};
  const Ran ran = run(words);
  EXPECT_EQ(ran.exit_code, 0) << ran.errors;
  EXPECT_THAT(ran.out, HasSubstr("bits per byte"));
  EXPECT_THAT(ran.out, HasSubstr("\nthe h"));
  EXPECT_THAT(ran.out, HasSubstr("horse"));
  expect_refused({"train", "--model", "nano:vocabulary=100", "--data", text},
                 "a vocabulary of 100 for data with one of 256");
}

TEST(TrainCommand, SamplesOfTokensAreNumbers) {
  const json r = row(train({"--sample", "5", "--prompt", "3 1 4"}));
  EXPECT_THAT(r.at("sample").get<std::string>(), testing::MatchesRegex("3 1 4( [0-9]+)+"));
}

TEST(TrainCommand, WeightsGoOutAndIn) {
  const Folder folder;
  const std::string a = folder / "a.safetensors", b = folder / "b.safetensors";
  const json first = row(train({"--export", a, "--dump", folder / "dump"}));
  const json second = row(train({"--import", a, "--export", b}, "0"));
  EXPECT_TRUE(same_parameters(a, b));
  EXPECT_EQ(first.at("validation_loss"), second.at("validation_loss"));
  EXPECT_TRUE(std::filesystem::exists(folder / "config.json"));
  EXPECT_TRUE(std::filesystem::exists(folder / "dump"));
}

TEST(TrainCommand, BadInputIsOneSentence) {
  const Folder folder;
  expect_refused({"train"}, "--data is required");
  expect_refused({"train", "--data", "/no/file"}, "/no/file");
  expect_refused(train({"--optimizer", "none"}), "optimizer none does not train");
  expect_refused(train({"--optimizer", "zz"}), "'zz' is unknown");
  expect_refused(train({"--precision", "fp8"}), "precision 'fp8'");
  expect_refused(train({"--schedule", "cosin"}), "schedule kind is 'cosin'");
  expect_refused(train({"--schedule", "cosine:warmup=2", "--warmup", "3"}), "expected one warm-up");
  expect_refused(train({"--schedule", "cosine", "--warmup", "12"}), "warmup_steps, which is 12");
  expect_refused(train({"--momentum", "0.9"}), "none of adamw has this hyper-parameter");
  expect_refused(train({"--state", "9bit"}), "'9bit' is unknown");
  expect_refused(train({"--steps", "-3"}), "--steps");
  expect_refused(train({"--context", "17"}), "expected at most the model's context of 16");
  expect_refused(train({"--min-length", "17"}), "a smallest length of 17 tokens");
  expect_refused(train({"--min-length", "-1"}), "--min-length");
  expect_refused(train({"--validation", "1"}), "validation share 1");
  expect_refused(train({"--resume"}), "--resume without --checkpoint");
  expect_refused(train({"--resume", "--checkpoint", folder / "none"}), "none is not there");
  expect_refused(train({"--checkpoint", folder / "no/file"}), "there is no folder");
  expect_refused(train({"--sample", "3", "--prompt", "abc"}), "expected numbers of tokens");
  expect_refused(train({"--sample", "3", "--prompt", "99"}), "token 99 in a prompt");
  std::vector<std::string> rms = train({"--export", folder / "x"});
  rms[2] += ":norm=rms";
  expect_refused(rms, "rms norms has no place in Hugging Face's GPT-2");
  std::vector<std::string> unknown = train();
  unknown[2] = "nano7";
  expect_refused(unknown, "no model is called 'nano7'");
}

TEST(TrainCommand, SchedulesTakeTheirLengthFromTheRun) {
  const Folder folder;
  const std::string log = folder / "log";
  row(train({"--schedule", "linear:final=0.5", "--warmup", "2", "--log", log}));
  const std::vector<json> logged = lines(log);
  EXPECT_DOUBLE_EQ(logged[0].at("lr"), 0.5e-3);
  EXPECT_DOUBLE_EQ(logged[1].at("lr"), 1e-3);
  EXPECT_LT(logged[11].at("lr"), 0.56e-3);
}

TEST(Printable, KeepsTextAndEscapesTheRest) {
  EXPECT_EQ(cli::printable("a\tb\nc"), "a\tb\nc");
  EXPECT_EQ(cli::printable("h\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\x8e"),
            "h\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\x8e");
  EXPECT_EQ(cli::printable("\x1b[2J\x7f"), "\\x1b[2J\\x7f");
  EXPECT_EQ(cli::printable("\xc3"), "\\xc3");
  EXPECT_EQ(cli::printable("\xed\xa0\x80\xc0\xaf\xff"), "\\xed\\xa0\\x80\\xc0\\xaf\\xff");
}

}  // namespace
}  // namespace gallop::test
