// SPDX-License-Identifier: MIT
#include <cuda_runtime_api.h>

#include <cmath>
#include <limits>

#include "cuda/gpu.h"
#include "optimizer/fixture.h"

namespace gallop::test {
namespace {

class DeviceTest : public GpuTest {};

GroupOptions with_lr_one() {
  GroupOptions g;
  g.hyper = {{"lr", 1.0}};
  return g;
}

// The same parameters and gradients on the CPU.
struct CpuTwin {
  CpuTwin(const GpuWorld& w, const std::string& rule, const Options& options)
      : optimizer(rule, options) {
    std::vector<Param> list;
    for (size_t i = 0; i < w.params.size(); ++i) {
      params.push_back(w.params[i]->get());
      grads.push_back(w.grads[i]->get());
    }
    for (size_t i = 0; i < w.params.size(); ++i) {
      list.push_back({std::string("p").append(std::to_string(i)),
                      shape_of(static_cast<int64_t>(params[i].size())), params[i].data(),
                      grads[i].data()});
    }
    optimizer.add_group(list);
  }
  std::vector<std::vector<float>> params, grads;
  Optimizer optimizer;
};

void expect_close(const GpuWorld& w, const CpuTwin& twin, double tolerance) {
  for (size_t i = 0; i < w.params.size(); ++i) {
    const std::vector<float> gpu = w.params[i]->get();
    for (size_t k = 0; k < gpu.size(); ++k) {
      ASSERT_NEAR(gpu[k], twin.params[i][k], tolerance) << "tensor " << i << " element " << k;
    }
  }
}

TEST_F(DeviceTest, TwentyThousandTensorsOfOddSizes) {
  std::vector<size_t> sizes;
  for (size_t i = 0; i < 20000; ++i) sizes.push_back(i * 37 % 101);
  GpuWorld w("adamw", sizes);
  CpuTwin twin(w, "adamw", {});
  for (int i = 0; i < 3; ++i) {
    w.optimizer->step();
    twin.optimizer.step();
  }
  expect_close(w, twin, 1e-6);
}

TEST_F(DeviceTest, ClippingAgreesWithTheCpu) {
  Options o;
  o.clip_norm = 1;
  o.clip_value = 0.05;
  GpuWorld w("adan", {100003, 17, 0, 4096}, o);
  CpuTwin twin(w, "adan", o);
  for (int i = 0; i < 4; ++i) {
    w.optimizer->step();
    twin.optimizer.step();
  }
  EXPECT_NEAR(w.optimizer->grad_norm() / twin.optimizer.grad_norm(), 1, 1e-12);
  expect_close(w, twin, 1e-6);
}

TEST_F(DeviceTest, MoreThanTwoToTheThirtyOneElements) {
  constexpr int64_t n = (int64_t{1} << 31) + 1027;
  const auto bytes = static_cast<size_t>(n) * 2;
  size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  if (free < 3 * bytes) GTEST_SKIP() << "NOT RUN, needs " << 3 * bytes << " bytes of GPU memory";
  void* p = cuda::allocate(0, bytes);
  void* g = cuda::allocate(0, bytes);
  ASSERT_EQ(cudaMemset(g, 0x3f, bytes), cudaSuccess);  // 0x3f3f, 0.74609375 in bf16
  {
    Options o;
    o.device = kGpu;
    Optimizer opt("sgd", o);
    opt.add_group({{"p", {n}, p, g, DType::bf16, DType::bf16}}, with_lr_one());
    opt.step();
  }
  for (int64_t i : {int64_t{0}, n / 2, (int64_t{1} << 31) - 1, int64_t{1} << 31, n - 1}) {
    uint16_t h = 0;
    cuda::copy_to_host(0, &h, static_cast<uint16_t*>(p) + i, 2);
    EXPECT_EQ(h, 0xbf3f) << i;
  }
  cuda::release(0, p);
  cuda::release(0, g);
}

TEST_F(DeviceTest, NothingIsAllocatedAfterTheFirstStep) {
  Options o;
  o.clip_norm = 1;
  GpuWorld w("adamw", {100003, 17}, o);
  w.optimizer->step();
  cuda::synchronize(0);
  size_t before = 0, after = 0, total = 0;
  cudaMemGetInfo(&before, &total);
  for (int i = 0; i < 50; ++i) w.optimizer->step();
  cuda::synchronize(0);
  cudaMemGetInfo(&after, &total);
  EXPECT_EQ(before, after);
}

TEST_F(DeviceTest, GradientsMayMoveAndGoMissing) {
  GpuWorld w("adamw", {1000, 1000});
  Floats elsewhere(w.grads[0]->get(), 3);
  w.optimizer->step();
  w.optimizer->set_grad(0, elsewhere.data());
  w.optimizer->set_grad(1, nullptr);
  const std::vector<float> kept = w.params[1]->get();
  w.optimizer->step();
  EXPECT_TRUE(same_bits(w.params[1]->get(), kept));
  EXPECT_EQ(w.optimizer->steps(0), 2);
  EXPECT_EQ(w.optimizer->steps(1), 1);

  GpuWorld never_moved("adamw", {1000});
  never_moved.optimizer->step();
  never_moved.optimizer->step();
  EXPECT_TRUE(same_bits(w.params[0]->get(), never_moved.params[0]->get()));
}

TEST_F(DeviceTest, CheckpointsCrossBetweenCpuAndGpu) {
  const Folder folder;
  GpuWorld w("adamw", {1003, 257});
  CpuTwin twin(w, "adamw", {});
  for (int i = 0; i < 5; ++i) w.optimizer->step();
  w.optimizer->save(folder / "gpu");
  for (size_t i = 0; i < 2; ++i) twin.params[i] = w.params[i]->get();
  twin.optimizer.set_data(0, twin.params[0].data());
  twin.optimizer.set_data(1, twin.params[1].data());
  twin.optimizer.load(folder / "gpu");
  for (size_t i = 0; i < 2; ++i) {  // the state itself exactly
    const auto on_gpu = w.optimizer->states(i), on_cpu = twin.optimizer.states(i);
    for (size_t j = 0; j < on_gpu.size(); ++j) {
      std::vector<float> s(static_cast<size_t>(on_gpu[j].size));
      cuda::copy_to_host(0, s.data(), on_gpu[j].data, s.size() * sizeof(float));
      EXPECT_EQ(std::memcmp(s.data(), on_cpu[j].data, s.size() * sizeof(float)), 0);
    }
  }
  for (int i = 0; i < 5; ++i) {
    w.optimizer->step();
    twin.optimizer.step();
  }
  expect_close(w, twin, 1e-6);

  twin.optimizer.save(folder / "cpu");
  for (size_t i = 0; i < 2; ++i) w.params[i]->set(twin.params[i]);
  w.optimizer->load(folder / "cpu");
  EXPECT_EQ(w.optimizer->steps(1), 10);
  for (int i = 0; i < 5; ++i) {
    w.optimizer->step();
    twin.optimizer.step();
  }
  expect_close(w, twin, 1e-6);
}

TEST_F(DeviceTest, WhatIsLoadedIsSeenBeforeTheNextStep) {
  const Folder folder;
  const std::string path = folder / "checkpoint";
  GpuWorld saved("adamw", {1000, 7}), w("adamw", {1000, 7});
  for (int i = 0; i < 3; ++i) saved.optimizer->step();
  saved.optimizer->step({.found_inf = true});
  saved.optimizer->save(path);
  w.optimizer->step();
  w.optimizer->set_data(0, saved.params[0]->data());  // the device is to be told all anew
  w.optimizer->load(path);
  EXPECT_EQ(w.optimizer->steps(0), 3);
  EXPECT_EQ(w.optimizer->skipped(), 1);
  w.optimizer->step();
  EXPECT_EQ(w.optimizer->steps(1), 4);
}

TEST_F(DeviceTest, WrongMemoryIsRefused) {
  std::vector<float> host(10);
  Options o;
  o.device = kGpu;
  Optimizer opt("adamw", o);
  expect_error(ErrorCode::invalid_argument, {"'w'", "host memory", "cuda:0"}, [&] {
    opt.add_group({{"w", {10}, host.data(), nullptr}});
  });
  Floats good(std::vector<float>(10));
  expect_error(ErrorCode::invalid_argument, {"'w'", "gradient", "host memory"}, [&] {
    opt.add_group({{"w", {10}, good.data(), host.data()}});
  });
  opt.add_group({{"w", {10}, good.data(), good.data()}});
  expect_error(ErrorCode::invalid_argument, {"'w'", "host memory"},
               [&] { opt.set_grad(0, host.data()); });
  expect_error(ErrorCode::invalid_argument, {"'w'", "host memory"},
               [&] { opt.set_data(0, host.data()); });
  opt.step();
  EXPECT_EQ(opt.steps(0), 1);
}

TEST_F(DeviceTest, NoSuchDevice) {
  Options o;
  o.device = {Device::Kind::cuda, 99};
  expect_error(ErrorCode::unsupported, {"cuda:99"}, [&] { Optimizer opt("adamw", o); });
}

TEST_F(DeviceTest, OutOfMemoryLeavesTheOptimizerAsItWas) {
  GpuWorld w("adamw", {1000});
  w.optimizer->step();
  const std::vector<float> before = w.everything();
  Floats small(std::vector<float>(4));
  expect_error(ErrorCode::out_of_memory, {"no memory", "cuda:0"}, [&] {
    w.optimizer->add_group({{"huge", {int64_t{1} << 42}, small.data(), small.data()}});
  });
  EXPECT_TRUE(same_bits(w.everything(), before));
  EXPECT_EQ(w.optimizer->groups(), 1u);
  w.optimizer->step();
  EXPECT_EQ(w.optimizer->steps(0), 2);
}

TEST_F(DeviceTest, SameRandomBitsAsTheCpu) {
  // Lion divides nothing and raises nothing to a power: the same arithmetic everywhere.
  Plan plan{
      plain("lion"),
      {DType::bf16, DType::f32, Rounding::stochastic, StateFormat::bf16, Rounding::stochastic}};
  plan.device = {};
  World cpu(plan);
  plan.device = kGpu;
  World gpu(plan);
  for (int i = 0; i < 5; ++i) {
    cpu.fill_grads(static_cast<uint64_t>(i));
    gpu.fill_grads(static_cast<uint64_t>(i));
    cpu.optimizer.step();
    gpu.optimizer.step();
    cuda::synchronize(0);
  }
  EXPECT_EQ(difference(cpu.snapshot(), gpu.snapshot()), "");
}

}  // namespace
}  // namespace gallop::test
