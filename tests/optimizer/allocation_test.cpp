// SPDX-License-Identifier: MIT
// Steps do not allocate. This file replaces the program's operator new by one that counts.
#include <atomic>
#include <cstdlib>
#include <new>

#include "optimizer/fixture.h"

namespace {

std::atomic<int64_t> g_allocations{0};

void* counted(size_t bytes, size_t alignment) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  alignment = alignment < sizeof(void*) ? sizeof(void*) : alignment;
  void* p = nullptr;
  if (posix_memalign(&p, alignment, bytes == 0 ? 1 : bytes) != 0) throw std::bad_alloc();
  return p;
}

constexpr size_t kDefault = __STDCPP_DEFAULT_NEW_ALIGNMENT__;

}  // namespace

// What is inlined here looks to g++ like memory of another new.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

// The array and nothrow forms of the library call these.
void* operator new(size_t bytes) { return counted(bytes, kDefault); }
void* operator new(size_t bytes, std::align_val_t a) {
  return counted(bytes, static_cast<size_t>(a));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }

namespace gallop::test {
namespace {

// An Allocator that counts what it has given and got back.
struct Counter {
  int64_t given = 0, returned = 0;
  size_t bytes = 0;

  Allocator allocator() {
    return {[](size_t n, void* self) {
              auto& c = *static_cast<Counter*>(self);
              ++c.given;
              c.bytes += n;
              return std::aligned_alloc(64, (n + 63) / 64 * 64);
            },
            [](void* p, size_t n, void* self) {
              auto& c = *static_cast<Counter*>(self);
              ++c.returned;
              c.bytes -= n;
              std::free(p);
            },
            this};
  }
};

Plan forty_tensors(const Variant& v, const Formats& f, Mode mode, Counter& counter) {
  Plan plan{v, f};
  plan.options.mode = mode;
  plan.options.threads = 2;
  plan.options.clip_norm = 0.1;
  plan.options.clip_value = 1;
  plan.options.skip_nonfinite = true;
  plan.options.zero_grad = true;
  plan.options.allocator = counter.allocator();
  plan.group.schedule = {.kind = ScheduleKind::cosine, .total_steps = 50};
  plan.sizes = {{}, {}};
  for (int64_t i = 0; i < 40; ++i) plan.sizes[static_cast<size_t>(i % 2)].push_back(i * 37);
  plan.sizes[1].back() = 20000;               // enough for two threads, also alone
  plan.sizes[0][1] = plan.sizes[1][1] = 256;  // a matrix in each group, and another one
  plan.sizes[1][2] = 1003;
  return plan;
}

TEST(Allocation, CountsItself) {
  const int64_t before = g_allocations;
  std::vector<std::string> strings(3, std::string(100, 'x'));
  EXPECT_GE(g_allocations - before, 4);
}

TEST(Allocation, StepsAfterTheFirstDoNotAllocate) {
  const Formats mixed = {DType::bf16, DType::f16, Rounding::stochastic, StateFormat::bf16,
                         Rounding::stochastic};
  for (const Variant& v : variants()) {
    for (const Formats& f : {kF32, kF64, mixed}) {
      for (Mode mode : {Mode::single, Mode::multi}) {
        SCOPED_TRACE(v.name + " " + to_string(f) + " " + std::string(to_string(mode)));
        Counter counter;
        World w(forty_tensors(v, f, mode, counter));
        GradScaler scaler;
        w.fill_grads(0);
        w.optimizer.step();
        const int64_t before = g_allocations, given = counter.given;
        for (uint64_t k = 1; k < 6; ++k) {
          w.fill_grads(k);
          k == 3 ? w.take_grad(7) : w.give_grad(7);  // two clocks in one group
          if (k == 4) w.optimizer.step({.found_inf = true});
          w.optimizer.set(0, "lr", 0.01 * static_cast<double>(k));
          w.optimizer.set_all("weight_decay", 0.01);
          w.optimizer.set_schedule(1, {.kind = ScheduleKind::linear, .total_steps = 60});
          w.optimizer.step(scaler);
          w.optimizer.zero_grad();
        }
        EXPECT_EQ(g_allocations - before, 0);
        EXPECT_EQ(counter.given, given);
      }
    }
  }
}

TEST(Allocation, NewBasesDoNotAllocate) {
  Variant v = plain("soap");
  v.hyper.emplace_back("precondition_frequency", 2);
  for (const Formats& f : {kF32, kF64}) {
    Counter counter;
    World w(forty_tensors(v, f, Mode::multi, counter));
    w.fill_grads(0);
    w.optimizer.step();
    const int64_t before = g_allocations;
    for (int k = 0; k < 5; ++k) w.optimizer.step();
    EXPECT_EQ(g_allocations - before, 0);
  }
}

TEST(Allocation, FirstStepAllocatesNoState) {
  Counter counter;
  World w(forty_tensors(plain("adam"), kF32, Mode::multi, counter));
  const int64_t given = counter.given;
  EXPECT_GE(given, 1);
  w.fill_grads(0);
  w.optimizer.step();
  EXPECT_EQ(counter.given, given);
}

TEST(Allocation, PiecesAndEntriesDoNotAllocate) {
  for (const char* rule : {"sophiag", "schedulefree_adamw"}) {
    Counter counter;
    World w(forty_tensors(plain(rule), kF32, Mode::multi, counter));
    std::vector<size_t> some = {3, 39, 8, 20}, others = {1, 2, 22, 23};
    int64_t before = 0;
    for (int k = 0; k < 4; ++k) {
      if (k == 1) before = g_allocations;
      w.fill_grads(0);
      w.optimizer.begin_step();
      w.optimizer.step_params(some);
      w.optimizer.step_params(others);
      w.optimizer.end_step();
      w.optimizer.eval();
      w.optimizer.train();
      if (has_entry(w.optimizer, "hessian")) w.optimizer.run("hessian");
    }
    EXPECT_EQ(g_allocations - before, 0) << rule;
  }
}

TEST(Allocation, StateLivesInTheGivenAllocatorAndGoesBackToIt) {
  for (const Variant& v : variants()) {
    SCOPED_TRACE(v.name);
    Counter counter;
    {
      World w(forty_tensors(v, kF32, Mode::multi, counter));
      EXPECT_EQ(counter.bytes, static_cast<size_t>(w.optimizer.state_bytes()));
      w.fill_grads(1);
      w.optimizer.step();
      World moved = std::move(w);
      moved.optimizer.step();
    }
    EXPECT_EQ(counter.given, counter.returned);
    EXPECT_EQ(counter.bytes, 0u);
  }
}

TEST(Allocation, AllocatorMayHandOutDirtyMemory) {
  Plan dirty{plain("adam")};
  dirty.options.allocator = {[](size_t n, void*) {
                               void* p = std::aligned_alloc(64, (n + 63) / 64 * 64);
                               return std::memset(p, 0xff, n);
                             },
                             [](void* p, size_t, void*) { std::free(p); }};
  World a(dirty), b({plain("adam")});
  for (World* w : {&a, &b}) {
    w->fill_grads(1);
    w->optimizer.step();
  }
  EXPECT_EQ(difference(a.snapshot(), b.snapshot()), "");
}

TEST(Allocation, AllocatorThatHasNothingIsReported) {
  Options options;
  options.allocator = {[](size_t, void*) -> void* { return nullptr; }, nullptr};
  Optimizer o("adam", options);
  float data[1024] = {}, grad[1024] = {};
  expect_error(ErrorCode::out_of_memory, {"bytes of optimizer state", "allocator"}, [&] {
    o.add_group({{"p", {1024}, data, grad}});
  });
  EXPECT_EQ(o.size(), 0u);
  EXPECT_EQ(o.groups(), 0u);
  EXPECT_TRUE(o.step());
}

}  // namespace
}  // namespace gallop::test
