// Few output tiles, long K: a tile's products are cut over the CTAs of a cluster, which add up through distributed
// shared memory and carry the whole epilogue (sm_90a; fp16, bf16 or tf32 operands, fp32 accumulation).
//
// Data movement. Every CTA of a cluster computes the same output tile over its own share of the K tiles: one thread
// brings A and B by TMA (im2col TMA for the pixels of a convolution) through a ring of stages, one warp group runs
// wgmma on them, accumulators stay in registers. Then the ring's shared memory is reused: CTA r of S owns the rows
// r*ceil(rows/S).. of the tile, and every CTA writes its fp32 partial sums of them into slot "its own rank" of the
// owner's memory. After a cluster barrier the owner adds the S slots in order (so the result does not depend on
// timing), applies the chain and stores whole vectors. Nothing goes through global memory but the operands and D.
//
//   warps 0-3  one consumer warp group: wgmma, exchange, epilogue
//   warp 4     one thread of it is the producer
//
// S = 1 is an ordinary kernel with this epilogue. S is chosen at the launch: clusters have no compile-time shape.
// kBlocksPerSm = 2 leaves room for a second CTA on the SM, whose products hide this one's prologue and epilogue.
//
// Swapped operands. kSwap computes the tile of D^T = B^T A^T: wgmma takes at least 64 rows, so a small M becomes the
// columns, of which it takes as few as 8. The exchange writes the tile back the right way round.
//
// Programmatic dependent launch. Weights are constants (unless pdl = 2): they fill the ring before the wait for the
// previous kernel, then come the activations. Dependents are released at once.
//
// Config and Operands: see bolt/sm90_split.hpp and bolt/sm90_split_operands.hpp.
#pragma once
#ifndef CUTLASS_ENABLE_GDC_FOR_SM90
#error "compile with -DCUTLASS_ENABLE_GDC_FOR_SM90=1: without it a dependent launch would not wait for its input"
#endif
#include "bolt/activations.h"
#include "cute/arch/cluster_sm90.hpp"
#include "cute/tensor.hpp"
#include "cutlass/arch/barrier.h"
#include "cutlass/arch/grid_dependency_control.h"
#include "cutlass/array.h"
#include "cutlass/device_kernel.h"
#include "cutlass/numeric_conversion.h"

namespace bolt::split {

using namespace cute;

constexpr int kMaxSplits = 8;  // the largest cluster that every GPU of the architecture runs

// The store side: D and the source are `rows` x `columns`, row-major, one behind the other for a batch.
template <class Element, class ElementD>
struct Output {
  ElementD* d;
  ElementD const* source;
  Element const* bias;
  int64_t ldd, ldsource, stride_d, stride_source;
  int rows, columns;
};

CUTLASS_DEVICE uint32_t remote_address(uint32_t address, int rank) {
  uint32_t result;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(result) : "r"(address), "r"(rank));
  return result;
}

template <class Config, class Operands>
struct Kernel {
  using Element = typename Config::Element;
  using ElementD = typename Config::ElementD;
  using Chain = typename Config::Chain;
  using Mainloop = typename Operands::Mainloop;
  using TiledMma = typename Mainloop::TiledMma;
  using TileShape = typename Operands::TileShape;

  static constexpr bool kSwap = Config::kSwap;
  static constexpr int kStages = Config::kStages, kVec = Config::kVec;
  static constexpr int kRows = kSwap ? Config::kTileN : Config::kTileM;  // of the tile of D
  static constexpr int kColumns = kSwap ? Config::kTileM : Config::kTileN;
  static constexpr int kConsumerThreads = cutlass::NumThreadsPerWarpGroup;
  static constexpr int kProducerWarp = kConsumerThreads / cutlass::NumThreadsPerWarp;
  static constexpr int kThreads = kConsumerThreads + cutlass::NumThreadsPerWarp;
  static constexpr int MaxThreadsPerBlock = kThreads;  // this and the next are read by cutlass::device_kernel
  static constexpr int MinBlocksPerMultiprocessor = Config::kBlocksPerSm;
  // Banks: a warp writes 8 rows of 32 bytes at once, or, swapped, 4 pairs of rows; these pitches spread them evenly.
  static constexpr int kPitch = kColumns + (kSwap ? 4 : 8);
  static constexpr int kExchangeFloats = (kRows + kMaxSplits - 1) * kPitch;
  static_assert(CUTE_STATIC_V(size(TiledMma{})) == kConsumerThreads, "one warp group computes a tile");
  static_assert(kColumns % kVec == 0, "a row of the tile holds whole vectors");

  struct SharedStorage {
    union Memory {
      typename Mainloop::TensorStorage stages;
      alignas(128) float exchange[kExchangeFloats];
    } memory;
    cutlass::arch::ClusterTransactionBarrier full[kStages];
    cutlass::arch::ClusterBarrier empty[kStages];
  };
  static constexpr int kSharedBytes = sizeof(SharedStorage);
  static constexpr int kSmBytes = 228 << 10, kReservedBytes = 1 << 10;  // of an SM; what the system takes of each CTA
  static_assert((kSharedBytes + kReservedBytes) * Config::kBlocksPerSm <= kSmBytes,
                "the stages do not leave room for as many CTAs as the rules count");

  struct Params {
    typename Operands::Params operands;
    Output<Element, ElementD> out;
    int tiles_m, tiles_n, splits;
    bool along_m;  // neighbouring clusters take tiles along M
    bool weights_constant;
  };

  static cudaError_t launch(Params const& params, int batch, cudaStream_t stream, bool dependent) {
    void const* kernel = reinterpret_cast<void const*>(&cutlass::device_kernel<Kernel>);
    cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
    if (status != cudaSuccess) return status;
    cudaLaunchAttribute attributes[2]{};
    unsigned count = 0;
    if (params.splits > 1) {
      attributes[count].id = cudaLaunchAttributeClusterDimension;
      attributes[count++].val.clusterDim = {unsigned(params.splits), 1, 1};
    }
    if (dependent) {
      attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attributes[count++].val.programmaticStreamSerializationAllowed = 1;
    }
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(unsigned(params.tiles_m) * params.tiles_n * params.splits, 1, unsigned(batch));
    config.blockDim = kThreads;
    config.dynamicSmemBytes = kSharedBytes;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = count;
    void* arguments[] = {const_cast<Params*>(&params)};
    return cudaLaunchKernelExC(&config, kernel, arguments);
  }

  CUTLASS_DEVICE void operator()(Params const& params, char* smem) {
    SharedStorage& storage = *reinterpret_cast<SharedStorage*>(smem);
    int const warp = cutlass::canonical_warp_idx_sync();
    bool const produces = warp == kProducerWarp;
    int const rank = int(blockIdx.x) % params.splits, tile = int(blockIdx.x) / params.splits;
    int const m = params.along_m ? tile % params.tiles_m : tile / params.tiles_n;
    int const n = params.along_m ? tile / params.tiles_m : tile % params.tiles_n;

    if (produces && elect_one_sync()) {
      Mainloop::prefetch_tma_descriptors(params.operands.mainloop);
      for (int i = 0; i < kStages; ++i) {
        storage.full[i].init(1);
        storage.empty[i].init(kProducerWarp);  // one arrival of every consumer warp
      }
      cutlass::arch::fence_barrier_init();
    }
    __syncthreads();
    cutlass::arch::launch_dependent_grids();

    auto const inputs = Operands::inputs(params.operands, int(blockIdx.z));
    int const k_tiles = size<3>(get<0>(inputs));
    int const first = int(int64_t(k_tiles) * rank / params.splits);
    int const count = int(int64_t(k_tiles) * (rank + 1) / params.splits) - first;

    TiledMma tiled_mma;
    Tensor accumulators = partition_fragment_C(tiled_mma, take<0, 2>(TileShape{}));
    if (produces) {
      if (elect_one_sync()) load(params, storage, inputs, m, n, first, count);
      __syncwarp();
    } else {
      multiply(storage, tiled_mma, accumulators, count);
    }
    // From here the rings of the cluster are idle: all that was loaded has been multiplied.
    meet();
    if (!produces) {
      if (params.splits > 1) {
        exchange<true>(storage, tiled_mma, accumulators, rank, params.splits);
      } else {
        exchange<false>(storage, tiled_mma, accumulators, 0, 1);
      }
    }
    meet();
    if (!produces) {
      cutlass::arch::wait_on_dependent_grids();
      finish(params, storage, kSwap ? n : m, kSwap ? m : n, rank);
    }
  }

 private:
  // All threads of the cluster; writes to shared memory, remote ones too, are seen by all after it.
  CUTLASS_DEVICE static void meet() {
    cluster_arrive();
    cluster_wait();
  }

  // One thread: this CTA's K tiles through the ring, weights ahead of the wait for the previous kernel.
  template <class Inputs>
  CUTLASS_DEVICE static void load(Params const& params, SharedStorage& storage, Inputs const& inputs, int m, int n,
                                  int first, int count) {
    auto const& gA = get<0>(inputs);
    auto const& gB = get<1>(inputs);
    auto const& tma_a = params.operands.mainloop.tma_load_a;
    auto const& tma_b = params.operands.mainloop.tma_load_b;
    auto& stages = storage.memory.stages;
    Tensor sA = make_tensor(make_smem_ptr(stages.smem_A.data()), typename Mainloop::SmemLayoutA{});
    Tensor sB = make_tensor(make_smem_ptr(stages.smem_B.data()), typename Mainloop::SmemLayoutB{});
    auto slice_a = tma_a.get_slice(0);
    auto slice_b = tma_b.get_slice(0);
    Tensor tAsA = slice_a.partition_D(sA);
    Tensor tBsB = slice_b.partition_D(sB);
    Tensor tAgA = slice_a.partition_S(gA(_, _, idx2crd(m, shape<2>(gA)), _));
    Tensor tBgB = slice_b.partition_S(gB(_, _, idx2crd(n, shape<2>(gB)), _));
    auto k_of_a = make_coord_iterator(idx2crd(first, shape<3>(gA)), shape<3>(gA));
    auto k_of_b = k_of_a;
    auto barrier = [&](int stage) -> uint64_t& { return *reinterpret_cast<uint64_t*>(&storage.full[stage]); };
    auto load_a = [&](int stage) {
      copy(tma_a.with(barrier(stage), 0), tAgA(_, _, _, *k_of_a), tAsA(_, _, _, stage));
      ++k_of_a;
    };
    auto load_b = [&](int stage) {
      copy(tma_b.with(barrier(stage), 0), tBgB(_, _, _, *k_of_b), tBsB(_, _, _, stage));
      ++k_of_b;
    };
    auto load_weight = [&](int stage) { kSwap ? load_a(stage) : load_b(stage); };
    auto load_activation = [&](int stage) { kSwap ? load_b(stage) : load_a(stage); };

    int const early = count < kStages ? count : kStages;
    if (!params.weights_constant) cutlass::arch::wait_on_dependent_grids();
    for (int k = 0; k < early; ++k) {
      storage.full[k].arrive_and_expect_tx(Mainloop::TmaTransactionBytes);
      load_weight(k);
    }
    if (params.weights_constant) cutlass::arch::wait_on_dependent_grids();
    for (int k = 0; k < early; ++k) load_activation(k);
    int stage = 0;
    uint32_t parity = 0;
    CUTLASS_PRAGMA_NO_UNROLL
    for (int k = early; k < count; ++k) {
      storage.empty[stage].wait(parity);
      storage.full[stage].arrive_and_expect_tx(Mainloop::TmaTransactionBytes);
      load_a(stage);
      load_b(stage);
      if (++stage == kStages) {
        stage = 0;
        parity ^= 1;
      }
    }
  }

  // The consumer warp group: `count` >= 1 K tiles. A stage is given back once the products after it have been issued.
  template <class Accumulators>
  CUTLASS_DEVICE static void multiply(SharedStorage& storage, TiledMma& tiled_mma, Accumulators& accumulators,
                                      int count) {
    auto& stages = storage.memory.stages;
    Tensor sA = make_tensor(make_smem_ptr(stages.smem_A.data()), typename Mainloop::SmemLayoutA{});
    Tensor sB = make_tensor(make_smem_ptr(stages.smem_B.data()), typename Mainloop::SmemLayoutB{});
    auto mma = tiled_mma.get_slice(0);  // descriptors are the same for the whole warp group
    Tensor tCrA = mma.make_fragment_A(mma.partition_A(sA));
    Tensor tCrB = mma.make_fragment_B(mma.partition_B(sB));
    auto release = [&](int stage) {
      __syncwarp();
      if (elect_one_sync()) storage.empty[stage].arrive();
    };
    int stage = 0, previous = 0;
    uint32_t parity = 0;
    tiled_mma.accumulate_ = GMMA::ScaleOut::Zero;
    warpgroup_fence_operand(accumulators);
    CUTLASS_PRAGMA_NO_UNROLL
    for (int k = 0; k < count; ++k) {
      storage.full[stage].wait(parity);
      warpgroup_arrive();
      CUTLASS_PRAGMA_UNROLL
      for (int part = 0; part < size<2>(tCrA); ++part) {
        cute::gemm(tiled_mma, tCrA(_, _, part, stage), tCrB(_, _, part, stage), accumulators);
        tiled_mma.accumulate_ = GMMA::ScaleOut::One;
      }
      warpgroup_commit_batch();
      if (k > 0) {
        warpgroup_wait<1>();
        release(previous);
      }
      previous = stage;
      if (++stage == kStages) {
        stage = 0;
        parity ^= 1;
      }
    }
    warpgroup_wait<0>();
    warpgroup_fence_operand(accumulators);
  }

  // Partial sums into slot `rank` of the CTA that owns their row. A slot is `own` rows of kPitch floats.
  template <bool kRemote, class Accumulators>
  CUTLASS_DEVICE static void exchange(SharedStorage& storage, TiledMma& tiled_mma, Accumulators const& accumulators,
                                      int rank, int splits) {
    int const own = (kRows + splits - 1) / splits;
    auto mma = tiled_mma.get_thread_slice(int(threadIdx.x));
    Tensor places = mma.partition_C(make_identity_tensor(take<0, 2>(TileShape{})));
    uint32_t const base = cast_smem_ptr_to_uint(storage.memory.exchange);
    auto address = [&](int row, int column) {
      int const owner = kRemote ? row / own : 0;
      uint32_t const local = base + uint32_t(((rank - owner) * own + row) * kPitch + column) * uint32_t(sizeof(float));
      return kRemote ? remote_address(local, owner) : local;
    };
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < size(accumulators); i += 2) {  // a thread holds pairs along N
      int const m = get<0>(places(i)), n = get<1>(places(i));
      float const low = accumulators(i), high = accumulators(i + 1);
      if constexpr (kSwap) {
        asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address(n, m)), "f"(low) : "memory");
        asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address(n + 1, m)), "f"(high) : "memory");
      } else if constexpr (kRemote) {
        asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(address(m, n)), "f"(low), "f"(high) : "memory");
      } else {
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address(m, n)), "f"(low), "f"(high) : "memory");
      }
    }
  }

  // The rows this CTA owns: slots added, chain applied, stored. `row_tile` and `column_tile` count tiles of D.
  CUTLASS_DEVICE static void finish(Params const& params, SharedStorage const& storage, int row_tile, int column_tile,
                                    int rank) {
    constexpr int kVectors = kColumns / kVec, kPart = kVec < 4 ? kVec : 4;
    auto const& out = params.out;
    int const own = (kRows + params.splits - 1) / params.splits;
    int const count = min(own, kRows - rank * own);  // of the tile's rows; none are left for the last CTAs of some S
    int64_t const batch = blockIdx.z;
    ElementD* const d = out.d + batch * out.stride_d;
    ElementD const* const source = Chain::kSource ? out.source + batch * out.stride_source : nullptr;
    for (int i = int(threadIdx.x); i < count * kVectors; i += kConsumerThreads) {
      int const at = i / kVectors, within = i % kVectors * kVec;
      int const row = row_tile * kRows + rank * own + at, column = column_tile * kColumns + within;
      if (row >= out.rows || column >= out.columns) continue;
      cutlass::Array<float, kVec> sum;
      sum.clear();
      for (int slot = 0; slot < params.splits; ++slot) {
        float const* from = storage.memory.exchange + (slot * own + at) * kPitch + within;
        CUTLASS_PRAGMA_UNROLL
        for (int j = 0; j < kVec; j += kPart) {
          auto const part = *reinterpret_cast<cutlass::AlignedArray<float, kPart> const*>(from + j);
          CUTLASS_PRAGMA_UNROLL
          for (int l = 0; l < kPart; ++l) sum[j + l] += part[l];
        }
      }
      cutlass::AlignedArray<Element, kVec> bias;
      cutlass::AlignedArray<ElementD, kVec> added;
      if constexpr (Chain::kBias) {
        bias = *reinterpret_cast<cutlass::AlignedArray<Element, kVec> const*>(out.bias + column);
      }
      if constexpr (Chain::kSource) {
        added = *reinterpret_cast<cutlass::AlignedArray<ElementD, kVec> const*>(source + row * out.ldsource + column);
      }
      CUTLASS_PRAGMA_UNROLL
      for (int j = 0; j < kVec; ++j) {
        float const b = Chain::kBias ? float(bias[j]) : 0.f, s = Chain::kSource ? float(added[j]) : 0.f;
        sum[j] = Chain::apply(sum[j], b, s);
      }
      cutlass::NumericArrayConverter<ElementD, float, kVec> convert;
      *reinterpret_cast<cutlass::AlignedArray<ElementD, kVec>*>(d + row * out.ldd + column) =
          reinterpret_cast<cutlass::AlignedArray<ElementD, kVec> const&>(
              static_cast<cutlass::Array<ElementD, kVec> const&>(convert(sum)));
    }
  }
};

}  // namespace bolt::split
