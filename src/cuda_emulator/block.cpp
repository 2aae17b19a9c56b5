// SPDX-License-Identifier: MIT
#include "cuda_emulator/block.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>

#include "cuda_emulator/device.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

thread_local EmulatedIndex threadIdx, blockIdx, blockDim, gridDim;

namespace gallop::emulator {

void fail(const char* what) {
  std::fprintf(stderr, "emulated GPU: %s, by thread %u of block %u\n", what, threadIdx.x,
               blockIdx.x);
  std::abort();
}

namespace {

constexpr size_t kStack = size_t{128} << 10;
constexpr unsigned kWarp = 32;

// Tells the address sanitizer, which keeps books on stacks, that another one is used.
struct Switch {
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
  void leave(const void* bottom, size_t size) {
    __sanitizer_start_switch_fiber(&fake, bottom, size);
  }
  void arrive(const void** bottom = nullptr, size_t* size = nullptr) {
    __sanitizer_finish_switch_fiber(fake, bottom, size);
  }
#else
  void leave(const void*, size_t) {}
  void arrive(const void** = nullptr, size_t* = nullptr) {}
#endif
};

struct Fiber {
  enum State { ready, waits_for_warp, waits_for_block, done };
  State state = done;
  bool begun = false;
  bool odd = false;  // shuffles so far, of the two places for what is exchanged
  jmp_buf at;
  ucontext_t start;
  Switch books;
};

// One multiprocessor: the fibers of one block after the other.
class Block {
 public:
  Block()
      : stacks_(static_cast<char*>(mmap(nullptr, kMostThreads * kStack, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    if (stacks_ == MAP_FAILED) fail("no memory for stacks");
  }

  void run(const Call& call, unsigned threads) {
    call_ = &call;
    threads_ = live_ = threads;
    for (unsigned i = 0; i < threads; ++i) {
      fibers_[i].state = Fiber::ready;
      ++warp_live_[i / kWarp];
    }
    backwards_ = !backwards_;
    while (live_ > 0) {
      bool moved = false;
      for (unsigned i = 0; i < threads; ++i) {
        const unsigned next = backwards_ ? threads - 1 - i : i;
        if (fibers_[next].state != Fiber::ready) continue;
        resume(next);
        moved = true;
      }
      if (!moved) fail("threads wait for one another in different places");
    }
  }

  void wait_for_block() {
    ++waiting_;
    self().state = Fiber::waits_for_block;
    release_block();
    if (self().state != Fiber::ready) leave();
  }
  void wait_for_warp() {
    ++warp_waiting_[current_ / kWarp];
    self().state = Fiber::waits_for_warp;
    release_warp();
    if (self().state != Fiber::ready) leave();
  }
  std::uint64_t exchange(std::uint64_t bits, unsigned from) {
    Fiber& me = self();
    auto& places = exchanged_[current_ / kWarp][me.odd];
    me.odd = !me.odd;
    places[current_ % kWarp] = bits;
    wait_for_warp();
    return places[from];
  }

 private:
  Fiber& self() { return fibers_[current_]; }

  void release_block() {
    if (waiting_ < live_) return;
    for (unsigned i = 0; i < threads_; ++i) {
      if (fibers_[i].state == Fiber::waits_for_block) fibers_[i].state = Fiber::ready;
    }
    waiting_ = 0;
  }
  void release_warp() {
    const unsigned warp = current_ / kWarp;
    if (warp_waiting_[warp] < warp_live_[warp]) return;
    for (unsigned i = warp * kWarp; i < (warp + 1) * kWarp && i < threads_; ++i) {
      if (fibers_[i].state == Fiber::waits_for_warp) fibers_[i].state = Fiber::ready;
    }
    warp_waiting_[warp] = 0;
  }

  void resume(unsigned i) {
    current_ = i;
    threadIdx = {i % blockDim.x, i / blockDim.x, 0};
    Fiber& f = fibers_[i];
    char* stack = stacks_ + i * kStack;
    if (_setjmp(home_) == 0) {
      books_.leave(stack, kStack);
      if (f.begun) _longjmp(f.at, 1);
      f.begun = true;
      getcontext(&f.start);
      f.start.uc_stack.ss_sp = stack;
      f.start.uc_stack.ss_size = kStack;
      f.start.uc_link = nullptr;
      const auto me = reinterpret_cast<std::uintptr_t>(this);
      makecontext(&f.start, reinterpret_cast<void (*)()>(&Block::begin), 2,
                  static_cast<unsigned>(me >> 32), static_cast<unsigned>(me));
      setcontext(&f.start);
    }
    books_.arrive();
  }
  void leave() {
    Fiber& me = self();
    if (_setjmp(me.at) == 0) {
      me.books.leave(home_stack_, home_size_);
      _longjmp(home_, 1);
    }
    me.books.arrive(&home_stack_, &home_size_);
  }
  // A fiber lives on: it is a thread of one block after the other.
  static void begin(unsigned high, unsigned low) {
    auto* block = reinterpret_cast<Block*>(static_cast<std::uintptr_t>(high) << 32 | low);
    block->self().books.arrive(&block->home_stack_, &block->home_size_);
    for (;;) {
      (*block->call_)();
      block->self().state = Fiber::done;
      --block->live_;
      --block->warp_live_[block->current_ / kWarp];
      block->release_warp();
      block->release_block();
      block->leave();
    }
  }

  char* stacks_;
  Fiber fibers_[kMostThreads];
  const Call* call_ = nullptr;
  unsigned threads_ = 0, live_ = 0, waiting_ = 0, current_ = 0;
  unsigned warp_live_[kMostThreads / kWarp] = {}, warp_waiting_[kMostThreads / kWarp] = {};
  std::uint64_t exchanged_[kMostThreads / kWarp][2][kWarp];
  bool backwards_ = false;  // the order of threads is none to rely on
  jmp_buf home_;
  Switch books_;
  const void* home_stack_ = nullptr;
  size_t home_size_ = 0;
};

thread_local Block* current_block = nullptr;

class Multiprocessors {
 public:
  // Never ends: threads of the CPU wait in it when the program does.
  static Multiprocessors& instance() {
    static auto* const all = new Multiprocessors;
    return *all;
  }

  void run(dim3 grid, dim3 block, const Call& call) {
    const std::lock_guard one_launch(launching_);
    std::unique_lock lock(mutex_);
    grid_ = grid;
    block_ = block;
    call_ = &call;
    next_ = 0;
    at_work_ = kBlocksAtOnce;
    ++launches_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return at_work_ == 0; });
  }

 private:
  Multiprocessors() {
    for (unsigned i = 0; i < kBlocksAtOnce; ++i) std::thread([this] { work(); }).detach();
  }
  void work() {
    auto* block = new Block;
    current_block = block;
    for (unsigned long seen = 0;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return launches_ != seen; });
      seen = launches_;
      while (next_ < grid_.x * grid_.y * grid_.z) {
        const unsigned i = next_++;
        blockIdx = {i % grid_.x, i / grid_.x % grid_.y, i / grid_.x / grid_.y};
        gridDim = {grid_.x, grid_.y, grid_.z};
        blockDim = {block_.x, block_.y, block_.z};
        lock.unlock();
        block->run(*call_, block_.x * block_.y);
        lock.lock();
      }
      if (--at_work_ == 0) changed_.notify_all();
    }
  }

  std::mutex launching_, mutex_;
  std::condition_variable changed_;
  unsigned long launches_ = 0;
  unsigned at_work_ = 0, next_ = 0;
  dim3 grid_, block_;
  const Call* call_ = nullptr;
};

}  // namespace

void run_blocks(dim3 grid, dim3 block, const Call& call) {
  Multiprocessors::instance().run(grid, block, call);
}

std::uint64_t exchange(std::uint64_t bits, unsigned from) {
  return current_block->exchange(bits, from);
}

}  // namespace gallop::emulator

void __syncthreads() { gallop::emulator::current_block->wait_for_block(); }
void __nanosleep(unsigned) { std::this_thread::yield(); }
