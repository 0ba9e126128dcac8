// Candidates with the kernels' C interface: one right, the others wrong each in its own way.
#include <cuda_fp16.h>
#include <cstdlib>
#include <unistd.h>

#include "bolt/abi.h"

namespace {

enum Fault { kNone, kIllegal, kHang, kWrong, kUnwritten, kAfter, kBefore, kTrap, kWritesA, kNeighbour };

__global__ void gemm(bolt_args g, Fault fault) {
  int const j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y;
  if (j >= g.n) return;
  if (fault == kIllegal) {
    *reinterpret_cast<volatile int*>(16ull + 4ull * j) = 1;  // in the null page
  }
  if (fault == kHang) {
    while (*reinterpret_cast<volatile unsigned short const*>(g.a) != 0x7FFF) {
    }
  }
  if (fault == kTrap) __trap();
  auto const* a = static_cast<__half const*>(g.a);
  auto const* b = static_cast<__half const*>(g.b);
  auto* d = static_cast<__half*>(g.d);
  if (fault == kUnwritten && i == g.m - 1) return;
  float sum = g.bias ? __half2float(static_cast<__half const*>(g.bias)[j]) : 0.f;
  for (int k = 0; k < g.k; ++k) sum += __half2float(a[i * g.lda + k]) * __half2float(b[j * g.ldb + k]);
  if (fault == kWrong && j % 16 == 3) sum *= 1.25f;
  d[i * g.ldd + j] = __float2half(sum > 0.f ? sum : 0.f);
  if (fault == kAfter && i == g.m - 1 && j == g.n - 1) d[i * g.ldd + j + 1] = __half(1.f);
  if (fault == kBefore && i == 0 && j == 0) d[-1] = __half(1.f);
  if (fault == kWritesA && i == 0 && j == 0) static_cast<__half*>(const_cast<void*>(g.a))[5] = __half(7.f);
  if (fault == kNeighbour && i == 0 && j == 0) static_cast<__half*>(const_cast<void*>(g.b))[-2] = __half(7.f);
}

int run(bolt_args const& g, cudaStream_t stream, Fault fault) {
  gemm<<<dim3((g.n + 127) / 128, g.m), 128, 0, stream>>>(g, fault);
  return cudaGetLastError() == cudaSuccess ? BOLT_OK : BOLT_E_LAUNCH;
}

// More shared memory than any GPU has: the launch itself is refused.
int run_too_large(bolt_args const& g, cudaStream_t stream) {
  gemm<<<dim3(1, 1), 128, 1 << 24, stream>>>(g, kNone);
  return cudaGetLastError() == cudaSuccess ? BOLT_OK : BOLT_E_LAUNCH;
}

// Allocates, which no kernel may: legal outside of a stream capture, an error inside.
int run_allocating(bolt_args const& g, cudaStream_t stream) {
  void* memory = nullptr;
  if (cudaMalloc(&memory, 1 << 20) != cudaSuccess) return BOLT_E_LAUNCH;
  int const code = run(g, stream, kNone);
  return cudaFree(memory) == cudaSuccess ? code : BOLT_E_LAUNCH;
}

// Right at first, wrong later: as a race that shows only under load.
int run_sometimes(bolt_args const& g, cudaStream_t stream) {
  static int runs = 0;
  return run(g, stream, ++runs > 6 ? kWrong : kNone);
}

// Takes all device memory and keeps it. Inside of a capture that is an error; the next process has it again.
int run_taking_all(bolt_args const& g, cudaStream_t stream) {
  void* memory = nullptr;
  for (size_t bytes = size_t(1) << 34; bytes >= 1 << 20; bytes /= 2)
    while (cudaMalloc(&memory, bytes) == cudaSuccess) {
    }
  return run(g, stream, kNone);
}

int run_forking(bolt_args const& g, cudaStream_t stream) {
  if (fork() == 0) pause();  // holds what the process had open until it is killed with it
  _exit(9);
}

}  // namespace

#define KERNEL(NAME, WORKSPACE, RUN)                                                                      \
  extern "C" BOLT_EXPORT int bolt_check_fault_f16f32_##NAME##_al8x8x8_bias_relu(bolt_args const*) { return 0; } \
  extern "C" BOLT_EXPORT size_t bolt_workspace_fault_f16f32_##NAME##_al8x8x8_bias_relu(bolt_args const*) {      \
    return WORKSPACE;                                                                                     \
  }                                                                                                       \
  extern "C" BOLT_EXPORT int bolt_run_fault_f16f32_##NAME##_al8x8x8_bias_relu(bolt_args const* g, cudaStream_t stream) { \
    return RUN;                                                                                           \
  }

KERNEL(good, 0, run(*g, stream, kNone))
KERNEL(illegal, 0, run(*g, stream, kIllegal))
KERNEL(hangs, 0, run(*g, stream, kHang))
KERNEL(wrong, 0, run(*g, stream, kWrong))
KERNEL(unwritten, 0, run(*g, stream, kUnwritten))
KERNEL(after, 0, run(*g, stream, kAfter))
KERNEL(before, 0, run(*g, stream, kBefore))
KERNEL(traps, 0, run(*g, stream, kTrap))
KERNEL(too_large, 0, run_too_large(*g, stream))
KERNEL(allocates, 0, run_allocating(*g, stream))
KERNEL(overrun, 1000, (cudaMemsetAsync(g->workspace, 0, 1016, stream), run(*g, stream, kNone)))
KERNEL(writes_a, 0, run(*g, stream, kWritesA))
KERNEL(neighbour, 0, run(*g, stream, kNeighbour))
KERNEL(sometimes, 0, run_sometimes(*g, stream))
KERNEL(takes_all, 0, run_taking_all(*g, stream))
KERNEL(exits, 0, (exit(0), 0))
KERNEL(forks, 0, run_forking(*g, stream))
KERNEL(aborts, 0, (abort(), 0))
