// SPDX-License-Identifier: MIT
// AdamW with 8-bit state on one thread: gallop, whose codes are arithmetic, beside the way that
// suggests itself, a table of 256 values that is searched. First checked against each other, then
// timed in turns: table_codec [ELEMENTS] [ROUNDS]
#include <gallop/gallop.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr size_t kBlock = 256;
constexpr double kLr = 1e-3, kBeta1 = 0.9, kBeta2 = 0.999, kEps = 1e-8, kDecay = 1e-2;

// bitsandbytes' map: decade e has its codes in the middles of equal parts of [0.1, 1] 10^(e - 6).
std::vector<float> dynamic_map(bool nonneg) {
  std::vector<float> map = {0, 1};
  for (int e = 0; e < 7; ++e) {
    const int parts = 1 << (nonneg ? e + 1 : e);
    for (int k = 0; k < parts; ++k) {
      const double value = std::pow(10, e - 6) * (0.1 + 0.9 * (k + 0.5) / parts);
      map.push_back(static_cast<float>(value));
      if (!nonneg) map.push_back(static_cast<float>(-value));
    }
  }
  std::sort(map.begin(), map.end());
  return map;
}

uint8_t nearest(const std::vector<float>& map, float x) {
  size_t low = 0, high = map.size() - 1;
  while (high - low > 1) {
    const size_t middle = (low + high) / 2;
    (x < map[middle] ? high : low) = middle;
  }
  return static_cast<uint8_t>(x - map[low] < map[high] - x ? low : high);
}

struct TableState {
  std::vector<float> map, scales;
  std::vector<uint8_t> codes;

  TableState(bool nonneg, size_t n)
      : map(dynamic_map(nonneg)), scales((n + kBlock - 1) / kBlock), codes(n, nearest(map, 0)) {}
  void load(size_t first, size_t n, float* x) const {
    for (size_t i = 0; i < n; ++i) x[i] = map[codes[first + i]] * scales[first / kBlock];
  }
  void store(size_t first, size_t n, const float* x) {
    float most = 0;
    for (size_t i = 0; i < n; ++i) most = std::max(most, std::fabs(x[i]));
    scales[first / kBlock] = most;
    const float inverse = most > 0 ? 1 / most : 0;
    for (size_t i = 0; i < n; ++i) codes[first + i] = nearest(map, x[i] * inverse);
  }
};

struct TableAdamW {
  std::vector<float> p;
  TableState m, v;
  int steps = 0;

  explicit TableAdamW(std::vector<float> start)
      : p(std::move(start)), m(false, p.size()), v(true, p.size()) {}
  void step(const std::vector<float>& g) {
    ++steps;
    const auto size = static_cast<float>(kLr / (1 - std::pow(kBeta1, steps)));
    const auto unbias = static_cast<float>(1 / std::sqrt(1 - std::pow(kBeta2, steps)));
    const auto keep = static_cast<float>(1 - kLr * kDecay);
    float mb[kBlock], vb[kBlock];
    for (size_t first = 0; first < p.size(); first += kBlock) {
      const size_t n = std::min(kBlock, p.size() - first);
      m.load(first, n, mb);
      v.load(first, n, vb);
      for (size_t i = 0; i < n; ++i) {
        const float x = g[first + i];
        mb[i] += static_cast<float>(1 - kBeta1) * (x - mb[i]);
        vb[i] = static_cast<float>(kBeta2) * vb[i] + static_cast<float>(1 - kBeta2) * x * x;
        const float below = std::sqrt(vb[i]) * unbias + static_cast<float>(kEps);
        p[first + i] = p[first + i] * keep - size * mb[i] / below;
      }
      m.store(first, n, mb);
      v.store(first, n, vb);
    }
  }
};

struct Ours {
  std::vector<float> p, g;
  gallop::Optimizer optimizer;

  Ours(gallop::StateFormat format, std::vector<float> start, std::vector<float> grad)
      : p(std::move(start)), g(std::move(grad)), optimizer("adamw", on_one_thread()) {
    gallop::GroupOptions group;
    group.state = format;
    group.hyper = {{"lr", kLr}, {"eps", kEps}, {"weight_decay", kDecay}};
    optimizer.add_group({{"p", {static_cast<int64_t>(p.size())}, p.data(), g.data()}}, group);
  }
  static gallop::Options on_one_thread() {
    gallop::Options options;
    options.threads = 1;
    return options;
  }
};

// Shares of equal codes, of the first and second moment.
bool agree(const Ours& ours, const TableAdamW& table) {
  bool all = true;
  for (const gallop::StateView& v : ours.optimizer.states(0)) {
    const TableState& other = v.nonneg ? table.v : table.m;
    const auto* codes = static_cast<const uint8_t*>(v.data);
    size_t equal = 0;
    for (size_t i = 0; i < other.codes.size(); ++i) equal += codes[i] == other.codes[i];
    const double share = static_cast<double>(equal) / static_cast<double>(other.codes.size());
    std::printf("%s: %.4f %% of the codes equal\n", v.name.c_str(), 100 * share);
    all = all && share > 0.995;
  }
  return all;
}

template <class F>
double seconds(F f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + static_cast<long>(x.size() / 2), x.end());
  return x[x.size() / 2];
}

long argument(int argc, char** argv, int i, long otherwise) {
  if (argc <= i) return otherwise;
  char* end = nullptr;
  const long value = std::strtol(argv[i], &end, 10);
  if (*end == '\0' && value > 0 && value <= 1L << 32) return value;
  std::fprintf(stderr, "table_codec: '%s' is not a whole number from 1 to 2^32\n", argv[i]);
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  const auto n = static_cast<size_t>(argument(argc, argv, 1, 1 << 24));
  const long rounds = argument(argc, argv, 2, 7);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> start(n), grad(n);
  for (float& x : start) x = normal(random);
  for (float& x : grad) x = 0.01f * normal(random);

  TableAdamW table(start);
  Ours compatible(gallop::StateFormat::bnb8, start, grad);
  Ours own(gallop::StateFormat::q8, start, grad), plain(gallop::StateFormat::f32, start, grad);
  for (int i = 0; i < 3; ++i) {
    table.step(grad);
    compatible.optimizer.step();
  }
  if (!agree(compatible, table)) {
    std::fprintf(stderr, "table_codec: the two disagree, so nothing is timed\n");
    return 1;
  }
  std::vector<double> times[4];
  for (long i = 0; i < rounds; ++i) {
    times[0].push_back(seconds([&] { table.step(grad); }));
    times[1].push_back(seconds([&] { compatible.optimizer.step(); }));
    times[2].push_back(seconds([&] { own.optimizer.step(); }));
    times[3].push_back(seconds([&] { plain.optimizer.step(); }));
  }
  const char* names[] = {"table", "8bit-bnb", "8bit", "fp32"};
  const double slowest = median(times[0]);
  std::printf("%-10s %12s %12s\n", "state", "ns/element", "table takes");
  for (int i = 0; i < 4; ++i) {
    const double time = median(times[i]);
    std::printf("%-10s %12.3f %11.1fx\n", names[i], 1e9 * time / static_cast<double>(n),
                slowest / time);
  }
}
