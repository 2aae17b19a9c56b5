// SPDX-License-Identifier: MIT
// A build without CUDA: the same functions, each saying so.
#include "cuda/engine.h"

#include "cuda/matmul.h"
#include "cuda/memory.h"
#include "cuda/timing.h"
#include "cuda/trace.h"
#include "gallop/error.h"

namespace gallop::cuda {
namespace {

[[noreturn]] void absent() {
  throw Error(ErrorCode::unsupported, "this gallop was built without CUDA, expected device cpu");
}

}  // namespace

bool built() { return false; }
bool emulated() { return false; }
std::string describe_compiler() { return "none: built without CUDA"; }
void require_device(int) { absent(); }
void* allocate(int, size_t) { absent(); }
void* allocate_shared(int, size_t) { absent(); }
void release(int, void*) noexcept {}
void copy_to_host(int, void*, const void*, size_t) { absent(); }
void copy_to_device(int, void*, const void*, size_t) { absent(); }
void zero(int, void*, size_t) { absent(); }
void synchronize(int) { absent(); }
void fill_masters(int, const void*, float*, int64_t, bool) { absent(); }
void require_reachable(int, const void*, const std::string&) { absent(); }

size_t l2_bytes(int) { absent(); }
int64_t memory_bytes(int) { absent(); }
int64_t free_bytes(int) { absent(); }
std::string pci_bus_id(int) { absent(); }

void start_trace() { absent(); }
std::vector<Activity> stop_trace() { absent(); }
int64_t trace_now() { absent(); }

struct Stream::Impl {};
Stream::Stream(int, Priority) { absent(); }
Stream::~Stream() = default;
void* Stream::handle() const { absent(); }
Stream::Times Stream::time(const std::function<void()>&) { absent(); }
void Stream::copy(void*, const void*, size_t) { absent(); }
void Stream::wait() { absent(); }

struct Graph::Impl {};
Graph::Graph(Stream&, const std::function<void()>&) { absent(); }
Graph::~Graph() = default;
void Graph::launch() { absent(); }
int Graph::nodes() const { absent(); }

struct Matmul::Impl {};
Matmul::Matmul(int) { absent(); }
Matmul::~Matmul() = default;
void Matmul::prepare(const Product&) { absent(); }
std::string Matmul::choices() const { absent(); }
void Matmul::choose(const std::string&) { absent(); }
void Matmul::run(const Product&, double, const void*, const void*, double, const void*, void*,
                 void*, const void*) {
  absent();
}

struct Engine::Impl {};
Engine::Engine(const Rule&, const Options&, const std::vector<Slot>&, const std::vector<Group>&) {
  absent();
}
Engine::~Engine() = default;
void Engine::changed() { absent(); }
void Engine::grad_changed(size_t) { absent(); }
void Engine::group_changed(size_t) { absent(); }
void Engine::begin(const StepArgs&, bool) { absent(); }
void Engine::update(int, std::span<const size_t>, bool) { absent(); }
void Engine::count_skipped() { absent(); }
void Engine::zero_grads() { absent(); }
std::optional<Engine::Totals> Engine::pull(std::vector<Slot>&, std::vector<Group>&) { absent(); }
void Engine::push(int64_t, int64_t, uint64_t) { absent(); }
const int64_t* Engine::skipped_at() const { absent(); }

}  // namespace gallop::cuda
