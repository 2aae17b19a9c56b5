// SPDX-License-Identifier: MIT
// Checkpoints that must not be loaded, and files that must not be lost.

#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "io/safetensors.h"
#include "optimizer/fixture.h"

namespace gallop::test {
namespace {

using nlohmann::json;
using Parts = std::initializer_list<std::string_view>;

std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}
void write_all(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

// A checkpoint in memory, to be written with something changed.
struct Contents {
  explicit Contents(const std::string& path) {
    const auto file = io::SafetensorsFile::open(path);
    metadata = file.metadata();
    for (const auto& [key, t] : file.tensors()) {
      const auto* bytes = reinterpret_cast<const char*>(t.data);
      tensors[key] = {t.dtype, t.shape, std::string(bytes, bytes + t.bytes)};
    }
  }
  void write(const std::string& path) const {
    std::vector<io::TensorOut> out;
    for (const auto& [key, t] : tensors) {
      out.push_back({key, t.dtype, t.shape, t.bytes.data(), t.bytes.size()});
    }
    io::write_safetensors(path, out, metadata);
  }
  void edit_group(const std::function<void(json&)>& change) {
    json groups = json::parse(metadata["groups"]);
    change(groups[0]);
    metadata["groups"] = groups.dump();
  }

  struct Tensor {
    std::string dtype;
    std::vector<int64_t> shape;
    std::string bytes;
  };
  std::map<std::string, std::string> metadata;
  std::map<std::string, Tensor> tensors;
};

Plan small(const Variant& v = plain("adam"), const Formats& f = kF32) {
  Plan plan{v, f};
  plan.sizes = {{1, 3}, {5}};
  return plan;
}

class Checkpoint : public testing::Test {
 protected:
  // Saves what this plan gives after two steps.
  void save(const Plan& plan) {
    World w(plan);
    train(w);
    w.optimizer.save(path_);
  }
  // Loading throws and changes nothing.
  void expect_refused(const Plan& plan, Parts parts, ErrorCode code = ErrorCode::invalid_file) {
    World w(plan), twin(plan);
    for (World* world : {&w, &twin}) {
      train(*world);
      world->optimizer.set_all("lr", 0.125);
    }
    expect_error(code, parts, [&] { w.optimizer.load(path_); });
    expect_error(code, {path_}, [&] { w.optimizer.load(path_); });
    for (World* world : {&w, &twin}) world->optimizer.step();
    EXPECT_EQ(difference(w.snapshot(), twin.snapshot()), "");
    EXPECT_EQ(w.optimizer.skipped(), twin.optimizer.skipped());
    EXPECT_EQ(w.optimizer.get(0, "lr"), 0.125);
    EXPECT_EQ(w.optimizer.current_lr(0), twin.optimizer.current_lr(0));
  }
  void expect_edit_refused(Parts parts, const std::function<void(Contents&)>& edit) {
    save(small());
    Contents c(path_);
    edit(c);
    c.write(path_);
    expect_refused(small(), parts);
  }

  static void train(World& w) {
    for (uint64_t k = 0; k < 2; ++k) {
      w.fill_grads(k);
      w.optimizer.step();
    }
  }

  Folder folder_;
  std::string path_ = folder_ / "checkpoint";
};

TEST_F(Checkpoint, LoadsWhatItSaved) {
  save(small());
  Contents(path_).write(path_);
  World w(small());
  EXPECT_NO_THROW(w.optimizer.load(path_));
  EXPECT_EQ(w.optimizer.steps(2), 2);
}

TEST_F(Checkpoint, RefusesAnyTruncation) {
  save(small());
  const std::string whole = read_all(path_);
  World w(small());
  train(w);
  const Snapshot before = w.snapshot();
  for (size_t n = 0; n < whole.size(); n += n < 64 || n + 64 > whole.size() ? 1 : 29) {
    SCOPED_TRACE(std::to_string(n) + " of " + std::to_string(whole.size()) + " bytes");
    write_all(path_, std::string_view(whole).substr(0, n));
    expect_error(ErrorCode::invalid_file, {path_}, [&] { w.optimizer.load(path_); });
    ASSERT_EQ(difference(before, w.snapshot()), "");
  }
  write_all(path_, whole + "x");
  expect_error(ErrorCode::invalid_file, {path_}, [&] { w.optimizer.load(path_); });
  write_all(path_, whole);
  EXPECT_NO_THROW(w.optimizer.load(path_));
}

TEST_F(Checkpoint, RefusesAnotherRule) {
  save(small());
  expect_refused(small(plain("adamw")), {"'adam'", "'adamw'"});
}

TEST_F(Checkpoint, RefusesOtherShapes) {
  save(small());
  Plan other = small();
  other.sizes = {{1, 3}, {6}};
  expect_refused(other, {"state.p2.exp_avg", "[5]", "[6]"});
}

TEST_F(Checkpoint, RefusesOtherParametersAndGroups) {
  save(small());
  Plan other = small();
  other.sizes = {{1, 3}};
  expect_refused(other, {"2 groups", "has 1"});
  other.sizes = {{1}, {3, 5}};
  expect_refused(other, {"group 0", R"(["p0","p1"])", R"(["p0"])"});
  float data[3] = {}, grad[3] = {};
  Optimizer o("adam");
  o.add_group({{"p0", {1}, data, grad}, {"other", {3}, data, grad}});
  o.add_group({});
  expect_error(ErrorCode::invalid_file, {"p1", "other"}, [&] { o.load(path_); });
}

TEST_F(Checkpoint, RefusesOtherFormats) {
  Formats bf16 = kF32;
  bf16.state = StateFormat::bf16;
  bf16.state_rounding = Rounding::stochastic;
  save(small(plain("adam"), bf16));
  expect_refused(small(), {"formats", "bf16", "fp32"});
  Formats nearest = bf16;
  nearest.state_rounding = Rounding::nearest;
  expect_refused(small(plain("adam"), nearest), {"state_rounding", "stochastic", "nearest"});
  save(small());
  expect_refused(small(plain("adam"), kF64), {"state.p0.exp_avg", "F32", "F64"});
  Formats master = kF32;
  master.param = DType::bf16;
  master.rounding = Rounding::master;
  save(small(plain("adam"), master));
  master.rounding = Rounding::remainder;
  expect_refused(small(plain("adam"), master), {"rounding", "master", "remainder"});
  Plan maximizing = small(plain("adam"), master);
  maximizing.formats.rounding = Rounding::master;
  maximizing.group.maximize = true;
  expect_refused(maximizing, {"maximize", "false", "true"});
}

TEST_F(Checkpoint, RefusesOtherOptionalStatesByName) {
  Variant amsgrad = plain("adam");
  amsgrad.hyper.emplace_back("amsgrad", 1);
  save(small(amsgrad));
  expect_refused(small(), {"amsgrad"});
}

TEST_F(Checkpoint, RefusesExtraAndMissingTensors) {
  expect_edit_refused({"10 tensors", "expected 9"}, [](Contents& c) {
    c.tensors["state.p9.exp_avg"] = c.tensors["state.p0.exp_avg"];
  });
  for (const char* key : {"state.p1.exp_avg_sq", "state.p2.step"}) {
    expect_edit_refused({key, "missing"}, [&](Contents& c) { c.tensors.erase(key); });
  }
}

TEST_F(Checkpoint, RefusesWrongTensors) {
  expect_edit_refused({"state.p1.exp_avg", "I32", "F32"},
                      [](Contents& c) { c.tensors["state.p1.exp_avg"].dtype = "I32"; });
  expect_edit_refused({"state.p1.exp_avg", "[3, 1]", "[3]"}, [](Contents& c) {
    c.tensors["state.p1.exp_avg"].shape = {3, 1};
  });
  expect_edit_refused({"state.p0.step", "-1"},
                      [](Contents& c) { c.tensors["state.p0.step"].bytes.assign(8, '\xff'); });
}

TEST_F(Checkpoint, RefusesForeignMetadata) {
  for (const char* key : {"format", "version", "optimizer", "state", "groups"}) {
    expect_edit_refused({key, "missing"}, [&](Contents& c) { c.metadata.erase(key); });
  }
  expect_edit_refused({"'other'", "'gallop.optimizer'"},
                      [](Contents& c) { c.metadata["format"] = "other"; });
  expect_edit_refused({"version", "'2'", "'1'"}, [](Contents& c) { c.metadata["version"] = "2"; });
}

TEST_F(Checkpoint, RefusesDamagedMetadata) {
  for (const char* text : {"", "{", "[]", "null", "7", R"({"skipped": "x"})"}) {
    expect_edit_refused({}, [&](Contents& c) { c.metadata["state"] = text; });
    expect_edit_refused({}, [&](Contents& c) { c.metadata["groups"] = text; });
  }
  for (const char* key : {"hyper", "schedule", "step", "params", "maximize", "rounding"}) {
    expect_edit_refused({key}, [&](Contents& c) { c.edit_group([&](json& g) { g.erase(key); }); });
  }
  expect_edit_refused({"state"}, [](Contents& c) {
    c.edit_group([](json& g) {
      g.erase("formats");  // absent in files of earlier versions
      g.erase("state");
    });
  });
  expect_edit_refused({"lr"},
                      [](Contents& c) { c.edit_group([](json& g) { g["hyper"].erase("lr"); }); });
}

TEST_F(Checkpoint, RefusesImpossibleValues) {
  const auto refused = [&](Parts parts, const std::function<void(json&)>& change) {
    expect_edit_refused(parts, [&](Contents& c) { c.edit_group(change); });
  };
  refused({"lr", "-1"}, [](json& g) { g["hyper"]["lr"] = -1; });
  refused({"beta1", "1"}, [](json& g) { g["hyper"]["beta1"] = 1; });
  refused({"amsgrad", "0.5"}, [](json& g) { g["hyper"]["amsgrad"] = 0.5; });
  refused({"cubic"}, [](json& g) { g["schedule"] = "cubic"; });
  refused({"step", "-3"}, [](json& g) { g["step"] = -3; });
  expect_edit_refused({"skipped", "-3"}, [](Contents& c) {
    json state = json::parse(c.metadata["state"]);
    state["skipped"] = -3;
    c.metadata["state"] = state.dump();
  });
}

TEST_F(Checkpoint, RefusesWhatIsNoCheckpoint) {
  expect_refused(small(), {"checkpoint"}, ErrorCode::io);  // no such file
  write_all(path_, "");
  expect_refused(small(), {});
  write_all(path_, "this is a text and no safetensors file, though it is longer than a header");
  expect_refused(small(), {});
  path_ = folder_.path();
  expect_refused(small(), {}, ErrorCode::io);
}

TEST_F(Checkpoint, NamesThatJsonCannotHoldAreRefusedAsAnError) {
  float data[1] = {}, grad[1] = {};
  Optimizer o("adam");
  expect_error(ErrorCode::invalid_argument, {"UTF-8"}, [&] {
    o.add_group({{"\xff", {1}, data, grad}});
    o.save(path_);
  });
}

TEST_F(Checkpoint, AnyOtherNameSurvives) {
  float data[1] = {}, grad[1] = {};
  Optimizer saved("adam"), loaded("adam");
  for (Optimizer* o : {&saved, &loaded}) {
    std::vector<Param> params;
    for (const char* name :
         {"", "a.b", "state.x.step", "\"quoted\\\"", "\n\t\x01", "größe", "__metadata__", "step"}) {
      params.push_back({name, {1}, data, grad});
    }
    o->add_group(params);
  }
  saved.step();
  saved.save(path_);
  loaded.load(path_);
  EXPECT_EQ(loaded.steps(7), 1);
}

}  // namespace
}  // namespace gallop::test
