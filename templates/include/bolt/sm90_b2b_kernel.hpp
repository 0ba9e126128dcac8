// The device side of the Hopper pair kernel; what it computes and how data moves is told in bolt/sm90_b2b.hpp.
#pragma once
#ifndef CUTLASS_ENABLE_GDC_FOR_SM90
#error "compile with -DCUTLASS_ENABLE_GDC_FOR_SM90=1: without it a dependent launch would not wait for its input"
#endif
#include "bolt/activations.h"
#include "bolt/sm90_b2b_geometry.hpp"
#include "bolt/sm90_convert.cuh"
#include "cute/arch/cluster_sm90.hpp"
#include "cute/arch/copy_sm90_tma.hpp"
#include "cutlass/arch/barrier.h"
#include "cutlass/arch/grid_dependency_control.h"
#include "cutlass/arch/reg_reconfig.h"

namespace bolt::b2b {

template <class Config>
struct Kernel : Geometry<Config> {
  using G = Geometry<Config>;
  using Element = typename G::Element;
  using Params = typename G::Params;
  using Control = typename G::Control;
  using G::kN0, G::kN1, G::kChunks, G::kBlockK, G::kGroups, G::kSubtiles, G::kCluster, G::kStream, G::kConv;
  using G::kStoreBuffers, G::kRings, G::kStageRows, G::kGroupRows, G::kBytesA, G::kBytesB0;
  using Barrier = cutlass::arch::ClusterBarrier;
  using LoadBarrier = cutlass::arch::ClusterTransactionBarrier;
  using Hint = TMA::CacheHintSm90;

  // Where a tensor map's boxes go: one box for each atom column, each with all rows.
  template <int kAtom, int kColumns, int kRows>
  CUTE_DEVICE static void load(CUtensorMap const& map, uint64_t& barrier, Hint hint, Element* to, int column, int row) {
    CUTE_UNROLL
    for (int at = 0; at < kColumns; at += kAtom) {
      SM90_TMA_LOAD_2D::copy(&map, &barrier, uint64_t(hint), to + at * kRows, column + at, row);
    }
  }

  // Two CTAs that share B0 per stage run the same number of tiles; the surplus one lies outside of every tensor.
  CUTE_DEVICE static bool in_range(Params const& p, int tile) {
    return (kStream && kCluster > 1 ? tile / kCluster * kCluster : tile) < p.tiles;
  }

  // ---- one producer thread for each ring: A (and streamed B0) of all its tiles --------------------------------------
  CUTE_DEVICE static void produce(Params const& p, Control& control, int ring, Element* smem_a, Element* smem_b0) {
    cutlass::arch::wait_on_dependent_grids();  // A may be the previous kernel's output
    int const first_slot = ring * p.stages;
    int stage = 0;
    uint32_t parity = 1;
    for (int tile = blockIdx.x + ring * gridDim.x; in_range(p, tile); tile += kRings * gridDim.x) {
      int const row = tile * kStageRows;
      int channel = 0, tap_s = 0, tap_r = 0, x = 0, y = 0, image = 0;
      if constexpr (kConv) {
        int const pixel = row % p.pq;
        image = row / p.pq;
        y = pixel / p.q * p.stride_h - p.pad_h;
        x = pixel % p.q * p.stride_w - p.pad_w;
      }
      for (int block = 0; block < p.k_blocks * kChunks; ++block) {
        int const slot = first_slot + stage;
        uint64_t& full = control.full[slot];
        Element* const to = smem_a + slot * kStageRows * kBlockK;
        Barrier::wait(&control.empty[slot], parity);
        LoadBarrier::arrive_and_expect_tx(&full, kBytesA + (kStream ? kBytesB0 : 0));
        if constexpr (kConv) {
          SM90_TMA_LOAD_IM2COL_4D::copy(&p.a, &full, to, channel, x, y, image, uint16_t(tap_s * p.dilation_w),
                                        uint16_t(tap_r * p.dilation_h));
          if ((channel += kBlockK) >= p.channels) {
            channel = 0;
            if (++tap_s == p.s) {
              tap_s = 0;
              ++tap_r;
            }
          }
        } else {  // chunks after the first find A in L2
          load<G::kAtomA, kBlockK, kStageRows>(p.a, full, kChunks == 1 ? Hint::EVICT_FIRST : Hint::EVICT_NORMAL, to,
                                            (kChunks == 1 ? block : block % p.k_blocks) * kBlockK, row);
        }
        if constexpr (kStream) load_b0(p, full, smem_b0, block, stage);
        if (++stage == p.stages) {
          stage = 0;
          parity ^= 1;
        }
      }
    }
  }

  // K block `block`, counted through all chunks. In a cluster each CTA loads its half of the rows for both.
  CUTE_DEVICE static void load_b0(Params const& p, uint64_t& barrier, Element* smem_b0, int block, int slot) {
    Element* const to = smem_b0 + slot * kN0 * kBlockK;
    int const row = kChunks == 1 ? 0 : block / p.k_blocks * kN0;
    int const k = (kChunks == 1 ? block : block % p.k_blocks) * kBlockK;
    if constexpr (kConv) {  // the filters as (channels, taps, N0)
      int const per_tap = (p.channels + kBlockK - 1) / kBlockK;
      SM90_TMA_LOAD_3D::copy(&p.b0, &barrier, uint64_t(Hint::EVICT_LAST), to, block % per_tap * kBlockK,
                             block / per_tap, 0);
    } else if constexpr (kCluster == 1) {
      load<G::kAtomA, kBlockK, kN0>(p.b0, barrier, Hint::EVICT_LAST, to, k, row);
    } else {
      constexpr int kShare = kN0 / kCluster;
      int const rank = int(block_rank_in_cluster());
      CUTE_UNROLL
      for (int at = 0; at < kBlockK; at += G::kAtomA) {
        SM90_TMA_LOAD_MULTICAST_2D::copy(&p.b0, &barrier, uint16_t((1 << kCluster) - 1), uint64_t(Hint::EVICT_LAST),
                                         to + at * kN0 + rank * kShare * G::kAtomA, k + at, row + rank * kShare);
      }
    }
  }

  CUTE_DEVICE static void load_weights(Params const& p, Control& control, Element* smem_b0, Element* smem_b1) {
    if constexpr (!kStream) {
      for (int block = 0; block < p.k_blocks * kChunks; ++block) {
        LoadBarrier::arrive_and_expect_tx(&control.b0_full[block], kBytesB0);  // from every CTA of the cluster together
        load_b0(p, control.b0_full[block], smem_b0, block, block);
      }
    }
    LoadBarrier::arrive_and_expect_tx(&control.b1_full, kN1 * kN0 * kChunks * 2);
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      load<G::kAtomB1, kN0, kN1>(p.b1, control.b1_full, Hint::EVICT_LAST, smem_b1 + chunk * kN1 * kN0, chunk * kN0, 0);
    }
  }

  // ---- consumers ----------------------------------------------------------------------------------------------------
  CUTE_DEVICE static void release(Control& control, int slot, int thread) {
    if constexpr (kStream && kCluster > 1) {
      if (thread < kCluster) Barrier::arrive(&control.empty[slot], thread, true);  // the peer loads half of our B0
    } else {
      if (thread == 0) Barrier::arrive(&control.empty[slot]);
    }
  }

  // Accumulator fragments hold, for eight columns at a time, the pairs (row, c..c+1) and (row + 8, c..c+1) with
  // row = lane / 4 of the warp's 16 and c = 2 (lane % 4).
  template <bool kBias, class Accumulators>
  CUTE_DEVICE static void start(Accumulators&& accumulators, float const* bias) {
    if constexpr (kBias) {
      float2 const* const at = reinterpret_cast<float2 const*>(bias) + threadIdx.x % 4;
      CUTE_UNROLL
      for (int j = 0; j < size(accumulators) / 4; ++j) {
        float2 const b = at[4 * j];
        accumulators(4 * j) = b.x, accumulators(4 * j + 1) = b.y;
        accumulators(4 * j + 2) = b.x, accumulators(4 * j + 3) = b.y;
      }
    } else {
      clear(accumulators);
    }
  }

  // The epilogue of one product and its conversion to packed pairs. `source`: the pair at (this thread's first row,
  // first column), rows `ld` elements apart; rows from `rows` on lie outside.
  template <class Epilogue, class Accumulators, class Packed>
  CUTE_DEVICE static void finish(Accumulators const& accumulators, float const* bias, Packed& packed,
                                 Element const* source = nullptr, int64_t ld = 0, int rows = 0) {
    using Chain = typename Epilogue::Chain;
    Tensor out = recast<uint32_t>(packed);
    CUTE_UNROLL
    for (int i = 0; i < size(accumulators) / 2; ++i) {
      int const column = i / 2 * 8, row = i % 2 * 8;
      float2 b = make_float2(0.f, 0.f), s = make_float2(0.f, 0.f);
      if constexpr (Chain::kBias) b = reinterpret_cast<float2 const*>(bias + column)[threadIdx.x % 4];
      if constexpr (Chain::kSource) {
        if (row < rows) s = unpack_pair<Element>(*reinterpret_cast<uint32_t const*>(source + row * ld + column));
      }
      out(i) = pack_pair<Element, Epilogue::kFinalRelu>(Chain::apply(accumulators(2 * i), b.x, s.x),
                                                        Chain::apply(accumulators(2 * i + 1), b.y, s.y));
    }
  }

  // All rows of a store buffer to the result's rows from `row` on; TMA leaves out what lies beyond M.
  CUTE_DEVICE static void store(Params const& p, Element const* from, int row) {
    CUTE_UNROLL
    for (int at = 0; at < kN1; at += G::kAtomD) SM90_TMA_STORE_2D::copy(&p.d, from + at * 64, at, row);
    tma_store_arrive();
  }

  CUTE_DEVICE static void consume(Params const& p, Control& control, int group, Element* smem_a, Element* smem_b0,
                                  Element* smem_b1, Element* smem_d) {
    using Inner = typename Config::Inner;
    using Outer = typename Config::Outer;
    int const thread = threadIdx.x % 128;
    typename G::Mma0 mma0;
    typename G::Mma1 mma1;
    auto thread0 = mma0.get_slice(thread);
    auto thread1 = mma1.get_slice(thread);
    // This group's rows of every stage.
    Tensor sA = local_tile(make_tensor(make_smem_ptr(smem_a), typename G::SmemA{}), Shape<Int<kGroupRows>, Int<kBlockK>>{},
                           make_coord(kStream ? group : 0, _0{}, _));
    Tensor sB0 = make_tensor(make_smem_ptr(smem_b0), typename G::SmemB0{});
    Tensor sB1 = make_tensor(make_smem_ptr(smem_b1), typename G::SmemB1{});
    Tensor tA = thread0.make_fragment_A(thread0.partition_A(sA));     // (MMA, subtile, BlockK / 16, stage)
    Tensor tB0 = thread0.make_fragment_B(thread0.partition_B(sB0));   // (MMA, 1, BlockK / 16, K block or stage)
    Tensor tB1 = thread1.make_fragment_B(thread1.partition_B(sB1));   // (MMA, 1, N0 / 16, chunk)
    Element* const staged = smem_d + group * kStoreBuffers * 64 * kN1;
    Tensor sD = make_tensor(make_smem_ptr(staged), typename G::SmemD{});          // (64, N1, buffer)
    using StoreMatrix = cute::conditional_t<kN1 % 16 == 0, SM90_U32x4_STSM_N, SM90_U32x2_STSM_N>;
    auto to_smem = make_tiled_copy_C(Copy_Atom<StoreMatrix, Element>{}, mma1);
    auto thread_to_smem = to_smem.get_slice(thread);

    using Accumulators1 = decltype(partition_fragment_C(mma1, Shape<_64, Int<kN1>>{}));
    using Operand1 = decltype(make_tensor<Element>(partition_shape_A(mma1, Shape<_64, Int<kN0>>{})));
    static_assert(size(Accumulators1{}) == kN1 / 2 && size(Operand1{}) == kN0 / 2,
                  "the first accumulators are the second operand element for element");
    if constexpr (Outer::Chain::kSource) cutlass::arch::wait_on_dependent_grids();

    int const first_slot = kStream ? 0 : group * p.stages;
    int stage = 0, buffer = 0;
    uint32_t parity = 0;
    bool first_tile = true;
    int const step = kRings * int(gridDim.x);
    for (int tile = blockIdx.x + (kStream ? 0 : group * int(gridDim.x)); in_range(p, tile); tile += step) {
      Accumulators1 acc1[kSubtiles];
      Operand1 operand1[kSubtiles];
      CUTE_NO_UNROLL
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        Tensor acc0 = partition_fragment_C(mma0, Shape<Int<kGroupRows>, Int<kN0>>{});  // (MMA, subtile, N)
        float const* const bias0 = control.bias0 + chunk * kN0;
        CUTE_UNROLL
        for (int t = 0; t < kSubtiles; ++t) start<Inner::kBiasFirst>(acc0(_, t, _), bias0);
        int previous = 0;
        for (int block = 0; block < p.k_blocks; ++block) {
          int const slot = first_slot + stage;
          Barrier::wait(&control.full[slot], parity);
          if constexpr (!kStream) {
            if (first_tile) Barrier::wait(&control.b0_full[chunk * p.k_blocks + block], 0);
          }
          int const b0_slot = kStream ? stage : chunk * p.k_blocks + block;
          warpgroup_fence_operand(acc0);
          warpgroup_arrive();
          CUTE_UNROLL
          for (int k = 0; k < kBlockK / 16; ++k) gemm(mma0, tA(_, _, k, slot), tB0(_, _, k, b0_slot), acc0);
          warpgroup_commit_batch();
          warpgroup_fence_operand(acc0);
          if (block > 0) {
            warpgroup_wait<1>();
            release(control, previous, thread);
          }
          previous = slot;
          if (++stage == p.stages) {
            stage = 0;
            parity ^= 1;
          }
        }
        if constexpr (G::kEarlyBias1) {  // under the running wgmma
          if (chunk == 0) start<Outer::kBiasFirst>(acc1[0], control.bias1);
        }
        warpgroup_wait<0>();
        warpgroup_fence_operand(acc0);
        release(control, previous, thread);
        if (first_tile) Barrier::wait(&control.b1_full, 0);
        if (chunk == kChunks - 1) first_tile = false;

        CUTE_UNROLL
        for (int t = 0; t < kSubtiles; ++t) {
          finish<Inner>(acc0(_, t, _), bias0, operand1[t]);
          if constexpr (!G::kEarlyBias1) {
            if (chunk == 0) start<Outer::kBiasFirst>(acc1[t], control.bias1);
          }
          warpgroup_fence_operand(operand1[t]);
          warpgroup_fence_operand(acc1[t]);
          warpgroup_arrive();
          CUTE_UNROLL
          for (int k = 0; k < kN0 / 16; ++k) gemm(mma1, operand1[t](_, _, k), tB1(_, _, k, chunk), acc1[t]);
          warpgroup_commit_batch();
        }
        if constexpr (kChunks > 1) {
          warpgroup_wait<0>();
          warpgroup_fence_operand(acc1[0]);
          warpgroup_fence_operand(operand1[0]);
        }
      }

      int const tile_row = (kStream ? tile * kGroups + group : tile) * kGroupRows;
      CUTE_UNROLL
      for (int t = 0; t < kSubtiles; ++t) {
        int const row = tile_row + 64 * t;
        if (thread == 0) tma_store_wait<kStoreBuffers - 1>();  // the store before has read this buffer
        cutlass::arch::NamedBarrier::sync(128, group);
        if (t < kSubtiles - 1) {
          warpgroup_wait<1>();
        } else {
          warpgroup_wait<0>();
        }
        warpgroup_fence_operand(acc1[t]);
        warpgroup_fence_operand(operand1[t]);

        Tensor result = make_tensor<Element>(acc1[t].shape());
        if constexpr (Outer::Chain::kSource) {
          int const own_row = row + thread / 32 * 16 + thread % 32 / 4;
          finish<Outer>(acc1[t], control.bias1, result, p.source1 + own_row * p.ldsource1 + thread % 4 * 2, p.ldsource1,
                        p.m - own_row);
        } else {
          finish<Outer>(acc1[t], control.bias1, result);
        }
        copy(to_smem, thread_to_smem.retile_S(result), thread_to_smem.partition_D(sD(_, _, buffer)));
        tma_store_fence();
        cutlass::arch::NamedBarrier::sync(128, group);
        if (thread == 0) store(p, staged + buffer * 64 * kN1, row);
        if constexpr (kStoreBuffers == 2) buffer ^= 1;
      }
    }
    if (thread == 0) tma_store_wait<0>();
    if constexpr (kCluster > 1 && !kStream) {  // no exit while the peer may still write into this CTA's shared memory
      if (first_tile && group == 0) {
        for (int block = 0; block < p.k_blocks * kChunks; ++block) Barrier::wait(&control.b0_full[block], 0);
      }
    }
  }

  CUTE_DEVICE static void stage_biases(Params const& p, Control& control) {
    using Inner = typename Config::Inner;
    using Outer = typename Config::Outer;
    if constexpr (Inner::kBias) {  // columns that only fill up N0 have none
      for (int i = threadIdx.x; i < kChunks * kN0; i += kGroups * 128) {
        control.bias0[i] = i < p.n0 ? float(p.bias0[i]) : 0.f;
      }
    }
    if constexpr (Outer::kBias) {
      for (int i = threadIdx.x; i < kN1; i += kGroups * 128) control.bias1[i] = float(p.bias1[i]);
    }
  }

  CUTE_DEVICE static void run(Params const& p, char* shared) {
    Control& control = *reinterpret_cast<Control*>(shared);
    Element* const b1 = reinterpret_cast<Element*>(shared + G::kAtB1);
    Element* const d = reinterpret_cast<Element*>(shared + G::kAtD);
    Element* const b0 = reinterpret_cast<Element*>(shared + G::kAtB0);
    Element* const a = reinterpret_cast<Element*>(shared + G::kAtB0 + G::bytes_b0(p.k_blocks, p.stages));
    int const group = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
    bool const produces = group >= kGroups;
    if (threadIdx.x == kGroups * 128) {
      prefetch_tma_descriptor(reinterpret_cast<TmaDescriptor const*>(&p.a));
      prefetch_tma_descriptor(reinterpret_cast<TmaDescriptor const*>(&p.b0));
      for (int i = 0; i < p.stages * kRings; ++i) {
        Barrier::init(&control.full[i], 1);
        Barrier::init(&control.empty[i], kStream ? kGroups * kCluster : 1);
      }
      if constexpr (!kStream) {
        for (int i = 0; i < p.k_blocks * kChunks; ++i) Barrier::init(&control.b0_full[i], 1);
      }
      Barrier::init(&control.b1_full, 1);
      cutlass::arch::fence_barrier_init();
    }
    if constexpr (kCluster > 1) {  // the peer's barriers too
      cluster_arrive_relaxed();
      cluster_wait();
    } else {
      __syncthreads();
    }
    cutlass::arch::launch_dependent_grids();
    if (produces) {
      if constexpr (G::kMoveRegisters) cutlass::arch::warpgroup_reg_dealloc<G::kProducerRegisters>();
      int const ring = __shfl_sync(0xffffffff, threadIdx.x / 32, 0) - kGroups * 4;
      if (ring < kRings && elect_one_sync()) produce(p, control, ring, a, b0);
    } else {
      if constexpr (G::kMoveRegisters) cutlass::arch::warpgroup_reg_alloc<G::kConsumerRegisters>();
      if (!p.weights_constant) cutlass::arch::wait_on_dependent_grids();
      if (threadIdx.x == 0) load_weights(p, control, b0, b1);
      stage_biases(p, control);
      cutlass::arch::NamedBarrier::sync(kGroups * 128, kGroups);
      consume(p, control, group, a, b0, b1, d);
    }
    if constexpr (kStream && kCluster > 1) {  // arrivals at the peer's barriers may still be on their way
      __syncwarp();
      cluster_arrive_relaxed();
      cluster_wait();
    }
  }
};

template <class Kernel>
static __global__ void __launch_bounds__(Kernel::kThreads, Kernel::kBlocksPerSm)
    entry(__grid_constant__ typename Kernel::Params const params) {
  extern __shared__ __align__(1024) char shared[];
  Kernel::run(params, shared);
}

}  // namespace bolt::b2b
