// SPDX-License-Identifier: MIT
#include "io/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "folder.h"
#include "gallop/error.h"

namespace gallop::io {
namespace {

namespace fs = std::filesystem;

// A file spelled out by hand: length, header text, data.
std::string file_of(const std::string& header, const std::string& data = "") {
  std::string bytes(8, '\0');
  for (unsigned i = 0; i < 8; ++i) {
    bytes[i] = static_cast<char>(static_cast<uint64_t>(header.size()) >> (8 * i) & 0xFF);
  }
  return bytes + header + data;
}

SafetensorsFile parse(const std::string& bytes) {
  return SafetensorsFile::parse(std::as_bytes(std::span(bytes)), "t.safetensors");
}

// The sentence a hostile file is refused with; "" (and a failure) when it is accepted.
std::string refusal(const std::string& bytes) {
  try {
    parse(bytes);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_file);
    EXPECT_EQ(std::string(error.what()).rfind("t.safetensors: ", 0), 0u) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "accepted: " << bytes.substr(8, 200);
  return "";
}

std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

#define EXPECT_REFUSED(bytes, part)                                            \
  do {                                                                         \
    const std::string what = refusal(bytes);                                   \
    EXPECT_NE(what.find(part), std::string::npos) << "got sentence: " << what; \
  } while (false)

std::string bytes_of(const TensorView& view) {
  return {reinterpret_cast<const char*>(view.data), view.bytes};
}

const std::string kTwoTensors =
    "{\"__metadata__\":{\"step\":\"7\"},\"a\":" + tensor("U8", "[3]", "[0,3]") +
    ",\"b\":" + tensor("F16", "[2,1]", "[3,7]") + "}";

TEST(Safetensors, ReadsAFileSpelledOutByHand) {
  const std::string bytes = file_of(kTwoTensors, "abcDEFG");
  const SafetensorsFile file = parse(bytes);
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"step", "7"}}));
  ASSERT_EQ(file.tensors().size(), 2u);
  const TensorView& a = file.tensors().at("a");
  EXPECT_EQ(a.dtype, "U8");
  EXPECT_EQ(a.shape, std::vector<int64_t>{3});
  EXPECT_EQ(bytes_of(a), "abc");
  const TensorView* b = file.find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->shape, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(bytes_of(*b), "DEFG");
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_EQ(file.find("__metadata__"), nullptr);
}

TEST(Safetensors, ReadsTensorsListedInAnotherOrderThanTheirData) {
  const std::string bytes = file_of(
      "{\"a\":" + tensor("U8", "[2]", "[1,3]") + ",\"b\":" + tensor("U8", "[1]", "[0,1]") + "}",
      "xyz");
  EXPECT_EQ(bytes_of(*parse(bytes).find("a")), "yz");
}

TEST(Safetensors, ReadsScalarsEmptyTensorsAndEmptyFiles) {
  const std::string scalar = file_of("{\"a\":" + tensor("F32", "[]", "[0,4]") + "}", "1234");
  EXPECT_EQ(parse(scalar).find("a")->bytes, 4u);
  const std::string empty = file_of("{\"e\":" + tensor("F64", "[0,5]", "[2,2]") +
                                        ",\"a\":" + tensor("BF16", "[1]", "[0,2]") + "}",
                                    "12");
  EXPECT_EQ(parse(empty).find("e")->bytes, 0u);
  const std::string none = file_of("{}");
  EXPECT_TRUE(parse(none).tensors().empty());
  const std::string padded = file_of("{}      ");
  EXPECT_TRUE(parse(padded).tensors().empty());
}

TEST(Safetensors, KnowsEveryDtypeAndNoOther) {
  const std::map<std::string, std::size_t> sizes = {
      {"F64", 8}, {"F32", 4}, {"F16", 2},  {"BF16", 2},    {"I64", 8},
      {"I32", 4}, {"I16", 2}, {"I8", 1},   {"U8", 1},      {"U16", 2},
      {"U32", 4}, {"U64", 8}, {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  for (const auto& [dtype, size] : sizes) {
    EXPECT_EQ(dtype_size(dtype), size) << dtype;
    const std::string bytes =
        file_of("{\"a\":" + tensor(dtype, "[1]", "[0," + std::to_string(size) + "]") + "}",
                std::string(size, 'x'));
    EXPECT_EQ(parse(bytes).find("a")->bytes, size) << dtype;
  }
  for (const char* unknown : {"", "f32", "F32 ", "C64", "F8"}) {
    EXPECT_EQ(dtype_size(unknown), 0u) << unknown;
  }
}

TEST(Safetensors, RefusesTruncationAtEveryByte) {
  const std::string whole = file_of(kTwoTensors, "abcDEFG");
  parse(whole);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    // A copy of exactly this size, so that the address sanitizer sees a read past it.
    const std::vector<char> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_THROW(SafetensorsFile::parse(std::as_bytes(std::span(cut)), "cut"), Error) << length;
  }
}

TEST(Safetensors, BitFlipsInTheHeaderAreRefusedOrHarmless) {
  const std::string whole = file_of(kTwoTensors, "abcDEFG");
  for (std::size_t bit = 0; bit < 8 * (8 + kTwoTensors.size()); ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    try {
      const SafetensorsFile file = parse(flipped);
      std::size_t covered = 0;
      for (const auto& [name, view] : file.tensors()) covered += bytes_of(view).size();
      EXPECT_EQ(covered, 7u) << "bit " << bit;
    } catch (const Error&) {
    }
  }
}

TEST(Safetensors, RefusesShortFilesAndWrongHeaderLengths) {
  EXPECT_REFUSED("1234567", "the file has 7 bytes, expected at least 8");
  EXPECT_REFUSED(std::string("\x03\0\0\0\0\0\0\0{}", 10),
                 "the header length is 3, expected at most 2 in a file of 10 bytes");
  EXPECT_REFUSED(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10),
                 "the header length is 18446744073709551615, expected at most 100000000");
  EXPECT_REFUSED(std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10),
                 "the header length is 100000001, expected at most 100000000");
}

TEST(Safetensors, RefusesHeadersThatAreNotAnObject) {
  for (const char* header : {"", "[]", "null", "1", "\"a\"", " {}", "\xEF\xBB\xBF{}"}) {
    EXPECT_REFUSED(file_of(header), "expected a JSON object");
  }
  for (const char* header : {"{", "{]", "{}{}", "{} x", "{\"a\"}", "{\"\xff\":1}", "{/**/}"}) {
    EXPECT_REFUSED(file_of(header), "the header is not valid JSON at its byte");
  }
  EXPECT_REFUSED(file_of(std::string("{}\0garbage", 10)), "a NUL at its byte 2");
}

TEST(Safetensors, RefusesNestingBombs) {
  const std::string deep(100000, '[');
  EXPECT_REFUSED(file_of("{\"a\":" + deep), "entry 'a' is an array, expected an object");
  EXPECT_REFUSED(file_of("{\"a\":{\"shape\":" + deep), "has an array in shape");
  std::string objects = "{";
  for (int i = 0; i < 100000; ++i) objects += "\"shape\":{";
  EXPECT_REFUSED(file_of(objects), "has an object as shape");
  EXPECT_REFUSED(file_of("{\"__metadata__\":{\"k\":{"), "is an object, expected a string");
}

TEST(Safetensors, RefusesDuplicateKeys) {
  const std::string empty = tensor("U8", "[0]", "[0,0]");
  EXPECT_REFUSED(file_of("{\"a\":" + empty + ",\"a\":" + empty + "}"), "has the key 'a' twice");
  EXPECT_REFUSED(file_of("{\"a\":" + empty + ",\"\\u0061\":" + empty + "}"),
                 "has the key 'a' twice");
  EXPECT_REFUSED(file_of("{\"__metadata__\":{},\"__metadata__\":{}}"),
                 "has the key '__metadata__' twice");
  EXPECT_REFUSED(file_of("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}"), "has the key 'k' twice");
  EXPECT_REFUSED(file_of("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}"),
                 "has the field dtype twice");
  EXPECT_REFUSED(file_of("{\"a\":{\"shape\":[],\"shape\":[]}}"), "has the field shape twice");
  EXPECT_REFUSED(file_of("{\"a\":{\"data_offsets\":[0,0],\"data_offsets\":[0,0]}}"),
                 "has the field data_offsets twice");
}

TEST(Safetensors, RefusesMetadataThatIsNotText) {
  for (const char* value : {"1", "-1", "1.5", "null", "true", "[]", "{}"}) {
    EXPECT_REFUSED(file_of(std::string("{\"__metadata__\":{\"k\":") + value + "}}"),
                   "entry 'k' of __metadata__ is ");
  }
  EXPECT_REFUSED(file_of("{\"__metadata__\":\"x\"}"), "entry '__metadata__' is a string");
  EXPECT_REFUSED(file_of("{\"__metadata__\":null}"), "entry '__metadata__' is null");
}

TEST(Safetensors, RefusesIncompleteOrForeignTensorEntries) {
  EXPECT_REFUSED(file_of("{\"a\":{}}"), "tensor 'a' has no dtype");
  EXPECT_REFUSED(file_of("{\"a\":{\"dtype\":\"U8\"}}"), "tensor 'a' has no shape");
  EXPECT_REFUSED(file_of("{\"a\":{\"dtype\":\"U8\",\"shape\":[0]}}"), "has no data_offsets");
  EXPECT_REFUSED(file_of("{\"a\":{\"extra\":1}}"), "has the field 'extra'");
  EXPECT_REFUSED(file_of("{\"a\":{\"dtype\":4}}"), "has 4 as dtype, expected a string");
  EXPECT_REFUSED(file_of("{\"a\":{\"dtype\":\"F12\"}}"),
                 "has dtype 'F12', expected one of F64 F32");
  EXPECT_REFUSED(file_of("{\"a\":{\"shape\":\"[1]\"}}"), "has a string as shape");
  EXPECT_REFUSED(file_of("{\"a\":{\"shape\":null}}"), "has null as shape, expected an array");
}

TEST(Safetensors, RefusesShapesThatAreNegativeFractionalOrHuge) {
  const auto with_shape = [](const std::string& shape) {
    return file_of("{\"a\":" + tensor("F32", shape, "[0,0]") + "}");
  };
  EXPECT_REFUSED(with_shape("[-1]"), "tensor 'a' has -1 in shape");
  EXPECT_REFUSED(with_shape("[1.5]"), "tensor 'a' has '1.5' in shape");
  EXPECT_REFUSED(with_shape("[1e3]"), "tensor 'a' has '1e3' in shape");
  EXPECT_REFUSED(with_shape("[\"1\"]"), "has a string in shape");
  EXPECT_REFUSED(with_shape("[true]"), "has true in shape");
  EXPECT_REFUSED(with_shape("[9223372036854775808]"), "has 9223372036854775808 in shape");
  EXPECT_REFUSED(with_shape("[99999999999999999999999]"), "in shape, expected integers from 0 to");
  EXPECT_REFUSED(with_shape("[4294967296,4294967296]"), "expected fewer than 2^63 bytes");
  EXPECT_REFUSED(with_shape("[2305843009213693952]"), "expected fewer than 2^63 bytes");
  EXPECT_REFUSED(with_shape("[4294967296,4294967296,0]"), "expected fewer than 2^63 bytes");
  EXPECT_REFUSED(with_shape("[0,4294967296,4294967296]"), "expected fewer than 2^63 bytes");
  std::string ones = "[1";
  for (int i = 0; i < 64; ++i) ones += ",1";
  EXPECT_REFUSED(with_shape(ones + "]"), "more than 64 dimensions");
}

TEST(Safetensors, RefusesOffsetsThatDoNotMatchTheShape) {
  EXPECT_REFUSED(
      file_of("{\"state.w.exp_avg\":" + tensor("F32", "[10,10]", "[0,99]") + "}",
              std::string(99, 'x')),
      "tensor 'state.w.exp_avg' has data_offsets [0, 99], expected 400 bytes for shape [10, 10] "
      "of F32");
  EXPECT_REFUSED(file_of("{\"a\":" + tensor("U8", "[1]", "[1,0]") + "}", "x"),
                 "has data_offsets [1, 0], expected 1 bytes");
  EXPECT_REFUSED(file_of("{\"a\":" + tensor("U8", "[1]", "[18446744073709551615,0]") + "}", "x"),
                 "has data_offsets [18446744073709551615, 0], expected 1 bytes");
  for (const char* offsets : {"[]", "[0]"}) {
    EXPECT_REFUSED(file_of("{\"a\":" + tensor("U8", "[1]", offsets) + "}", "x"),
                   "number(s) in data_offsets, expected 2");
  }
  EXPECT_REFUSED(file_of("{\"a\":" + tensor("U8", "[1]", "[0,1,1]") + "}", "x"),
                 "more than 2 numbers in data_offsets");
  EXPECT_REFUSED(file_of("{\"a\":" + tensor("U8", "[1]", "[-1,0]") + "}", "x"),
                 "has -1 in data_offsets");
}

TEST(Safetensors, RefusesOffsetsOutsideTheFile) {
  EXPECT_REFUSED(file_of("{\"a\":" + tensor("U8", "[5]", "[0,5]") + "}", "1234"),
                 "has data_offsets [0, 5], expected them within the 4 bytes of data");
  EXPECT_REFUSED(
      file_of("{\"a\":" + tensor("U8", "[1]", "[18446744073709551614,18446744073709551615]") + "}",
              "x"),
      "expected them within the 1 bytes of data");
}

TEST(Safetensors, RefusesOverlappingTensors) {
  EXPECT_REFUSED(file_of("{\"a\":" + tensor("U8", "[3]", "[0,3]") +
                             ",\"b\":" + tensor("U8", "[2]", "[2,4]") + "}",
                         "1234"),
                 "tensor 'b' has data_offsets [2, 4] which overlap another tensor, expected it to "
                 "start at 3");
  EXPECT_REFUSED(file_of("{\"a\":" + tensor("U8", "[2]", "[0,2]") +
                             ",\"b\":" + tensor("U8", "[2]", "[0,2]") + "}",
                         "12"),
                 "overlap another tensor");
}

TEST(Safetensors, RefusesHolesAndTrailingBytes) {
  EXPECT_REFUSED(file_of("{\"a\":" + tensor("U8", "[1]", "[1,2]") + "}", "12"),
                 "leave a hole, expected it to start at 0");
  EXPECT_REFUSED(file_of("{\"a\":" + tensor("U8", "[1]", "[0,1]") +
                             ",\"b\":" + tensor("U8", "[1]", "[2,3]") + "}",
                         "123"),
                 "leave a hole, expected it to start at 1");
  EXPECT_REFUSED(file_of("{\"a\":" + tensor("U8", "[1]", "[0,1]") + "}", "12"),
                 "the file has 2 bytes of data, expected 1 for its tensors");
  EXPECT_REFUSED(file_of("{}", "1"), "the file has 1 bytes of data, expected 0");
}

TEST(Safetensors, SentencesStayShortAndPrintable) {
  const std::string what = refusal(file_of("{\"\\u0000\\n" + std::string(100000, 'x') + "\":1}"));
  EXPECT_LT(what.size(), 300u);
  EXPECT_NE(what.find("'??xxx"), std::string::npos) << what;
}

class SafetensorsOnDisk : public testing::Test {
 protected:
  std::string contents() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void expect_rejected(const std::vector<TensorOut>& tensors, const std::string& part,
                       const std::map<std::string, std::string>& metadata = {}) const {
    try {
      write_safetensors(path_, tensors, metadata);
      ADD_FAILURE() << "written, expected: " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
    EXPECT_TRUE(fs::is_empty(folder_.path()));
  }
  template <class Action>
  std::string io_error(Action action) const {
    try {
      action();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::io);
      return error.what();
    }
    ADD_FAILURE() << "expected an Error";
    return "";
  }

  test::Folder folder_;
  const std::string path_ = folder_ / "t.safetensors";
};

TEST_F(SafetensorsOnDisk, WritesTheExpectedBytes) {
  const std::vector<TensorOut> tensors = {{"z", "U8", {3}, "abc", 3}, {"a", "I16", {}, "DE", 2}};
  write_safetensors(path_, tensors, {{"k", "v\"\n"}});
  std::string header =
      "{\"__metadata__\":{\"k\":\"v\\\"\\n\"},"
      "\"z\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
      "\"a\":{\"dtype\":\"I16\",\"shape\":[],\"data_offsets\":[3,5]}}";
  while (header.size() % 8 != 0) header += ' ';
  EXPECT_EQ(contents(), file_of(header, "abcDE"));
}

TEST_F(SafetensorsOnDisk, WritesAnEmptyFile) {
  write_safetensors(path_, {}, {});
  EXPECT_EQ(contents(), file_of("{}      "));
  EXPECT_TRUE(SafetensorsFile::open(path_).tensors().empty());
}

TEST_F(SafetensorsOnDisk, ReadsBackWhatItWrote) {
  const std::vector<float> weights = {1.5f, -2.0f, 0.0f, 1e30f, 5.0f, 6.0f};
  const std::string name = "layer \"0\"/\xC3\xA9.weight";
  const std::vector<TensorOut> tensors = {{"flag", "BOOL", {1}, "\1", 1},
                                          {"none", "F32", {4, 0}, nullptr, 0},
                                          {name, "F32", {2, 3}, weights.data(), 24}};
  const std::map<std::string, std::string> metadata = {{"format", "gallop"}, {"\xE2\x82\xAC", ""}};
  write_safetensors(path_, tensors, metadata);
  // Moved, to show that the views stay with the object.
  SafetensorsFile first = SafetensorsFile::open(path_);
  const SafetensorsFile file = std::move(first);
  EXPECT_EQ(file.name(), path_);
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.tensors().size(), 3u);
  ASSERT_NE(file.find(name), nullptr);
  std::vector<float> back(6);
  ASSERT_EQ(file.find(name)->bytes, 24u);
  std::memcpy(back.data(), file.find(name)->data, 24);
  EXPECT_EQ(back, weights);
  EXPECT_EQ(file.find(name)->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(file.find("none")->shape, (std::vector<int64_t>{4, 0}));
}

TEST_F(SafetensorsOnDisk, OpenRefusesATruncatedFileAtEveryByte) {
  const std::vector<TensorOut> tensors = {{"a", "U8", {5}, "abcde", 5}};
  write_safetensors(path_, tensors, {{"k", "v"}});
  for (std::size_t size = contents().size(); size-- > 0;) {
    fs::resize_file(path_, size);
    EXPECT_THROW(SafetensorsFile::open(path_), Error) << size;
  }
}

TEST_F(SafetensorsOnDisk, OpenedFileSurvivesTruncation) {
  const std::vector<TensorOut> tensors = {{"a", "U8", {5}, "abcde", 5}};
  write_safetensors(path_, tensors, {});
  const SafetensorsFile file = SafetensorsFile::open(path_);
  fs::resize_file(path_, 0);
  EXPECT_EQ(bytes_of(*file.find("a")), "abcde");
}

TEST_F(SafetensorsOnDisk, OpenNamesThePathAndTheReason) {
  std::string what = io_error([&] { SafetensorsFile::open(path_); });
  EXPECT_EQ(what, "cannot read '" + path_ + "': No such file or directory");
  what = io_error([&] { SafetensorsFile::open(folder_.path()); });
  EXPECT_NE(what.find("it is a directory, expected a file"), std::string::npos) << what;
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  what = io_error([&] { SafetensorsFile::open(path_); });
  EXPECT_NE(what.find("it is not a regular file"), std::string::npos) << what;
}

TEST_F(SafetensorsOnDisk, WriteRefusesWhatItCouldNotReadBack) {
  const std::string text = "0123456789";
  expect_rejected({{"a", "F12", {1}, text.data(), 1}}, "tensor 'a' has dtype 'F12'");
  expect_rejected({{"a", "F32", {2}, text.data(), 7}},
                  "tensor 'a' has 7 bytes, expected 8 for shape [2] of F32");
  expect_rejected({{"a", "U8", {-1}, text.data(), 1}}, "has shape [-1]");
  expect_rejected({{"a", "U8", {int64_t{1} << 62, 4}, text.data(), 0}}, "fewer than 2^63");
  expect_rejected({{"a", "U8", {1}, nullptr, 1}}, "has no data");
  expect_rejected({{"a", "U8", std::vector<int64_t>(65, 1), text.data(), 1}}, "has 65 dimensions");
  expect_rejected({{"__metadata__", "U8", {1}, text.data(), 1}}, "has a reserved name");
  expect_rejected({{"a", "U8", {1}, text.data(), 1}, {"a", "U8", {1}, text.data(), 1}},
                  "tensor 'a' was given twice");
  expect_rejected({{"\xff", "U8", {1}, text.data(), 1}}, "is not valid UTF-8");
  expect_rejected({}, "is not valid UTF-8", {{"k", "\xC3"}});
}

TEST_F(SafetensorsOnDisk, FailedWriteKeepsTheOldFile) {
  write_safetensors(path_, {}, {{"k", "old"}});
  const std::vector<TensorOut> wrong = {{"a", "F32", {2}, "x", 1}};
  EXPECT_THROW(write_safetensors(path_, wrong, {}), Error);
  EXPECT_EQ(SafetensorsFile::open(path_).metadata().at("k"), "old");
  EXPECT_THROW(write_safetensors(folder_ / "no/t", {}, {}), Error);
}

}  // namespace
}  // namespace gallop::io
