// What every attention kernel shares: the problem, the mask, the online softmax.
//
// A warp computes 16 queries against kColumns keys at a time. Its scores are the accumulators of mma.m16n8 (and of the
// 16 rows that wgmma gives a warp): of each 8 columns n, lane l holds
//     scores[4 n + 2 r + c]   of row l / 4 + 8 r, column 8 n + 2 (l % 4) + c,   r, c = 0, 1
// so a row lies in the four lanes of a quad, and two neighbouring n are the A operand of the next product, unmoved.
//
// Online softmax (Milakov and Gimelshein, "Online normalizer calculation for softmax", arXiv 1805.02867; Dao et al.,
// "FlashAttention", arXiv 2205.14135, algorithm 1): of each row the largest score so far and the sum of the numerators
// are kept, in base 2. A larger score later makes everything summed before smaller by one factor. The numerators are
// rounded to 16 bits before they meet V; their sum is taken unrounded. A row of dropped scores gives zeros.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include "bolt/abi.h"
#include "bolt/sm80_ptx.cuh"

namespace bolt::attention {

// templates/attention.py, MaskKind
enum class Mask : int { kNone = 0, kAdd = 1, kKeep = 2, kDrop = 3, kKeepLow = 4, kDropLow = 5 };

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kDropped = -INFINITY;
// Of the Low masks: beyond every score, and a power of two, so that its product with any scale is exact.
constexpr float kLow = -0x1p100f;
constexpr int kWarpRows = 16;  // of an mma
constexpr int kFragmentColumns = 8;

struct Strides {
  int64_t batch, head, row;
  __host__ __device__ __forceinline__ int64_t at(int b, int h, int r) const { return b * batch + h * head + r * row; }
};

struct Problem {
  int batch, heads, kv_heads, q_length, kv_length, head_dim, value_dim;
  float scale;  // of the scores, to base 2
  Strides q, k, v, out, mask;

  explicit Problem(bolt_args const& a)
      : batch(a.batch), heads(a.heads), kv_heads(a.kv_heads), q_length(a.q_length), kv_length(a.kv_length),
        head_dim(a.head_dim), value_dim(a.value_dim), scale(a.scale * kLog2E), q{a.q_batch, a.q_head, a.q_row},
        k{a.k_batch, a.k_head, a.k_row}, v{a.v_batch, a.v_head, a.v_row}, out{a.out_batch, a.out_head, a.out_row},
        mask{a.mask_batch, a.mask_head, a.mask_row} {}

  // The tile, head and batch entry of a block; tiles of one head are neighbours, since they share keys and values.
  // Under a causal mask the last tiles see most, so they come first.
  struct Place {
    int tile, head, batch;
  };
  __device__ __forceinline__ Place place(int block, int tiles, bool last_first) const {
    int const rest = block / tiles, tile = block - rest * tiles;
    return {last_first ? tiles - 1 - tile : tile, rest % heads, rest / heads};
  }
  __device__ __forceinline__ int kv_head(int head) const { return head / (heads / kv_heads); }
};

// Shapes that make sense at all; every family checks its own limits on top.
inline bool sensible(bolt_args const& a, Mask mask) {
  bool const extents = a.batch > 0 && a.heads > 0 && a.kv_heads > 0 && a.q_length > 0 && a.kv_length > 0 &&
                       a.head_dim > 0 && a.value_dim > 0;
  return extents && a.heads % a.kv_heads == 0 && a.scale > 0 && (mask == Mask::kNone || a.source);
}

// Two neighbouring numbers of a row as one 32-bit register, rounded to nearest even.
template <class Element>
__device__ __forceinline__ uint32_t packed(float low, float high) {
  uint32_t bits;
  if constexpr (std::is_same_v<Element, cutlass::half_t>) {
    __half2 const pair = __floats2half2_rn(low, high);
    memcpy(&bits, &pair, sizeof bits);
  } else {
    static_assert(std::is_same_v<Element, cutlass::bfloat16_t>, "fp16 and bf16 have packed conversions");
    __nv_bfloat162 const pair = __floats2bfloat162_rn(low, high);
    memcpy(&bits, &pair, sizeof bits);
  }
  return bits;
}

// The numerators of columns [16 k, 16 k + 16) as an A operand.
template <class Element, int kCount>
__device__ __forceinline__ void as_operand(float const (&numerators)[kCount], int k, uint32_t (&a)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) a[i] = packed<Element>(numerators[8 * k + 2 * i], numerators[8 * k + 2 * i + 1]);
}

// The two rows of a lane: their scores' bounds and place in the mask.
template <class Element, Mask kMask, bool kCausal>
struct Rows {
  int limit[2];  // columns from here on are not seen
  void const* mask[2];

  // `first`: the lane's upper row. Rows beyond the last query compute on what the last one sees; nobody stores them.
  __device__ __forceinline__ Rows(Problem const& p, void const* whole_mask, int batch, int head, int first) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      int const own = first + 8 * r, row = own < p.q_length ? own : p.q_length - 1;
      limit[r] = kCausal && row + 1 < p.kv_length ? row + 1 : p.kv_length;
      using Stored = std::conditional_t<kMask == Mask::kAdd, Element, uint8_t>;
      mask[r] = kMask == Mask::kNone ? nullptr : static_cast<Stored const*>(whole_mask) + p.mask.at(batch, head, row);
    }
  }

  // Scores of the columns from `column` on (the lane's first one) with the mask applied, dropped ones at -infinity.
  // With an added mask they come out scaled to base 2, otherwise raw.
  template <int kCount>
  __device__ __forceinline__ void apply(float (&scores)[kCount], int column, float scale) const {
    if constexpr (kMask != Mask::kNone) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        int const at = column + i / 4 * kFragmentColumns + i % 2, r = i / 2 % 2;
        if (at >= limit[r]) continue;
        if constexpr (kMask == Mask::kAdd) {
          scores[i] = scores[i] * scale + float(static_cast<Element const*>(mask[r])[at]) * kLog2E;
        } else {
          bool const set = static_cast<uint8_t const*>(mask[r])[at] != 0;
          constexpr bool kKeeps = kMask == Mask::kKeep || kMask == Mask::kKeepLow;
          constexpr bool kFinite = kMask == Mask::kKeepLow || kMask == Mask::kDropLow;
          if (set != kKeeps) scores[i] = kFinite ? kLow : kDropped;
        }
      }
    }
    constexpr int kSpan = kCount / 4 * kFragmentColumns;
    if (column + kSpan > limit[0]) {  // the lower row never sees less
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        int const at = column + i / 4 * kFragmentColumns + i % 2;
        if (at >= limit[i / 2 % 2]) scores[i] = kDropped;
      }
    }
  }
};

// The running maximum and sum of a lane's two rows.
template <bool kScaled>  // the scores are scaled already
struct Softmax {
  float largest[2] = {kDropped, kDropped}, sum[2] = {0.f, 0.f};  // the sum: of this lane's columns only

  // Scores become numerators; what was summed before is to be multiplied by `factor`.
  template <int kCount>
  __device__ __forceinline__ void step(float (&scores)[kCount], float scale, float (&factor)[2]) {
    float const unit = kScaled ? 1.f : scale;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float most = largest[r];
#pragma unroll
      for (int i = 0; i < kCount; i += 4) most = fmaxf(most, fmaxf(scores[i + 2 * r], scores[i + 2 * r + 1]));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
      float const subtracted = most == kDropped ? 0.f : most * unit;  // nothing seen yet: every numerator is 2^-inf
      factor[r] = ptx::exp2_approx(largest[r] * unit - subtracted);
      largest[r] = most;
      float added = 0.f;
#pragma unroll
      for (int i = 0; i < kCount; i += 4) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float& score = scores[i + 2 * r + c];
          score = ptx::exp2_approx(score * unit - subtracted);
          added += score;
        }
      }
      sum[r] = sum[r] * factor[r] + added;
    }
  }

  // What the accumulated rows are to be multiplied by in the end.
  __device__ __forceinline__ void finish(float (&factor)[2]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float total = sum[r];
      total += __shfl_xor_sync(~0u, total, 1);
      total += __shfl_xor_sync(~0u, total, 2);
      factor[r] = total == 0.f ? 0.f : 1.f / total;
    }
  }
};

// Accumulated results, laid out as the scores, times the factor of their row.
template <int kCount>
__device__ __forceinline__ void rescale(float (&results)[kCount], float const (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) results[i] *= factor[i / 2 % 2];
}

}  // namespace bolt::attention
