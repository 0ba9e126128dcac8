// Shared by all operator kernels: number types, 128-bit accesses, launches that may overlap their predecessor.
//
// Every kernel here reads its shape from a struct `C` of constexpr ints, so index arithmetic has no real division.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include <type_traits>

namespace bolt {
namespace op {

using half = __half;
using bfloat16 = __nv_bfloat16;

// Lets the next kernel of the stream start its own preamble, then waits until everything before this one is done and
// visible. Must come before the first access to an activation. Without PDL, and before sm90, it does nothing.
__device__ __forceinline__ void wait_for_producers() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Launches so that, with `pdl`, the kernel may start before its predecessor has ended. Returns a cudaError_t.
template <class... Parameters, class... Arguments>
int launch(void (*kernel)(Parameters...), unsigned blocks, unsigned threads, cudaStream_t stream, bool pdl,
           Arguments... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = pdl ? 1 : 0;
  return int(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...));
}

__host__ __device__ constexpr unsigned ceil_div(unsigned a, unsigned b) { return (a + b - 1) / b; }

// N numbers that are loaded and stored by accesses as wide as their alignment.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Vec {
  T v[N];
};

template <int N, class T>
__device__ __forceinline__ Vec<T, N> load(T const* p) {
  return *reinterpret_cast<Vec<T, N> const*>(p);
}
template <int N, class T>
__device__ __forceinline__ void store(T* p, Vec<T, N> const& x) {
  *reinterpret_cast<Vec<T, N>*>(p) = x;
}

// The widest vector, at most 16 bytes of T, whose length divides the extent.
template <class T>
__host__ __device__ constexpr int width(int extent) {
  int n = 16 / int(sizeof(T));
  while (n > 1 && extent % n) n /= 2;
  return n;
}

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(bfloat16 x) { return __bfloat162float(x); }
template <class T>
__device__ __forceinline__ float to_float(T x) {
  return float(x);
}

// Conversion to a stored type, rounding to nearest even; integers from floats truncate, as ONNX's Cast does.
template <class T>
struct To {
  template <class V>
  __device__ __forceinline__ static T from(V x) {
    return T(x);
  }
};
template <>
struct To<half> {
  template <class V>
  __device__ __forceinline__ static half from(V x) {
    return __float2half_rn(float(x));
  }
};
template <>
struct To<bfloat16> {
  template <class V>
  __device__ __forceinline__ static bfloat16 from(V x) {
    return __float2bfloat16_rn(float(x));
  }
};
template <>
struct To<bool> {
  template <class V>
  __device__ __forceinline__ static bool from(V x) {
    return x != V(0);
  }
};

// A stored number as another stored type; integers never pass through a float.
template <class U, class T>
__device__ __forceinline__ U convert(T x) {
  if constexpr (std::is_same<U, T>::value) {
    return x;
  } else if constexpr (std::is_integral<U>::value && std::is_integral<T>::value) {
    return To<U>::from(x);
  } else {
    return To<U>::from(to_float(x));
  }
}

// What the pointwise generator calls. A NaN operand gives NaN, as in ONNX Runtime.
__device__ __forceinline__ float larger(float a, float b) { return a > b || a != a ? a : b; }
__device__ __forceinline__ float smaller(float a, float b) { return a < b || a != a ? a : b; }
__device__ __forceinline__ float power(float a, float b) { return b == 2.f ? a * a : powf(a, b); }
__device__ __forceinline__ long long power(long long a, long long b) {
  long long result = b < 0 ? (a == 1 ? 1 : (a == -1 ? (b % 2 ? -1 : 1) : 0)) : 1;
  for (; b > 0; b /= 2, a *= a) result *= b % 2 ? a : 1;
  return result;
}
__device__ __forceinline__ long long floor_mod(long long a, long long b) {
  long long const r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
__device__ __forceinline__ float floor_mod(float a, float b) {
  float const r = fmodf(a, b);
  return r != 0.f && (r < 0.f) != (b < 0.f) ? r + b : r;
}
__device__ __forceinline__ bool is_inf(float x, int negative, int positive) {
  return fabsf(x) == INFINITY && (x < 0.f ? negative : positive);
}

// Reductions over groups of THREADS threads: a warp's share, or a whole block (then all threads must call).
template <int THREADS, class Combine>
__device__ __forceinline__ float reduce_threads(float x, Combine combine) {
  constexpr int kLanes = THREADS < 32 ? THREADS : 32;
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) x = combine(x, __shfl_xor_sync(~0u, x, step));
  if constexpr (THREADS > 32) {
    __shared__ float partial[THREADS / 32];
    __syncthreads();  // a former round may still be reading
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = x;
    __syncthreads();
    x = partial[0];
#pragma unroll
    for (int i = 1; i < THREADS / 32; ++i) x = combine(x, partial[i]);
  }
  return x;
}
struct Sum {
  __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
};
struct Largest {
  __device__ __forceinline__ float operator()(float a, float b) const { return larger(a, b); }
};
struct Smallest {
  __device__ __forceinline__ float operator()(float a, float b) const { return smaller(a, b); }
};
struct Product {
  __device__ __forceinline__ float operator()(float a, float b) const { return a * b; }
};

}  // namespace op
}  // namespace bolt
