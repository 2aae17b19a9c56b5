// SPDX-License-Identifier: MIT
#include "check/golden.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <set>

#include "folder.h"
#include "gallop/error.h"
#include "io/safetensors.h"

namespace gallop::check {
namespace {

namespace fs = std::filesystem;
const std::string kGoldens = GALLOP_TEST_DATA "/golden";

std::string text(const lab::Row& row, std::string_view field) {
  const lab::Value* value = row.find(field);
  const std::string* s = value == nullptr ? nullptr : std::get_if<std::string>(value);
  return s == nullptr ? "" : *s;
}

// A golden file in memory that a test may change.
struct Recording {
  std::map<std::string, std::string> metadata;
  std::map<std::string, io::TensorView> shapes;
  std::map<std::string, std::vector<std::byte>> data;

  explicit Recording(const std::string& path) {
    const io::SafetensorsFile file = io::SafetensorsFile::open(path);
    metadata = file.metadata();
    shapes = file.tensors();
    for (const auto& [name, t] : shapes) data[name].assign(t.data, t.data + t.bytes);
  }
  // Multiplies one element whose magnitude is not tiny; returns its index.
  size_t scale_one(const std::string& tensor, float factor) {
    std::vector<std::byte>& bytes = data.at(tensor);
    for (size_t i = 0; i < bytes.size() / sizeof(float); ++i) {
      float x;
      std::memcpy(&x, bytes.data() + i * sizeof x, sizeof x);
      if (std::abs(x) < 0.01f) continue;
      x *= factor;
      std::memcpy(bytes.data() + i * sizeof x, &x, sizeof x);
      return i;
    }
    ADD_FAILURE() << tensor << " has no element to change";
    return 0;
  }
  void write(const std::string& path) const {
    std::vector<io::TensorOut> out;
    for (const auto& [name, t] : shapes) {
      out.push_back({name, t.dtype, t.shape, data.at(name).data(), data.at(name).size()});
    }
    io::write_safetensors(path, out, metadata);
  }
};

class Goldens : public testing::Test {
 protected:
  // The only row after `change` was made to a copy of a golden file.
  lab::Row replay_changed(const std::string& file, const std::function<void(Recording&)>& change) {
    Recording recording(kGoldens + "/" + file);
    change(recording);
    recording.write(folder + "/copy.safetensors");
    const lab::Table table = replay_goldens(folder, "", 1);
    EXPECT_EQ(table.rows.size(), 1u);
    return table.rows.at(0);
  }
  // What replaying a folder is refused with; "" when it is not.
  static std::string refusal(const std::string& where, const std::string& only = "") {
    try {
      replay_goldens(where, only, 1);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }

  test::Folder own;
  const std::string folder = own.path();
};

TEST_F(Goldens, EveryRecordedRunPassesButTwoWhichSayWhyTheyAreSkipped) {
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(kGoldens)) {
    files += entry.path().extension() == ".safetensors";
  }
  const lab::Table table = replay_goldens(kGoldens, "", 2);
  EXPECT_EQ(table.rows.size(), files);
  EXPECT_GE(files, 18u);
  for (const lab::Row& row : table.rows) {
    const std::string optimizer = text(row, "optimizer");
    const bool skipped = optimizer == "ademamix" || optimizer == "lamb";
    EXPECT_EQ(text(row, "status"), skipped ? "skip" : "pass") << text(row, "file");
    EXPECT_EQ(text(row, "detail").empty(), !skipped) << text(row, "detail");
  }
}

TEST_F(Goldens, OnlyIsSearchedInTheOptimizerThatTheFileNames) {
  fs::copy(kGoldens + "/lion-2.safetensors", folder + "/adamw-9.safetensors");
  fs::copy(kGoldens + "/adamw-1.safetensors", folder + "/lion-9.safetensors");
  fs::copy(kGoldens + "/adam-2.safetensors", folder + "/b.safetensors");
  const auto files = [&](const std::string& only) {
    std::set<std::string> out;
    for (const lab::Row& row : replay_goldens(folder, only, 1).rows) out.insert(text(row, "file"));
    return out;
  };
  EXPECT_EQ(files("^lion$"), std::set<std::string>{"adamw-9.safetensors"});
  EXPECT_EQ(files("^adam$"), std::set<std::string>{"b.safetensors"});
  EXPECT_EQ(files("adam"), (std::set<std::string>{"b.safetensors", "lion-9.safetensors"}));
  EXPECT_EQ(files("").size(), 3u);
}

TEST_F(Goldens, AnUnchangedCopyPasses) {
  EXPECT_EQ(text(replay_changed("adamw-1.safetensors", [](Recording&) {}), "status"), "pass");
}

TEST_F(Goldens, ARecordedParameterOffByAThousandthFailsByName) {
  for (const char* file : {"adamw-1.safetensors", "sgd-2.safetensors", "lion-2.safetensors"}) {
    size_t changed = 0;
    const lab::Row row =
        replay_changed(file, [&](Recording& r) { changed = r.scale_one("p.3.after.12", 1.001f); });
    EXPECT_EQ(text(row, "status"), "fail") << file;
    const std::string element = "p.3.after.12[" + std::to_string(changed) + "]";
    EXPECT_NE(text(row, "detail").find(element), std::string::npos) << text(row, "detail");
  }
}

TEST_F(Goldens, AStartOffByAThousandthFails) {
  const lab::Row row =
      replay_changed("adamw-1.safetensors", [](Recording& r) { r.scale_one("p.3", 1.001f); });
  EXPECT_EQ(text(row, "status"), "fail");
}

TEST_F(Goldens, ARecordedStateOffByAThousandthFails) {
  const lab::Row row = replay_changed(
      "adan-3.safetensors", [](Recording& r) { r.scale_one("exp_avg.3.after.12", 1.001f); });
  EXPECT_EQ(text(row, "status"), "fail");
  EXPECT_NE(text(row, "detail").find("exp_avg.3.after.12["), std::string::npos);
}

TEST_F(Goldens, AnotherHyperParameterFails) {
  const lab::Row row = replay_changed("adamw-1.safetensors", [](Recording& r) {
    r.metadata["hyper"] = R"({"lr": 0.001, "weight_decay": 0.1, "betas": [0.9, 0.96]})";
  });
  EXPECT_EQ(text(row, "status"), "fail");
}

// ---- 8-bit state, and its maps ----

TEST_F(Goldens, AFewOtherCodesPassAndManyFail) {
  for (size_t changed : {10, 200}) {  // of 5,120
    const lab::Row row = replay_changed("adamw8bit-0.safetensors", [&](Recording& r) {
      std::vector<std::byte>& codes = r.data.at("state1.0.after.6");
      for (size_t i = 0; i < changed; ++i) codes[i] ^= std::byte{1};
    });
    EXPECT_EQ(text(row, "status"), changed == 10 ? "pass" : "fail");
    if (changed == 10) continue;
    EXPECT_NE(text(row, "detail").find("state1.0.after.6"), std::string::npos);
  }
}

// Parameters are near 0.1 to 1, and 12 steps of 0.001 change them by 0.012 at most.
TEST_F(Goldens, With8BitStateOneParameterMayBeOffByATwentiethOfItsChangeButNotByHalf) {
  for (bool far : {false, true}) {
    const lab::Row row = replay_changed("lion8bit-1.safetensors", [&](Recording& r) {
      float x;
      std::byte* at = r.data.at("p.3.after.12").data();
      std::memcpy(&x, at, sizeof x);
      x += far ? 0.007f : 0.005f;
      std::memcpy(at, &x, sizeof x);
    });
    EXPECT_EQ(text(row, "status"), far ? "fail" : "pass");
    EXPECT_EQ(text(row, "detail").find("p.3.after.12[0]") != std::string::npos, far);
  }
}

TEST_F(Goldens, AnotherScaleFails) {
  const lab::Row row = replay_changed(
      "lion8bit-1.safetensors", [](Recording& r) { r.scale_one("absmax1.0.after.3", 1.05f); });
  EXPECT_EQ(text(row, "status"), "fail");
  EXPECT_NE(text(row, "detail").find("absmax1.0.after.3["), std::string::npos);
}

TEST_F(Goldens, AnotherMapFails) {
  const lab::Row row = replay_changed("dynamic-map.safetensors",
                                      [](Recording& r) { r.scale_one("unsigned", 1.00001f); });
  EXPECT_EQ(text(row, "status"), "fail");
  EXPECT_NE(text(row, "detail").find("unsigned["), std::string::npos) << text(row, "detail");
}

// ---- what cannot be replayed ----

TEST_F(Goldens, AnUnknownOptimizerIsSkippedByName) {
  const lab::Row row = replay_changed("sgd-2.safetensors",
                                      [](Recording& r) { r.metadata["optimizer"] = "mystery"; });
  EXPECT_EQ(text(row, "status"), "skip");
  EXPECT_NE(text(row, "detail").find("'mystery'"), std::string::npos) << text(row, "detail");
}

TEST_F(Goldens, ARunWithNothingToCompareIsSkippedNotPassed) {
  const lab::Row row =
      replay_changed("sgd-2.safetensors", [](Recording& r) { r.metadata["steps"] = "0"; });
  EXPECT_EQ(text(row, "status"), "skip");
}

TEST_F(Goldens, ATruncatedFileIsRefusedByName) {
  for (uintmax_t bytes : {0, 7, 100, 50000}) {
    const std::string copy = folder + "/short.safetensors";
    fs::copy_file(kGoldens + "/sgd-2.safetensors", copy, fs::copy_options::overwrite_existing);
    fs::resize_file(copy, bytes);
    const std::string why = refusal(folder);
    EXPECT_NE(why.find("short.safetensors"), std::string::npos) << bytes << ": " << why;
  }
}

TEST_F(Goldens, AnEmptyFolderIsRefusedByName) {
  EXPECT_NE(refusal(folder).find(folder), std::string::npos) << refusal(folder);
}

TEST_F(Goldens, AMissingFolderIsRefusedByName) {
  const std::string missing = folder + "/nowhere";
  EXPECT_NE(refusal(missing).find(missing + " is not a folder"), std::string::npos);
}

TEST_F(Goldens, APatternThatMatchesNothingIsRefused) {
  EXPECT_NE(refusal(kGoldens, "^nothing$").find("'^nothing$'"), std::string::npos);
}

TEST_F(Goldens, ABrokenPatternIsRefusedByItsText) {
  std::string why;
  try {
    replay_goldens(kGoldens, "adam(", 1);
  } catch (const std::exception& e) {
    why = e.what();
  }
  EXPECT_NE(why.find("adam("), std::string::npos) << why;
}

}  // namespace
}  // namespace gallop::check
