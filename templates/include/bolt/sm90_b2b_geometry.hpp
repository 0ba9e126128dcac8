// The compile-time geometry of the Hopper pair kernel: tiles, threads, registers, shared memory. The words are explained
// in bolt/sm90_b2b.hpp; templates/sm90_b2b/geometry.py does the same arithmetic.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>
#include <cstdint>
#include "cute/atom/mma_traits_sm90_gmma.hpp"
#include "cute/tensor.hpp"
#include "cutlass/numeric_types.h"

namespace bolt::b2b {
using namespace cute;

// A K-major operand of `width` elements a row lies as columns of swizzle atoms, all rows of one column before the next.
constexpr int atom_width(int width) { return width % 64 == 0 ? 64 : width % 32 == 0 ? 32 : 16; }

template <class Element, int kWidth>
constexpr auto k_major_atom() {
  if constexpr (atom_width(kWidth) == 64) {
    return GMMA::Layout_K_SW128_Atom<Element>{};
  } else if constexpr (atom_width(kWidth) == 32) {
    return GMMA::Layout_K_SW64_Atom<Element>{};
  } else {
    return GMMA::Layout_K_SW32_Atom<Element>{};
  }
}

// The result's tile is no operand of a wgmma, so a width that no atom divides may lie as plain rows.
template <class Element, int kWidth>
constexpr auto result_layout() {
  if constexpr (kWidth % 16 == 0) {
    return tile_to_shape(k_major_atom<Element, kWidth>(), Shape<_64, Int<kWidth>>{});
  } else {
    return Layout<Shape<_64, Int<kWidth>>, Stride<Int<kWidth>, _1>>{};
  }
}

template <class Config_>
struct Geometry {
  using Config = Config_;
  using Element = typename Config::Element;
  static constexpr int kN0 = Config::kN0, kChunks = Config::kChunks, kN1 = Config::kN1, kBlockK = Config::kBlockK;
  static constexpr int kGroups = Config::kGroups, kSubtiles = Config::kSubtiles, kCluster = Config::kCluster;
  static constexpr int kStoreBuffers = Config::kStoreBuffers, kBlocksPerSm = Config::kBlocksPerSm;
  static constexpr bool kStream = Config::kStream, kConv = Config::kConv;
  static_assert(sizeof(Element) == 2, "the first accumulators become the second operand as 16-bit pairs");
  static_assert(kN0 % 16 == 0 && kN0 <= 256, "N0 of a chunk is the K of the second wgmma: steps of 16, at most 256");
  static_assert(kN1 % 8 == 0 && kN1 <= 256, "N1 is the N of one wgmma: steps of 8, at most 256");
  static_assert(kBlockK % 16 == 0, "a K block is whole wgmma steps of 16");
  static_assert(kSubtiles == 1 || kSubtiles == 2, "a warp group holds one or two sets of accumulators");
  static_assert(kStoreBuffers == 1 || kStoreBuffers == 2, "a result is stored from one buffer or from two in turn");
  static_assert(kChunks == 1 || (kSubtiles == 1 && !kConv), "chunks walk A again: one set of accumulators, no im2col");
  static_assert(!kConv || (kCluster == 1 && kBlockK <= 64), "im2col loads one swizzle atom of channels, no multicast");
  static_assert(!Config::Inner::Chain::kSource, "the intermediate never lies in memory, nor does a tensor to join it");
  static_assert(kCluster == 1 || (kCluster == 2 && kBlocksPerSm == 1), "B0 is shared by two CTAs on two SMs");

  static constexpr int kGroupRows = 64 * kSubtiles;                              // of a warp group's tile
  static constexpr int kStageRows = kStream ? kGroupRows * kGroups : kGroupRows;  // of A in a stage
  static constexpr int kRings = kStream ? 1 : kGroups;
  static_assert(kStageRows <= 256, "a stage of A is one TMA box of at most 256 rows");

  // Registers. The file is split over four quadrants of the SM, so a single warp more takes a share from every warp of
  // its quadrant: 4 G + 1 warps leave what 4 (G + 1) would. Where the accumulators do not fit under that, the producer
  // becomes a whole warp group and setmaxnreg moves its registers to the consumers.
  static constexpr bool kEarlyBias1 = kSubtiles == 1 && kN0 + kN1 <= (kGroups <= 2 ? 256 : 128);
  static constexpr int larger(int a, int b) { return a > b ? a : b; }
  // At its worst point a thread holds both sets; or, of two subtiles, the first accumulators of both, those of the second
  // with what the first subtile has become, or both results with both operands.
  static constexpr int kLiveAccumulators =
      kEarlyBias1 || kChunks > 1 ? (kN0 + kN1) / 2
      : kSubtiles > 1            ? larger(larger(kN0, kN0 * 3 / 4 + kN1 / 2), kN0 / 2 + kN1)
                                 : larger(kN0 / 2, kN0 / 4 + kN1 / 2);
  static constexpr int kMainloopRegisters = 50;  // addresses, descriptors and parities beside the first accumulators
  static constexpr int kPlainRegisters = 44;     // kBaseRegisters of chains without an exponential or a source
  // Such a chain's operand grows beside the accumulators it is made of.
  static constexpr int kChainRegisters = Config::kBaseRegisters > kPlainRegisters ? kN0 / 4 : 0;
  static constexpr int kRegistersNeeded =
      larger(kMainloopRegisters + kSubtiles * kN0 / 2,
             Config::kBaseRegisters + larger(kLiveAccumulators, kSubtiles * kN0 / 2 + kChainRegisters));
  static constexpr int kRegistersShared = 512 / (kGroups + 1) / kBlocksPerSm / 8 * 8;
  static constexpr bool kMoveRegisters = kRegistersNeeded > kRegistersShared && kBlocksPerSm == 1;
  static constexpr int kProducerRegisters = kGroups <= 2 ? 24 : 32;
  static constexpr int kConsumerRegisters = kGroups <= 2 ? 240 : kGroups == 3 ? 160 : 112;
  static constexpr int kThreads = kGroups * 128 + (kMoveRegisters ? 128 : 32 * kRings);

  // ---- shared memory: control, B1, result tiles, B0, ring(s) of A ---------------------------------------------------
  static constexpr int kMaxStages = 32, kMaxResidentBlocks = 64;
  struct Control {
    uint64_t full[kMaxStages], empty[kMaxStages], b0_full[kMaxResidentBlocks], b1_full;
    alignas(16) float bias0[kChunks * kN0];
    alignas(16) float bias1[kN1];
  };
  static constexpr int round_up(int bytes) { return (bytes + 1023) / 1024 * 1024; }
  static constexpr int kBytesA = kStageRows * kBlockK * 2, kBytesB0 = kN0 * kBlockK * 2;
  static constexpr int kAtB1 = round_up(sizeof(Control));
  static constexpr int kAtD = kAtB1 + round_up(kN1 * kN0 * kChunks * 2);
  static constexpr int kAtB0 = kAtD + round_up(kStoreBuffers * kGroups * 64 * kN1 * 2);

  CUTE_HOST_DEVICE static int bytes_b0(int k_blocks, int stages) {
    return round_up(kBytesB0 * (kStream ? stages : k_blocks * kChunks));
  }
  static int shared_bytes(int k_blocks, int stages) {
    return kAtB0 + bytes_b0(k_blocks, stages) + kBytesA * stages * kRings;
  }

  // As many stages as fit this GPU's shared memory, at most `most`.
  static int pick_stages(int k_blocks, int most) {
    int stages = most < kMaxStages / kRings ? most : kMaxStages / kRings;
    constexpr int kLimit = 228 * 1024 / kBlocksPerSm - 1024;  // CUDA programming guide, compute capability 9.0
    while (stages > 0 && shared_bytes(k_blocks, stages) > kLimit) --stages;
    return stages;
  }

  static constexpr int kAtomA = atom_width(kBlockK), kAtomB1 = atom_width(kN0);
  static constexpr int kAtomD = kN1 % 16 == 0 ? atom_width(kN1) : kN1;
  using SmemA = decltype(tile_to_shape(k_major_atom<Element, kBlockK>(),
                                       Shape<Int<kStageRows>, Int<kBlockK>, Int<kMaxStages>>{}));
  using SmemB0 = decltype(tile_to_shape(k_major_atom<Element, kBlockK>(),
                                        Shape<Int<kN0>, Int<kBlockK>, Int<kMaxResidentBlocks>>{}));
  // One chunk more than there are, for addressing only: some swizzled layouts can't be sliced by a static mode of 1.
  using SmemB1 =
      decltype(tile_to_shape(k_major_atom<Element, kN0>(), Shape<Int<kN1>, Int<kN0>, Int<kChunks + 1>>{}));
  using SmemD = decltype(tile_to_shape(result_layout<Element, kN1>(), Shape<_64, Int<kN1>, Int<kStoreBuffers>>{}));

  // What the boxes of bolt/sm90_b2b.hpp rely on: the second column of atoms lies behind all rows of the first, and
  // stages, K blocks, chunks and buffers lie one behind the other. (Swizzles only permute within eight rows of an atom.)
  template <class Smem, int kAtom, int kColumns>
  static constexpr int second_atom() {
    return kColumns == kAtom ? kAtom * int(size<0>(Smem{}))
                             : int(get_nonswizzle_portion(Smem{})(_0{}, Int<kAtom % kColumns>{}, _0{}));
  }
  template <class Smem>
  static constexpr int second_tile() {
    return int(get_nonswizzle_portion(Smem{})(_0{}, _0{}, _1{}));
  }
  static_assert(second_atom<SmemA, kAtomA, kBlockK>() == kStageRows * kAtomA, "A lies as columns of atoms");
  static_assert(second_atom<SmemB0, kAtomA, kBlockK>() == kN0 * kAtomA, "B0 lies as columns of atoms");
  static_assert(second_atom<SmemB1, kAtomB1, kN0>() == kN1 * kAtomB1, "B1 lies as columns of atoms");
  static_assert(second_atom<SmemD, kAtomD, kN1>() == 64 * kAtomD, "D lies as columns of atoms");
  static_assert(second_tile<SmemA>() == kStageRows * kBlockK, "stages of A lie one behind the other");
  static_assert(second_tile<SmemB0>() == kN0 * kBlockK, "K blocks of B0 lie one behind the other");
  static_assert(second_tile<SmemB1>() == kN1 * kN0, "chunks of B1 lie one behind the other");

  using Mma0 = decltype(make_tiled_mma(GMMA::ss_op_selector<Element, Element, float, Shape<_64, Int<kN0>, _16>>()));
  using Mma1 = decltype(make_tiled_mma(GMMA::rs_op_selector<Element, Element, float, Shape<_64, Int<kN1>, _16>>()));

  struct Params {
    CUtensorMap a, b0, b1, d;
    Element const *bias0, *bias1, *source1;
    int64_t ldsource1;
    int m, n0, k_blocks, tiles, stages;  // stages: of each ring
    bool weights_constant;               // B0, B1 and the biases were not written by the previous kernel
    int channels, s, q, pq;              // convolution
    int pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w;
  };
};

}  // namespace bolt::b2b
