// The launch of a kernel that is no CUTLASS adapter's: dynamic shared memory, programmatic dependent launch on request.
#pragma once
#include <cuda_runtime.h>
#include "bolt/abi.h"

namespace bolt {

constexpr int kSharedUnasked = 48 << 10;  // bytes that a block may have without its function being allowed more

// Launches `function` over `grid`; 0 or BOLT_E_LAUNCH.
// kMostShared: for functions whose `shared_bytes` differ from launch to launch, the most that any of them takes. What a
// function is allowed is then always the same, so launches from several threads, or captured ones, don't meddle.
template <int kMostShared = 0, class... Formal, class... Actual>
int launch(void (*function)(Formal...), dim3 grid, int threads, size_t shared_bytes, bool pdl, cudaStream_t stream,
           Actual const&... arguments) {
  int const allowed = kMostShared ? kMostShared : int(shared_bytes);
  if (allowed >= kSharedUnasked &&
      cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, allowed) != cudaSuccess) {
    return BOLT_E_LAUNCH;
  }
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(unsigned(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = pdl ? 1 : 0;
  return cudaLaunchKernelEx(&config, function, arguments...) == cudaSuccess ? BOLT_OK : BOLT_E_LAUNCH;
}

}  // namespace bolt
