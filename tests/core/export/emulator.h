// Runs the operator kernels on the CPU, one std::thread for each CUDA thread, so that they can be checked without a GPU.
//
// Blocks run one after the other, so a __shared__ variable may be a static one. Warps meet in __shfl_xor_sync, blocks in
// __syncthreads. A thread that returns early must do so with its whole warp, as the kernels promise.
#pragma once
#define __CUDA_INCLUDE_COMPILER_INTERNAL_HEADERS__
#include <cuda_runtime.h>

#include <barrier>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#undef __shared__
#define __shared__ static
#undef __launch_bounds__
#define __launch_bounds__(...)

namespace emulator {
using Barrier = std::barrier<>;
inline thread_local uint3 block_index, thread_index;
inline std::unique_ptr<Barrier> block_barrier;
inline std::vector<std::unique_ptr<Barrier>> warp_barriers;
inline float lanes[1024];
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
  emulator::Barrier end(count);
  emulator::block_barrier = std::make_unique<emulator::Barrier>(count);
  emulator::warp_barriers.clear();
  for (unsigned i = 0; i < (count + 31) / 32; ++i) emulator::warp_barriers.push_back(std::make_unique<emulator::Barrier>(32));
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      threadIdx.x = i;
      for (unsigned b = 0; b < blocks; ++b) {
        blockIdx.x = b;
        kernel(arguments...);
        end.arrive_and_wait();
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

template <class... Parameters, class... Arguments>
cudaError_t launch_kernel(cudaLaunchConfig_t const* config, void (*kernel)(Parameters...), Arguments... arguments) {
  unsigned const blocks = config->gridDim.x, count = config->blockDim.x;
  return cudaError_t(enqueue([=] { run_kernel(blocks, count, kernel, arguments...); }));
}
}  // namespace emulator
#define cudaLaunchKernelEx emulator::launch_kernel
