// SPDX-License-Identifier: MIT
#include "data/corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <vector>

#include "folder.h"
#include "gallop/error.h"

namespace gallop::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using enum Split;

template <class T>
void write(const std::string& path, const std::vector<T>& values) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(T)));
}

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

template <class T>
void write_llmc(const std::string& path, int32_t magic, int32_t version,
                const std::vector<T>& tokens, int64_t promised = -1) {
  std::vector<int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = static_cast<int32_t>(promised < 0 ? static_cast<int64_t>(tokens.size()) : promised);
  write(path, header);
  std::ofstream(path, std::ios::binary | std::ios::app)
      .write(reinterpret_cast<const char*>(tokens.data()),
             static_cast<std::streamsize>(tokens.size() * sizeof(T)));
}

std::vector<int32_t> all(const Corpus& corpus, Split split) {
  std::vector<int32_t> tokens(static_cast<std::size_t>(corpus.tokens(split)));
  corpus.read(split, 0, tokens);
  return tokens;
}

std::string refusal(const std::string& source, const CorpusOptions& options = {}) {
  try {
    open_corpus(source, options);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

class CorpusTest : public testing::Test {
 protected:
  test::Folder folder_;
  const std::string text_ = folder_ / "text.txt", bin_ = folder_ / "tokens.bin";
};

TEST_F(CorpusTest, TextIsItsBytesAndItsEndIsForValidation) {
  write(text_, std::string("abcdefgh\xff\0", 10));
  const auto corpus = open_corpus(text_, {.validation_share = 0.3});
  EXPECT_EQ(corpus->vocabulary(), 256);
  EXPECT_TRUE(corpus->bytes());
  EXPECT_FALSE(corpus->entropy_rate());
  EXPECT_THAT(all(*corpus, train), ElementsAre('a', 'b', 'c', 'd', 'e', 'f', 'g'));
  EXPECT_THAT(all(*corpus, validation), ElementsAre('h', 255, 0));
  EXPECT_EQ(corpus->describe(),
            text_ + ": text, 7 to train with and 3 to validate, vocabulary 256");
}

TEST_F(CorpusTest, NanoGptTokensHaveTheLargestPlusOneAsVocabulary) {
  write(bin_, std::vector<uint16_t>{5, 65535, 0, 7, 300, 1, 2, 3, 4, 9});
  const auto corpus = open_corpus(bin_);
  EXPECT_EQ(corpus->vocabulary(), 65536);
  EXPECT_FALSE(corpus->bytes());
  EXPECT_THAT(all(*corpus, train), ElementsAre(5, 65535, 0, 7, 300, 1, 2, 3, 4));
  EXPECT_THAT(all(*corpus, validation), ElementsAre(9));
  EXPECT_EQ(corpus->describe(), bin_ +
                                    ": nanoGPT tokens, 9 to train with and 1 to validate, "
                                    "vocabulary 65536 (the largest token + 1)");
}

TEST_F(CorpusTest, LlmcTokensOfBothWidths) {
  write_llmc(bin_, 20240520, 1, std::vector<uint16_t>{1, 50256, 3, 4});
  const auto narrow = open_corpus(bin_, {.validation_share = 0.25});
  EXPECT_EQ(narrow->vocabulary(), 50257);
  EXPECT_THAT(all(*narrow, train), ElementsAre(1, 50256, 3));
  EXPECT_THAT(narrow->describe(), HasSubstr("llm.c tokens"));

  const std::string path = folder_ / "wide.bin";
  write_llmc(path, 20240801, 7, std::vector<uint32_t>{128000, 9, 8});
  const auto wide = open_corpus(path, {.validation_share = 0});
  EXPECT_EQ(wide->vocabulary(), 128001);
  EXPECT_THAT(all(*wide, train), ElementsAre(128000, 9, 8));
  EXPECT_EQ(wide->tokens(validation), 0);
}

TEST_F(CorpusTest, HeadersThatContradictTheFileAreRefused) {
  const std::vector<uint16_t> tokens{1, 2, 3};
  write_llmc(bin_, 20240520, 1, tokens, 4);
  EXPECT_EQ(refusal(bin_),
            bin_ + ": its header promises 4 tokens, 1032 bytes in all, but it has 1030");
  write_llmc(bin_, 20240520, 1, tokens, 2);
  EXPECT_THAT(refusal(bin_), HasSubstr("promises 2 tokens, 1028 bytes in all, but it has 1030"));
  write_llmc(bin_, 20240520, 1, tokens, 0xfffffffe);
  EXPECT_THAT(refusal(bin_), HasSubstr("promises -2 tokens"));
  write_llmc(bin_, 20240520, 1, std::vector<uint16_t>{});
  EXPECT_EQ(refusal(bin_), bin_ + ": its header promises 0 tokens, expected at least one");
  write_llmc(bin_, 20240520, 2, tokens);
  EXPECT_EQ(refusal(bin_),
            bin_ + ": its header has magic 20240520 and version 2, expected version 1");
  write_llmc(bin_, 20240801, 1, tokens);
  EXPECT_THAT(refusal(bin_), HasSubstr("magic 20240801 and version 1, expected version 7"));
  write(bin_, std::vector<int32_t>{20240520});
  EXPECT_THAT(refusal(bin_), HasSubstr("promises 0 tokens, 1024 bytes in all, but it has 4"));
}

TEST_F(CorpusTest, TokensOutsideTheVocabularyAreNamedWithTheirPlace) {
  std::vector<uint16_t> tokens(10001, 7);
  tokens[9000] = 11;
  tokens[9001] = 12;
  write(bin_, tokens);
  EXPECT_EQ(refusal(bin_, {.vocabulary = 11}),
            bin_ + ": token 11 at position 9000, expected tokens below 11");
  EXPECT_EQ(refusal(bin_, {.vocabulary = 12}),
            bin_ + ": token 12 at position 9001, expected tokens below 12");
  const auto corpus = open_corpus(bin_, {.vocabulary = 50304});
  EXPECT_EQ(corpus->vocabulary(), 50304);
  EXPECT_THAT(corpus->describe(), testing::EndsWith("vocabulary 50304"));

  write(text_, std::string("caf\xc3\xa9"));
  EXPECT_THAT(refusal(text_, {.vocabulary = 128}), HasSubstr("token 195 at position 3"));
  EXPECT_EQ(open_corpus(text_, {.vocabulary = 512})->vocabulary(), 512);

  write_llmc(bin_, 20240801, 7, std::vector<uint32_t>{1, 2, 0x80000000});
  EXPECT_THAT(refusal(bin_),
              HasSubstr("token 2147483648 at position 2, expected tokens below 2147483647"));
}

TEST_F(CorpusTest, TwoFilesAreTheTwoSplits) {
  const std::string other = folder_ / "other.bin";
  write(bin_, std::vector<uint16_t>{1, 2, 3});
  write_llmc(other, 20240520, 1, std::vector<uint16_t>{9, 8});
  const auto corpus = open_corpus(bin_ + "," + other);
  EXPECT_THAT(all(*corpus, train), ElementsAre(1, 2, 3));
  EXPECT_THAT(all(*corpus, validation), ElementsAre(9, 8));
  EXPECT_EQ(corpus->vocabulary(), 10);
  EXPECT_THAT(corpus->describe(), HasSubstr(bin_ + " and " + other));
  EXPECT_EQ(refusal(bin_ + "," + other, {.vocabulary = 9}),
            other + ": token 9 at position 0, expected tokens below 9");

  write(text_, std::string("ab"));
  EXPECT_TRUE(open_corpus(text_ + "," + text_)->bytes());
  EXPECT_THAT(refusal(bin_ + "," + text_), HasSubstr("expected two of a kind"));
  for (const std::string& source : {bin_ + ",", "," + bin_, bin_ + "," + bin_ + "," + bin_}) {
    EXPECT_EQ(refusal(source),
              "corpus '" + source + "', expected one file, or two as TRAIN,VALIDATION");
  }
}

TEST_F(CorpusTest, AFileWithACommaInItsNameIsOneFile) {
  const std::string path = folder_ / "a,b.txt";
  write(path, std::string("abcd"));
  EXPECT_EQ(open_corpus(path)->tokens(train), 3);
}

TEST_F(CorpusTest, FilesThatCannotBeReadAreRefused) {
  EXPECT_EQ(refusal(text_), "cannot read '" + text_ + "': No such file or directory");
  EXPECT_EQ(refusal(folder_.path()),
            "cannot read '" + folder_.path() + "': it is a directory, expected a file");
  write(text_, std::string());
  EXPECT_EQ(refusal(text_), "cannot read '" + text_ + "': it is empty, expected tokens or text");
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(refusal(pipe), HasSubstr("not a regular file"));
  write(bin_, std::string("abc"));
  EXPECT_EQ(refusal(bin_), bin_ +
                               ": it has 3 bytes, expected an even number, 2 a token, or the "
                               "header of llm.c");
  EXPECT_EQ(refusal(""), "corpus '', expected a file or synthetic");
}

TEST_F(CorpusTest, SmallFilesStillHaveBothSplits) {
  write(text_, std::string("a"));
  EXPECT_THAT(refusal(text_), HasSubstr("it has 1 token, expected at least 2"));
  EXPECT_EQ(open_corpus(text_, {.validation_share = 0})->tokens(train), 1);
  write(text_, std::string("ab"));
  for (double share : {1e-9, 0.1, 0.999}) {
    const auto corpus = open_corpus(text_, {.validation_share = share});
    EXPECT_EQ(corpus->tokens(train), 1);
    EXPECT_EQ(corpus->tokens(validation), 1);
  }
}

TEST_F(CorpusTest, OptionsOutOfRangeAreRefused) {
  write(text_, std::string("abc"));
  for (double share : {-0.1, 1.0, std::nan("")}) {
    EXPECT_THAT(refusal(text_, {.validation_share = share}),
                HasSubstr("expected at least 0 and less than 1"));
  }
  EXPECT_EQ(refusal(text_, {.vocabulary = -1}),
            "vocabulary -1, expected at least 1, or 0 for the corpus's own");
}

TEST_F(CorpusTest, ReadsStayWithinTheirSplit) {
  write(text_, std::string("abcdefghij"));
  const auto corpus = open_corpus(text_, {.validation_share = 0.5});
  std::vector<int32_t> out(3);
  corpus->read(train, 2, out);
  EXPECT_THAT(out, ElementsAre('c', 'd', 'e'));
  corpus->read(train, 5, std::span(out).first(0));
  for (int64_t first : {int64_t{-1}, int64_t{3}, int64_t{6}, std::numeric_limits<int64_t>::max()}) {
    EXPECT_THROW(corpus->read(train, first, out), Error) << first;
  }
  try {
    corpus->read(validation, 3, out);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "reading 3 tokens from position 3, expected a place within the 5 of the "
                 "validation split");
  }
}

TEST_F(CorpusTest, AFileThatShrinksIsAnErrorNotACrash) {
  write(text_, std::string(100000, 'a'));
  const auto corpus = open_corpus(text_);
  std::filesystem::resize_file(text_, 10);
  std::vector<int32_t> out(3);
  EXPECT_THROW(corpus->read(train, 50000, out), Error);
}

TEST_F(CorpusTest, FingerprintsTellDataApartButNotPlaces) {
  std::string text(3 << 20, 'a');
  write(text_, text);
  const std::string first = open_corpus(text_)->fingerprint();
  const std::string moved = folder_ / "moved.txt";
  std::filesystem::rename(text_, moved);
  EXPECT_EQ(open_corpus(moved)->fingerprint(), first);
  EXPECT_NE(open_corpus(moved, {.validation_share = 0.2})->fingerprint(), first);
  text.back() = 'b';
  write(text_, text);
  EXPECT_NE(open_corpus(text_)->fingerprint(), first);
  EXPECT_NE(open_corpus(moved + "," + text_)->fingerprint(),
            open_corpus(text_ + "," + moved)->fingerprint());

  std::vector<uint16_t> tokens(1001, 3);
  write(bin_, tokens);
  const std::string of_tokens = open_corpus(bin_)->fingerprint();
  tokens[500] = 4;
  write(bin_, tokens);
  EXPECT_NE(open_corpus(bin_)->fingerprint(), of_tokens);
}

}  // namespace
}  // namespace gallop::data
