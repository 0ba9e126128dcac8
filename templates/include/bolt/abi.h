// The binary interface of every generated operator kernel: plain C, one argument struct for all families.
//
// A kernel named K exports
//   int    bolt_check_K(bolt_args const*)                   0, or why it can't run these arguments (BOLT_E_*)
//   size_t bolt_workspace_K(bolt_args const*)               bytes of scratch it needs
//   int    bolt_run_K(bolt_args const*, cudaStream_t)       enqueues the work; 0, or an error
// All three may be called during stream capture; none allocates.
#pragma once
#include <cuda_runtime.h>
#include <stddef.h>
#include <stdint.h>

// The rest of a generated library is compiled with -fvisibility=hidden.
#define BOLT_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

enum {
  BOLT_OK = 0,
  BOLT_E_UNSUPPORTED = -1,  // shape, stride, padding or alignment this instance does not serve
  BOLT_E_WORKSPACE = -2,    // workspace too small
  BOLT_E_LAUNCH = -3,       // the launch itself failed; cudaGetLastError has the rest
};

typedef struct bolt_args {
  // Operands. GEMM: a (m,k), b (k,n), source and d (m,n). Conv: a activation NHWC, b weight KRSC, d output NPQK.
  // Attention: a queries, b keys, b1 values, source the mask, d the result.
  void const *a, *b, *bias, *source;
  void* d;
  void* workspace;
  size_t workspace_bytes;
  // GEMM shape and leading dimensions in elements; batch strides in elements, 0 for a shared operand. Conv: ldd is the
  // step from one output pixel to the next, 0 for cout; only families whose `pitched` is set read it.
  int32_t m, n, k, batch;
  int64_t lda, ldb, ldsource, ldd;
  int64_t stride_a, stride_b, stride_source, stride_d;
  // Conv shape. (cn, h, w, c) input, cout filters of r x s, output p x q.
  int32_t cn, h, w, c, cout, r, s, p, q;
  int32_t pad_top, pad_left, pad_bottom, pad_right, stride_h, stride_w, dilation_h, dilation_w, groups;
  // Launch: chosen at run time, see templates/family.py Launch. pdl: 0, an ordinary launch; 1, a programmatic dependent
  // one (sm90) in which weights and biases (b, bias, b1, bias1, b2, bias2) are constants that a kernel may read before
  // the kernel in front of it has ended; 2, the same where they are not constants, so that they too are waited for.
  int32_t raster, swizzle, splits, pdl, variant;
  int32_t sm_count;
  int32_t reserved[6];
  // The second operator of a pair in one kernel, null and 0 otherwise: d = epilogue(intermediate * b1). The first
  // operator has the fields above but d; its n (or cout) is the second's depth. b1 is stored (n1, n), source1 and d are
  // (rows, n1) with leading dimensions ldsource1 and ldd.
  void const *b1, *bias1, *source1;
  int64_t ldb1, ldsource1;
  int32_t n1;
  // Attention, 0 otherwise: d = softmax(scale a b^T + source) b1 for each of `batch` x heads; heads / kv_heads
  // neighbouring heads share keys and values. Strides in elements of the operand (of the mask: of its own type), from
  // one batch entry, head and row to the next; 0 where the mask repeats. Elements of a row are neighbours.
  int32_t heads, kv_heads, q_length, kv_length, head_dim, value_dim;
  float scale;
  int64_t q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, out_batch, out_head, out_row;
  int64_t mask_batch, mask_head, mask_row;
  // The third operator of a chain in one kernel, null and 0 otherwise: d = epilogue(second intermediate * b2), b2 stored
  // (n2, n1). source1 and d are then (rows, n2).
  void const *b2, *bias2;
  int64_t ldb2;
  int32_t n2;
} bolt_args;

#ifdef __cplusplus
}
#endif
