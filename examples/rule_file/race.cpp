// SPDX-License-Identifier: MIT
// race STEPS OPTIMIZER...
//
// Trains the same small network with each optimizer, from the same start on the same data, and
// prints the losses. An optimizer is a name, or a file with a rule of your own: NAME.h; @0.01 after
// it sets its rate.
#include <gallop/gallop.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr int kInputs = 16, kHidden = 64, kBatch = 64;

// y = tanh(x A) b, to be learnt by a network of the same form that starts elsewhere.
struct Network {
  std::vector<float> a, b;
  explicit Network(unsigned seed) : a(kInputs * kHidden), b(kHidden) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (float& x : a) x = normal(random) / 4;
    for (float& x : b) x = normal(random) / 8;
  }
  float forward(const float* x, float* hidden) const {
    float y = 0;
    for (int h = 0; h < kHidden; ++h) {
      float sum = 0;
      for (int i = 0; i < kInputs; ++i) sum += x[i] * a[i * kHidden + h];
      hidden[h] = std::tanh(sum);
      y += hidden[h] * b[h];
    }
    return y;
  }
};

// The mean squared error of a batch; adds its gradients.
double loss(const Network& net, const Network& teacher, std::mt19937& random, float* grad_a,
            float* grad_b) {
  std::normal_distribution<float> normal;
  double total = 0;
  for (int n = 0; n < kBatch; ++n) {
    float x[kInputs], hidden[kHidden], theirs[kHidden];
    for (float& v : x) v = normal(random);
    const float error = net.forward(x, hidden) - teacher.forward(x, theirs);
    total += error * error / kBatch;
    for (int h = 0; h < kHidden; ++h) {
      const float d = 2 * error / kBatch;
      grad_b[h] += d * hidden[h];
      const float inner = d * net.b[h] * (1 - hidden[h] * hidden[h]);
      for (int i = 0; i < kInputs; ++i) grad_a[i * kHidden + h] += inner * x[i];
    }
  }
  return total;
}

void train(const std::string& text, int steps) {
  const size_t at = text.find('@');
  const std::string name = text.substr(0, at);
  gallop::GroupOptions group;
  if (at != std::string::npos) group.hyper = {{"lr", std::stod(text.substr(at + 1))}};
  gallop::Optimizer optimizer =
      name.ends_with(".h") ? gallop::Optimizer::from_rule_file(name) : gallop::Optimizer(name);

  const Network teacher(1);
  Network net(2);
  std::vector<float> grad_a(net.a.size()), grad_b(net.b.size());
  optimizer.add_group({{"a", {kInputs, kHidden}, net.a.data(), grad_a.data()},
                       {"b", {kHidden}, net.b.data(), grad_b.data()}},
                      group);
  std::mt19937 data(3);
  double mean = 0;
  std::printf("%-24s", text.c_str());
  for (int step = 1; step <= steps; ++step) {
    mean += loss(net, teacher, data, grad_a.data(), grad_b.data());
    optimizer.step();
    optimizer.zero_grad();
    if (step % (steps / 4) != 0) continue;
    std::printf("  %.6f", mean / (steps / 4));
    mean = 0;
  }
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) try {
  const int steps = argc > 2 ? std::atoi(argv[1]) : 0;
  if (steps < 4) {
    std::fprintf(stderr, "usage: race STEPS OPTIMIZER..., with at least 4 steps\n");
    return 2;
  }
  std::printf("%-24s  mean loss of each quarter\n", "optimizer");
  for (int i = 2; i < argc; ++i) train(argv[i], steps);
} catch (const std::exception& e) {
  std::fprintf(stderr, "race: %s\n", e.what());
  return 1;
}
