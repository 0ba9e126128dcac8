// Two products in one kernel on Hopper (sm_90a), the intermediate in registers, behind the arguments of bolt/abi.h:
//
//   D (M, N1) = outer( inner( A (M, K) * B0 (N0, K)^T ) * B1 (N1, N0)^T )
//
// The first product may be an NHWC convolution; the second is then a 1x1 convolution.
//
// Data movement. A CTA is persistent: `kGroups` consumer warp groups and their producer threads. One CTA covers all of
// N0 and all of N1 (threadblock residence, paper section 3.1.1), so nothing of the intermediate is ever shared.
//
//   A    memory -> ring of stages: TMA, one producer thread for each ring, two mbarriers for each stage (full, empty).
//        Every row is read once. Of a convolution, a K block is up to kBlockK channels of one filter tap, which im2col
//        TMA gathers: padding, and channels past the last, arrive as zeros. Only the two loads know of it.
//   B0   resident: all K blocks at once when the CTA starts, a barrier for each, so that the first tile starts with the
//        first block. Streamed (kStream), for a B0 too large to stay: a K block beside A's in every stage. In a cluster
//        of two each CTA loads half of it for both; a streamed stage is then free when both CTAs have read it.
//   B1   resident, once a CTA. The biases go to shared memory as fp32, once a CTA.
//   acc0 64 x N0 in a warp group's fp32 registers: starts as the bias where the chain begins with it; wgmma over K with
//        both operands in shared memory. The inner chain and the conversion to 16 bits turn it into the A operand of the
//        second wgmma where it is: the fragment of accumulators and the fragment of a register operand hold the same
//        (row, column) in the same thread in the same order. No shuffle, no way through shared memory.
//   acc1 64 x N1: wgmma with A in registers over N0; the outer chain, stmatrix into a swizzled tile, TMA store, which
//        leaves out rows past M. A source tensor is read straight from memory, pair by pair.
//
// Zero padding is TMA's: N0 is filled up to kN0 * kChunks by rows of B0 and columns of B1 past their tensors, K up to
// whole blocks, M up to whole tiles.
//
// kChunks > 1: N0 is taken in chunks, D = outer( sum over chunks c of inner(A B0[c]^T) B1[:, c]^T ). acc1 stays, A passes
// once for each chunk (from L2 after the first). N0 is then bounded by B1's shared memory, not by registers.
//
// Work split. Resident: a tile is kGroupRows rows and belongs to one warp group, which has its own ring and its own
// producer thread, so that groups drift apart and one's epilogue runs under another's products. (They can't share a ring:
// a group that skips the stages of others can't tell, by their parity, how often those have gone round.) Streamed: a
// tile is kGroups * kGroupRows rows, each group takes its rows of every stage, because all share its K block of B0.
//
// Programmatic dependent launch. Weights and biases are constants (pdl = 2 says they are not) and are loaded before the
// wait for the previous kernel; A, the source and D wait: no store is issued before A has arrived. Dependents start at
// once.
//
// A Config gives
//   Element          type of all operands and of the result: 16 bits
//   Inner, Outer     the epilogues: Chain, kBiasFirst (accumulators start as the bias; then the chain does not add it),
//                    kBias, kFinalRelu (a free ReLU after the chain, see bolt/sm90_convert.cuh)
//   kN0, kChunks     columns of the first product in a chunk, and chunks;  kN1: columns of the second
//   kBlockK          depth of a stage;  kGroups: consumer warp groups;  kSubtiles: 64-row tiles a group holds at once
//   kStream, kCluster, kStoreBuffers, kBlocksPerSm, kConv
//   kBaseRegisters   what a consumer thread needs beside its accumulators
// `variant` of a launch bounds the stages of a ring (0: as many as fit).
#pragma once
#include "bolt/abi.h"
#include "bolt/sm90_b2b_kernel.hpp"
#include "cutlass/cuda_host_adapter.hpp"

namespace bolt::b2b {

constexpr int kTmaBytes = 16;  // TMA moves rows that start at, and are, multiples of 16 bytes

inline bool tma_ok(void const* pointer, int64_t leading) {
  return pointer && reinterpret_cast<uintptr_t>(pointer) % kTmaBytes == 0 && leading * 2 % kTmaBytes == 0;
}

template <class Element>
constexpr CUtensorMapDataType map_type() {
  return cute::is_same_v<Element, cutlass::half_t> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
}

constexpr CUtensorMapSwizzle swizzle_of(int atom) {
  return atom == 64   ? CU_TENSOR_MAP_SWIZZLE_128B
         : atom == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
         : atom == 16 ? CU_TENSOR_MAP_SWIZZLE_32B
                      : CU_TENSOR_MAP_SWIZZLE_NONE;
}

// A row-major (rows, columns) matrix in boxes of `box_rows` x `atom`.
template <class Element>
bool encode_matrix(CUtensorMap& map, void const* pointer, int rows, int columns, int64_t leading, int box_rows,
                   int atom, CUtensorMapSwizzle swizzle) {
  cuuint64_t const extents[] = {cuuint64_t(columns), cuuint64_t(rows)}, strides[] = {cuuint64_t(leading) * 2};
  cuuint32_t const box[] = {cuuint32_t(atom), cuuint32_t(box_rows)}, steps[] = {1, 1};
  return CUTLASS_CUDA_DRIVER_WRAPPER_CALL(cuTensorMapEncodeTiled)(
             &map, map_type<Element>(), 2, const_cast<void*>(pointer), extents, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// Output pixels as rows of K blocks (im2col), and the KRSC filters as (C, R*S, N0).
template <class K>
bool encode_conv(CUtensorMap& pixels, CUtensorMap& filters, bolt_args const& args) {
  constexpr auto kType = map_type<typename K::Element>();
  constexpr auto kSwizzle = swizzle_of(K::kAtomA);
  cuuint64_t const c = args.c, w = args.w, h = args.h, taps = cuuint64_t(args.r) * args.s;
  cuuint64_t const extents[] = {c, w, h, cuuint64_t(args.cn)}, strides[] = {c * 2, c * w * 2, c * w * h * 2};
  int const near[] = {-args.pad_left, -args.pad_top};
  int const far[] = {args.pad_right - (args.s - 1) * args.dilation_w, args.pad_bottom - (args.r - 1) * args.dilation_h};
  cuuint32_t const steps[] = {1, cuuint32_t(args.stride_w), cuuint32_t(args.stride_h), 1};
  if (CUTLASS_CUDA_DRIVER_WRAPPER_CALL(cuTensorMapEncodeIm2col)(
          &pixels, kType, 4, const_cast<void*>(args.a), extents, strides, near, far, K::kBlockK, K::kStageRows, steps,
          CU_TENSOR_MAP_INTERLEAVE_NONE, kSwizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
          CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS) {
    return false;
  }
  cuuint64_t const extents_b[] = {c, taps, cuuint64_t(args.cout)}, strides_b[] = {c * 2, c * taps * 2};
  cuuint32_t const box[] = {K::kBlockK, 1, K::kN0}, steps_b[] = {1, 1, 1};
  return CUTLASS_CUDA_DRIVER_WRAPPER_CALL(cuTensorMapEncodeTiled)(
             &filters, kType, 3, const_cast<void*>(args.b), extents_b, strides_b, box, steps_b,
             CU_TENSOR_MAP_INTERLEAVE_NONE, kSwizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// Rows of A and D, columns of the first product, depth in K blocks.
struct Extents {
  int m, n0, k_blocks;
};

template <class K>
Extents extents_of(bolt_args const& args) {
  if constexpr (K::kConv) {
    return {args.cn * args.p * args.q, args.cout, args.r * args.s * ((args.c + K::kBlockK - 1) / K::kBlockK)};
  } else {
    return {args.m, args.n, (args.k + K::kBlockK - 1) / K::kBlockK};
  }
}

// Limits of a 4-D im2col descriptor (CUDA driver API, cuTensorMapEncodeIm2col): signed bytes for the corners, unsigned
// ones for the taps' offsets, steps of at most 8.
inline bool im2col_ok(int near, int far, int taps, int dilation, int stride, int extent, int out) {
  constexpr int kMaxStride = 8, kMaxOffset = 254;
  int const reach = (taps - 1) * dilation;
  return near >= 0 && near <= 128 && far - reach >= -128 && far - reach <= 127 && reach <= kMaxOffset &&
         stride <= kMaxStride && (extent + near + far - reach - 1) / stride + 1 == out;
}

template <class Config>
int check(bolt_args const& args) {
  using K = Kernel<Config>;
  Extents const e = extents_of<K>(args);
  if (e.m <= 0 || e.k_blocks <= 0 || args.sm_count <= 0 || args.batch > 1) return BOLT_E_UNSUPPORTED;
  if (args.n1 != K::kN1 || e.n0 <= K::kN0 * (K::kChunks - 1) || e.n0 > K::kN0 * K::kChunks) return BOLT_E_UNSUPPORTED;
  if (!K::kStream && e.k_blocks * K::kChunks > K::kMaxResidentBlocks) return BOLT_E_UNSUPPORTED;
  if (K::pick_stages(e.k_blocks, K::kMaxStages) < 2) return BOLT_E_UNSUPPORTED;
  if (!tma_ok(args.b1, args.ldb1) || !tma_ok(args.d, args.ldd)) return BOLT_E_UNSUPPORTED;
  if constexpr (K::kConv) {
    if (!tma_ok(args.a, args.c) || !tma_ok(args.b, args.c) || args.groups > 1) return BOLT_E_UNSUPPORTED;
    if (!im2col_ok(args.pad_top, args.pad_bottom, args.r, args.dilation_h, args.stride_h, args.h, args.p) ||
        !im2col_ok(args.pad_left, args.pad_right, args.s, args.dilation_w, args.stride_w, args.w, args.q)) {
      return BOLT_E_UNSUPPORTED;
    }
  } else if (!tma_ok(args.a, args.lda) || !tma_ok(args.b, args.ldb)) {
    return BOLT_E_UNSUPPORTED;
  }
  if ((Config::Inner::kBias && !args.bias) || (Config::Outer::kBias && !args.bias1)) return BOLT_E_UNSUPPORTED;
  if (Config::Outer::Chain::kSource && !tma_ok(args.source1, args.ldsource1)) return BOLT_E_UNSUPPORTED;
  return BOLT_OK;
}

template <class Config>
int run(bolt_args const& args, cudaStream_t stream) {
  using K = Kernel<Config>;
  using Element = typename K::Element;
  if (int refused = check<Config>(args)) return refused;
  Extents const e = extents_of<K>(args);
  int const tiles = (e.m + K::kStageRows - 1) / K::kStageRows;
  auto whole_clusters = [](int ctas) { return (ctas + K::kCluster - 1) / K::kCluster * K::kCluster; };
  int const slots = args.sm_count * K::kBlocksPerSm / K::kCluster * K::kCluster;
  int const grid = tiles < slots ? whole_clusters(tiles) : slots;
  if (grid <= 0) return BOLT_E_UNSUPPORTED;
  // No more stages than a ring ever fills: what is left lets a programmatic dependent start beside this grid.
  int const ring_tiles = (tiles + grid * K::kRings - 1) / (grid * K::kRings);
  int64_t const filled = int64_t(ring_tiles) * e.k_blocks * K::kChunks;
  int most = args.variant > 0 ? args.variant : K::kMaxStages;
  most = filled < most ? int(filled) : most;
  int const stages = K::pick_stages(e.k_blocks, most < 2 ? 2 : most);

  typename K::Params params{};
  bool encoded = encode_matrix<Element>(params.b1, args.b1, K::kN1, e.n0, args.ldb1, K::kN1, K::kAtomB1,
                                        swizzle_of(K::kAtomB1)) &&
                 encode_matrix<Element>(params.d, args.d, e.m, K::kN1, args.ldd, 64, K::kAtomD,
                                        K::kN1 % 16 == 0 ? swizzle_of(K::kAtomD) : CU_TENSOR_MAP_SWIZZLE_NONE);
  if constexpr (K::kConv) {
    encoded = encoded && encode_conv<K>(params.a, params.b0, args);
  } else {
    encoded = encoded &&
              encode_matrix<Element>(params.a, args.a, e.m, args.k, args.lda, K::kStageRows, K::kAtomA,
                                     swizzle_of(K::kAtomA)) &&
              encode_matrix<Element>(params.b0, args.b, e.n0, args.k, args.ldb, K::kN0 / K::kCluster, K::kAtomA,
                                     swizzle_of(K::kAtomA));
  }
  if (!encoded) return BOLT_E_LAUNCH;
  params.bias0 = static_cast<Element const*>(args.bias);
  params.bias1 = static_cast<Element const*>(args.bias1);
  params.source1 = static_cast<Element const*>(args.source1);
  params.ldsource1 = args.ldsource1;
  params.m = e.m, params.n0 = e.n0, params.k_blocks = e.k_blocks, params.tiles = tiles, params.stages = stages;
  params.weights_constant = args.pdl != 2;
  params.channels = args.c, params.s = args.s, params.q = args.q, params.pq = args.p * args.q;
  params.pad_h = args.pad_top, params.pad_w = args.pad_left;
  params.stride_h = args.stride_h, params.stride_w = args.stride_w;
  params.dilation_h = args.dilation_h, params.dilation_w = args.dilation_w;

  auto* const function = &entry<K>;
  int const shared = K::shared_bytes(e.k_blocks, stages);
  // At every call: a flag in a static would be one object for all libraries of a process.
  if (cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, shared) != cudaSuccess) {
    return BOLT_E_LAUNCH;
  }
  cudaLaunchAttribute attributes[2]{};
  unsigned count = 0;
  if (args.pdl) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (K::kCluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {unsigned(K::kCluster), 1, 1};
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(unsigned(grid));
  config.blockDim = dim3(K::kThreads);
  config.dynamicSmemBytes = size_t(shared);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  return cudaLaunchKernelEx(&config, function, params) == cudaSuccess ? BOLT_OK : BOLT_E_LAUNCH;
}

}  // namespace bolt::b2b
