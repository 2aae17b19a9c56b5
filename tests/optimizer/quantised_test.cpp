// SPDX-License-Identifier: MIT
// Optimizers whose state shares scales: the same bits however a step is carried out, and what
// becomes of values that cannot be stored.
#include <algorithm>
#include <cmath>
#include <limits>

#include "optimizer/fixture.h"

namespace gallop::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr StateFormat kOwn[] = {StateFormat::q8, StateFormat::q4, StateFormat::fp8};

Variant with_beta1(const std::string& rule) {
  Variant v = plain(rule);
  v.hyper.emplace_back("beta1", 0.9);
  return v;
}

std::vector<Variant> some_rules() {
  return {plain("adamw"), plain("lion"),           plain("adan"), plain("lamb"),
          plain("adamp"), with_beta1("adafactor"), plain("muon")};
}

Plan plan_of(const Variant& v, StateFormat f) {
  Plan plan{v};
  plan.formats.state = f;
  plan.options.seed = 3;
  plan.sizes = {{0, 1, 255, 256, 5120}, {257, 1003, 4608}};
  return plan;
}

Plan one_tensor(const std::string& rule, StateFormat f, int64_t n) {
  Plan plan = plan_of(plain(rule), f);
  plan.sizes = {{n}};
  return plan;
}

void train(World& w, uint64_t from, uint64_t to) {
  for (uint64_t k = from; k < to; ++k) {
    w.fill_grads(k);
    w.optimizer.step();
  }
}

// ---- how a step is carried out ----

// Two steps, with NaN and Inf among the gradients of rules where they stay in their place.
Snapshot result(Plan plan, Mode mode, int threads, int64_t* not_finite) {
  plan.options.mode = mode;
  plan.options.threads = threads;
  World w(plan);
  for (uint64_t k = 0; k < 2; ++k) {
    w.fill_grads(k);
    if (!has_norms(plan.variant)) {
      w.grads[2].set(17, kNan);
      w.grads[4].set(5000, kInf);
      w.grads[6].set(1001, -kInf);
    }
    w.step_all_entries();
  }
  EXPECT_TRUE(w.guards_intact());
  *not_finite = w.optimizer.not_finite();
  return w.snapshot();
}

TEST(Quantised, ModesAndThreadsGiveTheSameBits) {
  for (const Variant& v : some_rules()) {
    for (StateFormat f : kShared) {
      Plan plan = plan_of(v, f);
      plan.sizes.back().push_back(30011);
      int64_t want_count = 0, count = 0;
      const Snapshot want = result(plan, Mode::multi, 1, &want_count);
      EXPECT_GE(want_count, has_norms(v) ? 0 : 3);
      for (Mode mode : kModes) {
        for (int threads : {1, 2, 7}) {
          EXPECT_EQ(difference(want, result(plan, mode, threads, &count)), "")
              << v.name << " " << to_string(f) << " " << to_string(mode) << " " << threads;
          EXPECT_EQ(count, want_count) << v.name << " " << to_string(f) << " " << to_string(mode);
        }
      }
    }
  }
}

// A norm takes what is not finite to its whole tensor, and does so in every mode.
TEST(Quantised, ModesAgreeOnNanWhereThereAreNorms) {
  for (const char* rule : {"lamb", "adamp", "lars"}) {
    for (StateFormat f : kShared) {
      Snapshot results[3];
      int64_t counts[3];
      for (size_t m = 0; m < 3; ++m) {
        Plan plan = plan_of(plain(rule), f);
        plan.options.mode = kModes[m];
        World w(plan);
        for (uint64_t k = 0; k < 2; ++k) {
          w.fill_grads(k);
          w.grads[4].set(300, kNan);
          w.optimizer.step();
          // As good as any other NaN, whose bits depend on the order of operands.
          for (int64_t i = 0; i < w.params[4].size(); ++i) {
            if (std::isnan(w.params[4].at(i))) w.params[4].set(i, 7);
          }
        }
        results[m] = w.snapshot();
        counts[m] = w.optimizer.not_finite();
      }
      for (size_t m : {0, 1}) {
        EXPECT_EQ(difference(results[m], results[2]), "") << rule << " " << to_string(f);
        EXPECT_EQ(counts[m], counts[2]) << rule << " " << to_string(f);
      }
    }
  }
}

TEST(Quantised, StatesAreSmallOnesWhereTheyAreExpected) {
  for (const Variant& v : some_rules()) {
    for (StateFormat f : kShared) {
      const World w(plan_of(v, f));
      int shared = 0;
      for (size_t i = 0; i < w.params.size(); ++i) {
        for (const StateView& s : w.optimizer.states(i)) shared += s.format == f ? 1 : 0;
      }
      EXPECT_GE(shared, 2) << v.name << " " << to_string(f);
    }
  }
}

// The first step's state is not rounded before it is used. On a GPU quotients and roots are 2^-22
// from exact, and so is the change.
TEST(Quantised, TheFirstStepIsThatOfFp32State) {
  for (const char* rule : {"adamw", "lion", "adan", "sgd", "ademamix", "rmsprop"}) {
    for (StateFormat f : kShared) {
      const World before(plan_of(plain(rule), f));
      World wide(plan_of(plain(rule), StateFormat::f32)), narrow(plan_of(plain(rule), f));
      const bool gpu = wide.optimizer.options().device.kind == Device::Kind::cuda;
      for (World* w : {&wide, &narrow}) train(*w, 0, 1);
      for (size_t i = 0; i < wide.params.size(); ++i) {
        for (int64_t k = 0; k < wide.params[i].size(); ++k) {
          const double want = wide.params[i].at(k), change = want - before.params[i].at(k);
          const double bound = gpu ? 0x1p-21 * std::abs(change) + 0x1p-23 * std::abs(want) : 0;
          ASSERT_NEAR(want, narrow.params[i].at(k), bound) << rule << " " << to_string(f);
        }
      }
    }
  }
}

TEST(Quantised, SeedsDecideTheDither) {
  Snapshot results[3];
  for (size_t i = 0; i < 3; ++i) {
    Plan plan = plan_of(plain("adamw"), StateFormat::q8);
    plan.options.seed = i == 2 ? 8 : 7;
    World w(plan);
    train(w, 0, 2);
    results[i] = w.snapshot();
  }
  EXPECT_EQ(difference(results[0], results[1]), "");
  EXPECT_NE(difference(results[0], results[2]), "");
}

// ---- checkpoints ----

void expect_resumed(const Plan& plan) {
  const Folder folder;
  World whole(plan), first(plan);
  for (World* w : {&whole, &first}) {
    train(*w, 0, 2);
    w->fill_grads(2);
    if (!has_norms(plan.variant)) w->grads[3].set(100, kNan);
    w->optimizer.step();
  }
  first.optimizer.save(folder / "checkpoint");
  Plan fresh = plan;
  fresh.options.seed += 1;
  World second(fresh);
  copy_bytes(second.params, first.params);
  second.optimizer.load(folder / "checkpoint");
  ASSERT_EQ(difference(first.snapshot(), second.snapshot()), "");
  EXPECT_EQ(first.optimizer.not_finite(), second.optimizer.not_finite());
  train(whole, 3, 6);
  train(second, 3, 6);
  ASSERT_EQ(difference(whole.snapshot(), second.snapshot()), "");
  EXPECT_EQ(whole.optimizer.not_finite(), second.optimizer.not_finite());
}

TEST(Quantised, ResumesToTheBit) {
  for (const Variant& v : some_rules()) {
    for (StateFormat f : kShared) {
      SCOPED_TRACE(v.name + " " + std::string(to_string(f)));
      expect_resumed(plan_of(v, f));
    }
  }
}

TEST(Quantised, ResumesToTheBitWithAFormatForEachParameter) {
  for (const Variant& v : some_rules()) {
    SCOPED_TRACE(v.name);
    Plan plan = plan_of(v, StateFormat::f32);
    plan.policy = "p2=8bit-bnb,p3=8bit,p4=4bit,p5=bf16,p6=fp8,*=8bit";
    expect_resumed(plan);
  }
}

TEST(Quantised, ACheckpointOfOtherFormatsIsRefused) {
  const Folder folder;
  const std::string path = folder / "checkpoint";
  World saved(one_tensor("adamw", StateFormat::q8, 1003));
  train(saved, 0, 2);
  saved.optimizer.save(path);
  for (StateFormat f : {StateFormat::f32, StateFormat::bf16, StateFormat::bnb8, StateFormat::q4,
                        StateFormat::fp8}) {
    World other(one_tensor("adamw", f, 1003));
    train(other, 0, 1);
    const Snapshot before = other.snapshot();
    expect_error(ErrorCode::invalid_file, {path, "group 0", "8bit", to_string(f)},
                 [&] { other.optimizer.load(path); });
    EXPECT_EQ(difference(before, other.snapshot()), "");
  }
  // Another policy that chooses the same is none.
  Plan same = one_tensor("adamw", StateFormat::f32, 1003);
  same.policy = "p0=8bit,4bit";
  World other(same);
  EXPECT_NO_THROW(other.optimizer.load(path));
}

// ---- gradients that are not finite ----

bool is_zero(const World& w, size_t param, int64_t i) {
  for (const StateView& v : w.optimizer.states(param)) {
    if (check::read_state(v, i) != 0) return false;
  }
  return true;
}

void expect_states_equal(const World& a, const World& b, int64_t but = -1) {
  const auto x = a.optimizer.states(0), y = b.optimizer.states(0);
  for (size_t j = 0; j < x.size(); ++j) {
    for (int64_t i = 0; i < x[j].size; ++i) {
      if (i == but) continue;
      ASSERT_EQ(check::read_state(x[j], i), check::read_state(y[j], i)) << x[j].name << " " << i;
    }
  }
}

// A bad gradient beside a run where it is zero. The element's state was zero before, or small.
void try_bad(const std::string& rule, StateFormat f, double bad, bool fresh) {
  constexpr int64_t kBad = 300;
  SCOPED_TRACE(rule + " " + std::string(to_string(f)));
  // Without decay, which may be part of the gradient.
  const auto plan = [&](StateFormat format) {
    Plan out = one_tensor(rule, format, 1003);
    out.variant.hyper = {{"lr", 0.01}, {"weight_decay", 0}};
    return out;
  };
  World hit(plan(f)), zero(plan(f)), wide(plan(StateFormat::f32));
  for (World* w : {&hit, &zero, &wide}) {
    if (!fresh) {
      w->fill_grads(1);
      w->grads[0].set(kBad, 0.02);
      w->optimizer.step();
    }
    w->fill_grads(2);
    w->grads[0].set(kBad, w == &zero ? 0 : bad);
  }
  const double before = hit.params[0].at(kBad);
  for (World* w : {&hit, &zero, &wide}) w->optimizer.step();
  EXPECT_EQ(hit.optimizer.not_finite(), 1);
  EXPECT_EQ(zero.optimizer.not_finite(), 0);
  EXPECT_EQ(wide.optimizer.not_finite(), 0);
  EXPECT_TRUE(is_zero(hit, 0, kBad));
  // Its block is stored as if the gradient had been zero; the scale is another's.
  expect_states_equal(hit, zero, fresh ? -1 : kBad);
  for (int64_t i = 0; i < 1003; ++i) {
    if (i == kBad) continue;
    ASSERT_EQ(hit.params[0].at(i), zero.params[0].at(i)) << i;
  }
  const double after = hit.params[0].at(kBad);
  if (f == StateFormat::bnb8) {
    EXPECT_EQ(after, before);
  } else if (fresh) {  // the formula's, as with fp32 state
    EXPECT_TRUE(after == wide.params[0].at(kBad) ||
                (std::isnan(after) && std::isnan(wide.params[0].at(kBad))))
        << after;
  } else {
    EXPECT_EQ(std::isfinite(after), std::isfinite(wide.params[0].at(kBad)));
  }
  // It goes on from there.
  hit.fill_grads(3);
  hit.grads[0].set(kBad, 0.3);
  hit.params[0].set(kBad, 1);
  hit.optimizer.step();
  EXPECT_EQ(hit.optimizer.not_finite(), 1);
  EXPECT_FALSE(is_zero(hit, 0, kBad));
  EXPECT_TRUE(std::isfinite(hit.params[0].at(kBad)));
}

TEST(Quantised, ABadGradientClearsItsOwnElementOnly) {
  for (const char* rule : {"adamw", "lion", "ademamix", "rmsprop"}) {
    for (StateFormat f : kShared) {
      for (double bad : {kNan, kInf, -kInf}) {
        try_bad(rule, f, bad, true);
        try_bad(rule, f, bad, false);
      }
    }
  }
}

TEST(Quantised, BadElementsAreCountedOnceEach) {
  for (StateFormat f : kShared) {
    World w(one_tensor("adamw", f, 1003));
    w.fill_grads(1);
    for (int64_t i : {0, 1, 255, 256, 1002}) w.grads[0].set(i, i % 2 == 0 ? kNan : kInf);
    w.optimizer.step();
    EXPECT_EQ(w.optimizer.not_finite(), 5) << to_string(f);
    // A parameter that is no number would make its state that again: Adam's decay reads it.
    w.params[0].fill_normal(1, 1);
    w.fill_grads(2);
    w.grads[0].set(700, kNan);
    w.optimizer.step();
    EXPECT_EQ(w.optimizer.not_finite(), 6) << to_string(f);
  }
}

TEST(Quantised, AnOverflowOfOneStateClearsThatOneOnly) {
  for (StateFormat f : kOwn) {
    World w(one_tensor("adamw", f, 1003));
    w.fill_grads(1);
    w.grads[0].set(5, 1e25);  // its square is infinite
    w.optimizer.step();
    EXPECT_EQ(w.optimizer.not_finite(), 1) << to_string(f);
    const auto states = w.optimizer.states(0);
    EXPECT_NEAR(check::read_state(states[0], 5), 1e24, 1e19);
    EXPECT_EQ(check::read_state(states[1], 5), 0);
  }
}

TEST(Quantised, ASkippedStepCountsNothing) {
  for (StateFormat f : kShared) {
    Plan plan = one_tensor("adamw", f, 1003);
    plan.options.skip_nonfinite = true;
    World w(plan);
    train(w, 0, 1);
    const Snapshot before = w.snapshot();
    w.grads[0].set(300, kNan);
    w.optimizer.step();
    EXPECT_EQ(w.optimizer.skipped(), 1);
    EXPECT_EQ(w.optimizer.not_finite(), 0);
    EXPECT_EQ(difference(before, w.snapshot()), "");
  }
}

TEST(Quantised, ResetClearsScalesToo) {
  for (StateFormat f : kShared) {
    World used(plan_of(plain("adamw"), f)), fresh(plan_of(plain("adamw"), f));
    train(used, 0, 3);
    used.optimizer.reset_state();
    for (const StateView& v : used.optimizer.states(4)) {
      for (int64_t i = 0; i < v.size; ++i) ASSERT_EQ(check::read_state(v, i), 0);
    }
    copy_bytes(used.params, fresh.params);
    for (World* w : {&used, &fresh}) train(*w, 5, 7);
    EXPECT_EQ(difference(used.snapshot(), fresh.snapshot()), "") << to_string(f);
  }
}

// ---- bytes ----

TEST(Quantised, BytesAreThoseOfCodesAndScales) {
  constexpr int64_t kN = 1 << 14;
  const auto per_element = [](const char* rule, StateFormat f) {
    const World w(one_tensor(rule, f, kN));
    return static_cast<double>(w.optimizer.bytes_per_step()) / kN;
  };
  EXPECT_EQ(per_element("adamw", StateFormat::q8), 16.0625);
  EXPECT_EQ(per_element("adamw", StateFormat::bnb8), 16.0625);
  EXPECT_EQ(per_element("adamw", StateFormat::fp8), 16.0625);
  EXPECT_EQ(per_element("adamw", StateFormat::q4), 14.125);
  EXPECT_EQ(per_element("lion", StateFormat::q8), 14.03125);
  EXPECT_EQ(per_element("lion", StateFormat::q4), 13.0625);

  const auto bytes = [](StateFormat f) {
    const World w(one_tensor("adamw", f, 1003));
    int64_t sum = 0;
    for (const StateView& v : w.optimizer.states(0)) {
      sum += v.bytes + 4 * v.scale_count();
    }
    EXPECT_GE(w.optimizer.state_bytes(), sum);
    EXPECT_LE(w.optimizer.state_bytes(), sum + 4 * 512);
    return sum;
  };
  EXPECT_EQ(bytes(StateFormat::q8), 2 * (1003 + 4 * 4));
  EXPECT_EQ(bytes(StateFormat::fp8), 2 * (1003 + 4 * 4));
  EXPECT_EQ(bytes(StateFormat::q4), 2 * (502 + 4 * 8));
}

// ---- what codes can be trusted with ----

// Gradients that differ by orders of magnitude within a block: a second moment that became zero
// would make a step of millions of rates.
TEST(Quantised, StepsOfAdamStaySmall) {
  for (StateFormat f : kOwn) {
    Plan plan = one_tensor("adamw", f, 2048);
    plan.variant.hyper = {{"lr", 1}, {"weight_decay", 0}};
    World w(plan);
    Buffer size(DType::f32, 2048);
    size.fill_normal(99, 2);
    double worst = 0;
    for (uint64_t k = 0; k < 200; ++k) {
      w.fill_grads(k, 1);
      const std::vector<Buffer> before = w.params;
      for (int64_t i = 0; i < 2048; ++i) {
        w.grads[0].set(i, w.grads[0].at(i) * std::exp(size.at(i)));
      }
      w.optimizer.step();
      for (int64_t i = 0; i < 2048; ++i) {
        worst = std::max(worst, std::abs(w.params[0].at(i) - before[0].at(i)));
      }
    }
    EXPECT_LT(worst, 40) << to_string(f);
  }
}

// A lion whose parameters stand still: an average with this beta.
World average(StateFormat f, double beta, int64_t n) {
  Plan plan = one_tensor("lion", f, n);
  plan.variant.hyper = {{"lr", 0}, {"beta2", beta}};
  return World(plan);
}

// How much is left of a block's extreme after 1,000 gradients of zero, beside what beta leaves.
double left(StateFormat f, double extreme) {
  constexpr double kBeta = 0.9999;
  World w = average(f, kBeta, 256);
  w.fill_grads(1, 0.001);
  w.grads[0].set(100, extreme);
  w.optimizer.step();
  const StateView v = w.optimizer.states(0)[0];
  w.optimizer.zero_grad();
  for (int k = 0; k < 1000; ++k) w.optimizer.step();
  return check::read_state(v, 100) / (extreme * (1 - kBeta) * std::pow(kBeta, 1000));
}

TEST(Quantised, ABlocksExtremeOnlyDecays) {
  for (StateFormat f : kOwn) {
    EXPECT_NEAR(left(f, 1), 1, 1e-4) << to_string(f);
    EXPECT_NEAR(left(f, -1), 1, 1e-4) << to_string(f);
  }
  EXPECT_NEAR(left(StateFormat::bnb8, 1), 1, 1e-4);
  EXPECT_LT(left(StateFormat::bnb8, -1), 0.01);  // has no code for -1
}

// Values within a block after many gradients of zero, relative to what beta leaves of them.
TEST(Quantised, ASlowAverageDecaysInOwnFormatsAndSticksInBitsandbytes) {
  constexpr double kBeta = 0.9999;
  const auto decayed = [](StateFormat f) {
    World w = average(f, kBeta, 256);
    for (int64_t i = 0; i < 256; ++i) {
      w.grads[0].set(i, i == 100 ? 1 : 0.2 + 0.002 * static_cast<double>(i % 64));
    }
    w.optimizer.step();
    const StateView v = w.optimizer.states(0)[0];
    double before = 0, after = 0;
    for (int64_t i = 0; i < 256; ++i) before += i == 100 ? 0 : w.grads[0].at(i) * (1 - kBeta);
    w.optimizer.zero_grad();
    for (int k = 0; k < 5000; ++k) {
      w.grads[0].set(100, check::read_state(v, 100));  // keeps up the scale
      w.optimizer.step();
    }
    for (int64_t i = 0; i < 256; ++i) after += i == 100 ? 0 : check::read_state(v, i);
    return after / (before * std::pow(kBeta, 5000));
  };
  EXPECT_NEAR(decayed(StateFormat::q8), 1, 0.05);
  EXPECT_NEAR(decayed(StateFormat::fp8), 1, 0.05);
  EXPECT_GT(decayed(StateFormat::bnb8), 1.5);  // a step is less than half a code: nothing moves
}

}  // namespace
}  // namespace gallop::test
