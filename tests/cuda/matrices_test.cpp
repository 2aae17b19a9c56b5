// SPDX-License-Identifier: MIT
// Rules with norms and over matrices on a GPU: what the sweep's shapes and steps do not reach.
#include <cmath>

#include "cuda/gpu.h"
#include "optimizer/fixture.h"

namespace gallop::test {
namespace {

class MatricesTest : public GpuTest {};

// Parameters of the given shapes, on either device, with the same values.
struct Wide {
  Wide(const std::string& rule, const std::vector<std::vector<int64_t>>& shapes, Device device,
       const Hyper& hyper = {}, DType type = DType::f64, double size = 1) {
    Options options;
    options.device = device;
    optimizer = std::make_unique<Optimizer>(rule, options);
    std::vector<Param> list;
    for (const auto& shape : shapes) {
      int64_t n = 1;
      for (int64_t d : shape) n *= d;
      const auto seed = static_cast<uint64_t>(params.size());
      params.push_back(std::make_unique<Buffer>(type, n, false, device));
      grads.push_back(std::make_unique<Buffer>(type, n, false, device));
      params.back()->fill_normal(seed, size);
      list.push_back({std::string("p").append(std::to_string(seed)), shape, params.back()->data(),
                      grads.back()->data(), type, type, role_of(shape)});
    }
    GroupOptions group;
    group.hyper = hyper;
    optimizer->add_group(list, group);
  }
  void step(uint64_t seed, StepArgs args = {}) {
    for (size_t i = 0; i < grads.size(); ++i) grads[i]->fill_normal(100 * seed + i, 0.1);
    optimizer->step(args);
    cuda::synchronize(0);
  }
  // The largest difference in norm between two tensors, relative.
  double from(const Wide& other) const {
    double most = 0;
    for (size_t i = 0; i < params.size(); ++i) {
      double apart = 0, all = 0;
      for (int64_t k = 0; k < params[i]->size(); ++k) {
        apart += std::pow(params[i]->at(k) - other.params[i]->at(k), 2);
        all += std::pow(params[i]->at(k), 2);
      }
      most = std::max(most, std::sqrt(apart / all));
    }
    return most;
  }

  std::vector<std::unique_ptr<Buffer>> params, grads;
  std::unique_ptr<Optimizer> optimizer;
};

// Several blocks for one tensor between passes, beside tensors that have one.
TEST_F(MatricesTest, LongSidesAreSharedByBlocks) {
  const std::vector<std::vector<int64_t>> shapes = {{20000, 3}, {7, 5}, {3, 17001}, {2, 2500, 2}};
  for (const char* rule : {"adafactor", "adafactor_torch", "adamp", "lamb", "muon"}) {
    SCOPED_TRACE(rule);
    Wide gpu(rule, shapes, kGpu), cpu(rule, shapes, {});
    for (uint64_t k = 0; k < 3; ++k) {
      gpu.step(k);
      cpu.step(k);
    }
    EXPECT_LT(gpu.from(cpu), 1e-12);
  }
}

// Of large symmetric products, one half is computed and the other a copy of it.
TEST_F(MatricesTest, LargeProductsAreSymmetric) {
  std::vector<std::vector<int64_t>> shapes = {{1024, 1030}, {1040, 1024}};
  if (!cuda::emulated()) shapes.push_back({2048, 2100});
  const Hyper hyper = {{"weight_decay", 0}};
  // From zero: the parameters are the update, by products in bf16 and in fp32.
  Wide gpu("muon", shapes, kGpu, hyper, DType::f32, 0),
      cpu("muon", shapes, {}, hyper, DType::f32, 0);
  gpu.step(1);
  cpu.step(1);
  EXPECT_LT(gpu.from(cpu), 0.04);
}

// Sides of several panels and tiles, with rows left over and without. The longer side of an oblong
// gradient has more than one right basis, so only the shorter one is turned there.
TEST_F(MatricesTest, BasesAreRefinedAsOnTheCpu) {
  const std::vector<std::vector<int64_t>> oblong = {{70, 33}, {16, 130}, {3, 40, 2}},
                                          square = {{70, 70}, {32, 32}, {70, 70}, {1, 1}};
  for (const auto& shapes : {oblong, square}) {
    const double longest = shapes == oblong ? 40 : 70;
    const Hyper hyper = {{"precondition_frequency", 2}, {"max_precond_dim", longest}};
    Wide gpu("soap", shapes, kGpu, hyper), cpu("soap", shapes, {}, hyper);
    for (uint64_t k = 0; k < 6; ++k) {
      gpu.step(k);
      cpu.step(k);
    }
    EXPECT_LT(gpu.from(cpu), 1e-9) << longest;
  }
}

TEST_F(MatricesTest, BasesAreMadeInTheFirstStepThatIsNotSkipped) {
  const std::vector<std::vector<int64_t>> shapes = {{12, 7}, {5}};
  Wide w("soap", shapes, kGpu), twin("soap", shapes, kGpu);
  Floats found_inf({1});
  StepArgs args;
  args.device_found_inf = found_inf.data();
  w.step(99, args);
  EXPECT_EQ(w.optimizer->steps(0), 0);
  {
    cuda::Stream stream(0);
    args.stream = stream.handle();
    expect_error(ErrorCode::invalid_argument, {"bases", "take one step before"},
                 [&] { cuda::Graph graph(stream, [&] { w.optimizer->step(args); }); });
    args.stream = nullptr;
  }
  found_inf.set({0});
  for (uint64_t k = 0; k < 4; ++k) {
    w.step(k, args);
    twin.step(k);
  }
  EXPECT_EQ(w.optimizer->steps(0), 4);
  EXPECT_EQ(w.from(twin), 0);
}

// A parameter that joins later, and one that misses a step, have their own time to change bases.
TEST_F(MatricesTest, ParametersAreAtDifferentSteps) {
  const std::vector<std::vector<int64_t>> shapes = {{7, 7}, {7, 7}, {7, 7}};
  const Hyper hyper = {{"precondition_frequency", 2}};
  Wide gpu("soap", shapes, kGpu, hyper), cpu("soap", shapes, {}, hyper);
  for (Wide* w : {&gpu, &cpu}) {
    w->optimizer->set_grad(1, nullptr);
    w->step(0);
    w->step(1);
    w->optimizer->set_grad(1, w->grads[1]->data());
    w->optimizer->set_grad(2, nullptr);
    w->step(2);
    w->optimizer->set_grad(2, w->grads[2]->data());
    for (uint64_t k = 3; k < 8; ++k) w->step(k);
  }
  EXPECT_EQ(gpu.optimizer->steps(1), 6);
  EXPECT_LT(gpu.from(cpu), 1e-9);
}

}  // namespace
}  // namespace gallop::test
