// Entry point of CUTLASS 2.x kernels. The device adapters of CUTLASS are not used because they keep state,
// know no programmatic dependent launch, and fix the swizzle at compile time.
#pragma once
#include <cuda_runtime.h>
#include "bolt/abi.h"
#include "bolt/launch.h"
#include "cutlass/cutlass.h"

namespace bolt {

// On sm90 and later: wait for the kernels before this one, then let the next one start its prologue.
CUTLASS_DEVICE void grid_dependency() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

template <class Kernel>
static __global__ void __launch_bounds__(Kernel::kThreadCount) entry_2x(typename Kernel::Params params) {
  extern __shared__ __align__(16) int shared_storage[];
  grid_dependency();
  Kernel kernel;
  kernel(params, *reinterpret_cast<typename Kernel::SharedStorage*>(shared_storage));
}

// The largest power of two not above `wanted` and not more than the tiles along N, as a logarithm
// (GemmIdentityThreadblockSwizzle decodes any value up to 3).
inline int swizzle_log(int wanted, int tiles_n) {
  int log = 0;
  while (log < 3 && (2 << log) <= wanted && (1 << log) < tiles_n) ++log;
  return log;
}

inline bool aligned(void const* pointer, size_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

}  // namespace bolt
