// What the attention kernels need of the CPU beside tests/core/export/emulator.h: shared memory that a launch asks for.
#pragma once
#include "emulator.h"
#undef __shared__
#define __shared__
#undef __grid_constant__
#define __grid_constant__
#define cudaFuncSetAttribute(...) cudaSuccess
// CuTe asks for the address of shared memory that it makes a descriptor of; the kernels put in their own.
#define CUTE_CVTA_GENERIC_TO_SHARED_ACTIVATED 1
#define __cvta_generic_to_shared(pointer) 0

inline dim3 gridDim;
namespace emulator {
template <class... Arguments>
cudaError_t launch_on_grid(cudaLaunchConfig_t const* config, Arguments... arguments) {
  ::gridDim = config->gridDim;
  return launch_kernel(config, arguments...);
}
}  // namespace emulator
#undef cudaLaunchKernelEx
#define cudaLaunchKernelEx emulator::launch_on_grid

#include "bolt/sm90_wgmma.cuh"

namespace bolt::attention {
alignas(1024) unsigned char shared[1 << 18];
}
inline void __syncwarp() { bolt::ptx::warp_meets(); }
inline int __shfl_sync(unsigned, int x, int) { return x; }  // of values that are equal in a warp
