// Runs the operator kernels on the CPU, one fiber for each CUDA thread, so that they can be checked without a GPU.
//
// Blocks run one after the other, so a __shared__ variable may be a static one. Fibers wait for their warp in
// __shfl_xor_sync and for their block in __syncthreads. Each warp in turn runs as far ahead of the others as they let it,
// and every other round goes through them backwards: where a barrier is missing, reads come too early or writes too
// soon. A thread that returns early must do so with its whole warp, as the kernels promise; where all wait, the process
// ends.
#pragma once
#define __CUDA_INCLUDE_COMPILER_INTERNAL_HEADERS__
#include <cuda_runtime.h>
#include <ucontext.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#undef __shared__
#define __shared__ static
#undef __launch_bounds__
#define __launch_bounds__(...)

namespace emulator {
inline uint3 block_index, thread_index;

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  bool done = false;
};
constexpr size_t kStackBytes = 256 << 10;
inline std::vector<Fiber> fibers;
inline ucontext_t scheduler;
inline std::function<void()> body;  // what every fiber of the block runs
inline unsigned long progress = 0;  // counts all that may let another fiber go on

// Lets the others run until `ready`.
template <class Ready>
void until(Ready ready) {
  if (ready()) return;
  ++progress;
  do swapcontext(&fibers[thread_index.x].context, &scheduler);
  while (!ready());
  ++progress;
}

class Barrier {
 public:
  explicit Barrier(unsigned count) : count_(count) {}
  void arrive_and_wait() {
    unsigned long const round = round_;
    if (++arrived_ == count_) {
      arrived_ = 0;
      ++round_;
    }
    until([&] { return round_ != round; });
  }

 private:
  unsigned count_, arrived_ = 0;
  unsigned long round_ = 0;
};
inline std::unique_ptr<Barrier> block_barrier;
inline std::vector<std::unique_ptr<Barrier>> warp_barriers;
inline float lanes[1024];

inline void enter() {
  body();
  fibers[thread_index.x].done = true;
  ++progress;
}

// Runs the warp until each of its threads waits for another warp; whether some are not done.
inline bool run_warp(unsigned warp, unsigned count) {
  unsigned const end = count < 32 * warp + 32 ? count : 32 * warp + 32;
  bool left;
  unsigned long before;
  do {
    before = progress;
    left = false;
    for (unsigned i = 32 * warp; i < end; ++i) {
      if (fibers[i].done) continue;
      thread_index.x = i;
      swapcontext(&scheduler, &fibers[i].context);
      left |= !fibers[i].done;
    }
  } while (left && progress != before);
  return left;
}

inline void run_block(unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    Fiber& fiber = fibers[i];
    fiber.done = false;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = &scheduler;
    makecontext(&fiber.context, enter, 0);
  }
  unsigned const warps = (count + 31) / 32;
  bool left = true;
  for (unsigned round = 0; left; ++round) {
    unsigned long const before = progress;
    left = false;
    for (unsigned turn = 0; turn < warps; ++turn) left |= run_warp(round % 2 ? warps - 1 - turn : turn, count);
    if (left && progress == before) {
      std::fputs("every thread of a block waits for another\n", stderr);
      std::abort();
    }
  }
}
}  // namespace emulator
#define blockIdx emulator::block_index
#define threadIdx emulator::thread_index

inline void __syncthreads() { emulator::block_barrier->arrive_and_wait(); }
inline float __shfl_xor_sync(unsigned, float x, int step) {
  unsigned const me = threadIdx.x;
  auto& warp = *emulator::warp_barriers[me / 32];
  emulator::lanes[me] = x;
  warp.arrive_and_wait();
  float const other = emulator::lanes[me ^ unsigned(step)];
  warp.arrive_and_wait();
  return other;
}
inline float __expf(float x) { return std::exp(x); }
inline float rsqrtf(float x) { return 1.f / std::sqrt(x); }

namespace emulator {
using Work = std::vector<std::function<void()>>;
inline Work* captured = nullptr;  // where launches go while a stream is captured

inline int enqueue(std::function<void()> work) {
  if (captured)
    captured->push_back(std::move(work));
  else
    work();
  return 0;
}

template <class... Parameters, class... Arguments>
void run_kernel(unsigned blocks, unsigned count, void (*kernel)(Parameters...), Arguments... arguments) {
  block_barrier = std::make_unique<Barrier>(count);
  warp_barriers.clear();
  for (unsigned i = 0; i < (count + 31) / 32; ++i) warp_barriers.push_back(std::make_unique<Barrier>(32));
  while (fibers.size() < count) fibers.push_back({{}, std::unique_ptr<char[]>(new char[kStackBytes])});
  body = [&] { kernel(arguments...); };
  for (unsigned b = 0; b < blocks; ++b) {
    block_index.x = b;
    run_block(count);
  }
}

template <class... Parameters, class... Arguments>
cudaError_t launch_kernel(cudaLaunchConfig_t const* config, void (*kernel)(Parameters...), Arguments... arguments) {
  unsigned const blocks = config->gridDim.x, count = config->blockDim.x;
  return cudaError_t(enqueue([=] { run_kernel(blocks, count, kernel, arguments...); }));
}
}  // namespace emulator
#define cudaLaunchKernelEx emulator::launch_kernel
