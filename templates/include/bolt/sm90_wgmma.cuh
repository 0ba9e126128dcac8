// wgmma of 64 rows, depth 16 and CuTe's usual widths as one call on plain arrays: CuTe's atoms, their arguments spread.
// Accumulators and register operands lie in a warp as those of mma.m16n8k16 do, each warp of the group with 16 rows.
#pragma once
#include <utility>
#include "cute/arch/mma_sm90_gmma.hpp"
#include "cutlass/bfloat16.h"
#include "cutlass/half.h"

namespace bolt::ptx {

namespace gmma = cute::SM90::GMMA;

// kShared: both operands in shared memory, rows of depth (K-major). kMixed: A in registers, B as rows of columns
// (MN-major).
template <int kColumns, class Element>
struct WgmmaAtoms;
#define BOLT_WGMMA_ATOMS(N)                                                              \
  template <>                                                                            \
  struct WgmmaAtoms<N, cutlass::half_t> {                                                \
    using Shared = gmma::MMA_64x##N##x16_F32F16F16_SS<gmma::Major::K, gmma::Major::K>;   \
    using Mixed = gmma::MMA_64x##N##x16_F32F16F16_RS<gmma::Major::K, gmma::Major::MN>;   \
  };                                                                                     \
  template <>                                                                            \
  struct WgmmaAtoms<N, cutlass::bfloat16_t> {                                            \
    using Shared = gmma::MMA_64x##N##x16_F32BF16BF16_SS<gmma::Major::K, gmma::Major::K>; \
    using Mixed = gmma::MMA_64x##N##x16_F32BF16BF16_RS<gmma::Major::K, gmma::Major::MN>; \
  };
BOLT_WGMMA_ATOMS(64)
BOLT_WGMMA_ATOMS(96)
BOLT_WGMMA_ATOMS(128)
BOLT_WGMMA_ATOMS(192)
BOLT_WGMMA_ATOMS(256)
#undef BOLT_WGMMA_ATOMS

namespace detail {
template <class Op, int kCount, size_t... I>
__device__ __forceinline__ void shared(uint64_t a, uint64_t b, float (&d)[kCount], gmma::ScaleOut scale,
                                       std::index_sequence<I...>) {
  Op::fma(a, b, d[I]..., scale);
}
template <class Op, int kCount, size_t... I>
__device__ __forceinline__ void mixed(uint32_t const (&a)[4], uint64_t b, float (&d)[kCount], gmma::ScaleOut scale,
                                      std::index_sequence<I...>) {
  Op::fma(a[0], a[1], a[2], a[3], b, d[I]..., scale);
}
}  // namespace detail

// d = a b, or d += a b if `accumulate`; kCount accumulators of a thread are 2 kCount columns. Enqueued: ordered by
// wgmma_fence, wgmma_commit and wgmma_wait (bolt/sm90_ptx.cuh).
template <class Element, int kCount>
__device__ __forceinline__ void wgmma(float (&d)[kCount], uint64_t a, uint64_t b, bool accumulate) {
  auto const scale = accumulate ? gmma::ScaleOut::One : gmma::ScaleOut::Zero;
  detail::shared<typename WgmmaAtoms<2 * kCount, Element>::Shared>(a, b, d, scale, std::make_index_sequence<kCount>{});
}
template <class Element, int kCount>
__device__ __forceinline__ void wgmma(float (&d)[kCount], uint32_t const (&a)[4], uint64_t b, bool accumulate) {
  auto const scale = accumulate ? gmma::ScaleOut::One : gmma::ScaleOut::Zero;
  detail::mixed<typename WgmmaAtoms<2 * kCount, Element>::Mixed>(a, b, d, scale, std::make_index_sequence<kCount>{});
}

}  // namespace bolt::ptx
