// Ampere instructions that CUDA C++ has no name for, one function each, with what stands for them on Turing (sm75).
// Tests run kernels on the CPU by putting another header in the place of this one: no kernel uses asm of its own.
#pragma once
#include <cuda_runtime.h>
#include <cstdint>
#include <type_traits>
#include "cutlass/bfloat16.h"
#include "cutlass/half.h"

namespace bolt::ptx {

// ---- Copies to shared memory. Groups of copies complete in the order in which they were committed; a barrier must
// follow a wait before another thread's copies are read. On sm75 a copy is over at once.
// kBytes from global to shared memory, zeros where `inside` is false; `from` is then not read.
template <int kBytes>
__device__ __forceinline__ void copy_async(void* to, void const* from, bool inside) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (kBytes >= 4) {
    uint32_t const address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
    int const read = inside ? kBytes : 0;
    if constexpr (kBytes == 16) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(read) : "memory");
    } else {
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(from), "n"(kBytes), "r"(read)
                   : "memory");
    }
    return;
  }
#endif
  struct alignas(kBytes) Bytes {
    unsigned char value[kBytes];
  };
  *static_cast<Bytes*>(to) = inside ? *static_cast<Bytes const*>(from) : Bytes{};
}
__device__ __forceinline__ void copies_commit() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int kPending>
__device__ __forceinline__ void copies_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

// ---- 8x8 matrices of 16-bit elements from shared memory: lane l names row l % 8 of matrix l / 8 and gets of each
// matrix elements 2 (l % 4) and + 1 of row l / 4 (transposed: rows 2 (l % 4) and + 1 of column l / 4).
__device__ __forceinline__ void matrices(uint32_t (&m)[4], void const* row) {
  uint32_t const address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void matrices_transposed(uint32_t (&m)[4], void const* row) {
  uint32_t const address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address)
               : "memory");
}

// ---- d (16x8, fp32) += a (16x16) b (16x8, column-major); fragments as PTX ISA, "Matrix Fragments for mma.m16n8k16".
template <class Element>
__device__ __forceinline__ void mma(float* d, uint32_t const (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<Element, cutlass::bfloat16_t>) {
    asm(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    static_assert(std::is_same_v<Element, cutlass::half_t>, "fp16 and bf16 have such a product");
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else  // its two halves of depth 8
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b0));
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[2]), "r"(a[3]), "r"(b1));
#endif
  }
}

// 2^x within 2^-22 of its value (PTX ISA, ex2.approx); 0 for -infinity.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace bolt::ptx
