// The measuring library: inputs, the independent reference and the comparison. Plain C; every call enqueues on the
// stream and gives 0 or a cudaError_t. Type codes: 0 f16, 1 bf16, 2 f32, 3 tf32 (float32 whose low 13 bits are zero), 4 bool (a byte).
#pragma once
#include <cuda_runtime_api.h>
#include <stdint.h>
#include "epilogue_ops.h"

// Shapes only: strides are derived here and not taken from the argument block under test.
struct bolt_ref_problem {
  int32_t is_conv, dtype, out_dtype;
  // GEMM. a_col: A stored (k, m); b_col: B stored (n, k); shared_b: one B for the whole batch.
  int32_t m, n, k, batch, a_col, b_col, shared_b;
  // Conv: NHWC input (cn, h, w, c), KRSC weights (cout, r, s, c / groups), NPQK output.
  int32_t cn, h, w, c, cout, r, s, pad_top, pad_left, pad_bottom, pad_right;
  int32_t stride_h, stride_w, dilation_h, dilation_w, groups;
};

// softmax(scale Q K^T + mask) V. Unlike above, where operands lie is part of the problem: strides in elements of batch,
// head and row. mask_kind: 0 none, 1 added (of the operands' type), 2 bytes that keep a score, 3 bytes that drop it; 4 and 5
// the same with a finite low number in the place of a dropped score.
struct bolt_ref_attention {
  int32_t dtype, mask_kind, causal;
  int32_t batch, heads, kv_heads, q_length, kv_length, head_dim, value_dim;
  float scale;
  int32_t pad;
  int64_t q[3], k[3], v[3], out[3], mask[3];
};

// What a word adds to the checksum of its buffer (the finalizer of SplitMix64).
inline
#ifdef __CUDACC__
    __host__ __device__
#endif
    unsigned long long
    bolt_ref_mixed(unsigned word, int64_t place) {
  unsigned long long z = word + 0x9E3779B97F4A7C15ull * static_cast<unsigned long long>(place + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

struct bolt_ref_result {
  double difference2, reference2;  // sums of squares
  uint32_t max_abs_bits;           // the float's bits
  uint32_t pad;
  unsigned long long non_finite;   // elements of the output that are NaN or infinite
};

// Libraries are built with hidden visibility.
#define BOLT_REF_API __attribute__((visibility("default")))

extern "C" {
// n elements, uniform in [-scale, scale], a pure function of (seed, index); of bools, one in eight is 0.
BOLT_REF_API int bolt_ref_fill(void* p, int dtype, int64_t n, uint64_t seed, float scale, cudaStream_t stream);
// out: float32, not rounded to the output type.
BOLT_REF_API int bolt_ref_run(bolt_ref_problem const* problem, bolt_ref_ops const* ops, void const* a, void const* b,
                              void const* bias, void const* source, float* out, cudaStream_t stream);
// out: float32, not rounded, at the places of the problem's `out`. Rows whose every score is -infinity are 0.
BOLT_REF_API int bolt_ref_attend(bolt_ref_attention const* problem, void const* q, void const* k, void const* v,
                                 void const* mask, float* out, cudaStream_t stream);
// out[i] = in[i] rounded to the type: what a kernel that stores its result would have left in memory.
BOLT_REF_API int bolt_ref_round(float const* in, void* out, int dtype, int64_t n, cudaStream_t stream);
BOLT_REF_API int bolt_ref_compare(void const* d, int dtype, float const* reference, int64_t n,
                                  bolt_ref_result* result, cudaStream_t stream);
// Counts bytes that differ from `value` outside [begin, end) of each of `count` blocks of `stride` bytes.
BOLT_REF_API int bolt_ref_guard(void const* base, int64_t count, int64_t stride, int64_t begin, int64_t end,
                                int value, unsigned long long* changed, cudaStream_t stream);
// A checksum of the bytes (a multiple of 4) that tells where in them a word stands: sum of mixed (word, place).
BOLT_REF_API int bolt_ref_digest(void const* base, int64_t bytes, unsigned long long* sum, cudaStream_t stream);
// d[i][j] = ops(d[i][j], bias[j], source[i][j]) in place; the peer of a library that can't fuse these steps.
BOLT_REF_API int bolt_ref_elementwise(void* d, int out_dtype, void const* bias, int bias_dtype, void const* source,
                                      int64_t rows, int64_t columns, bolt_ref_ops const* ops, cudaStream_t stream);
}
