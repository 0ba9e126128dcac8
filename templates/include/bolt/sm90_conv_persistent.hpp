// Persistent warp-specialised implicit-GEMM convolution forward for Hopper (sm_90a), NHWC, fp32 accumulation.
//
// The kernel's structure follows CUTLASS's persistent GEMM kernels, and the im2col mainloop and the TMA epilogue are
// CUTLASS 4.2's own collectives; CUTLASS itself has only a non-persistent, one-consumer convolution for Hopper.
//
// Data movement. GEMM view: M = N*P*Q output pixels, N = output channels, K = R*S*C. A tile of A is fetched by im2col
// TMA, which walks pixels, applies stride, padding and dilation, and fills zeros; a tile of B is a plain TMA box of the
// KRSC weights. Both go through one ring of stages in shared memory into wgmma, accumulators stay in registers, the
// epilogue visitor tree takes them to shared memory and TMA stores them: packed NHWC output is a row-major (NPQ, K)
// matrix. A source tensor comes the same way through the epilogue's own load ring.
//
//   warp group 0     producers. warp 0: A and B;  warp 2: the epilogue's source, if there is one
//   warp groups 1, 2 consumers
//     Pingpong     each has a whole tile; the products of one run behind the epilogue of the other
//     Cooperative  both share one tile, split along M
//
// Scheduling. The grid is as large as the GPU; cluster c takes cluster tiles c, c + G, c + 2G, ... with N fastest, so
// that neighbours share input pixels in L2 (weights are small and stay there anyway).
//
// Programmatic dependent launch. Weights are constants, so the ring is filled with them before the wait for the
// previous kernel, then with pixels. Dependents are released at once: their CTAs fit only when ours leave.
//
// Copyright (c) 2023 - 2025 NVIDIA CORPORATION & AFFILIATES. All rights reserved.
// SPDX-License-Identifier: BSD-3-Clause
//
// Redistribution and use in source and binary forms, with or without
// modification, are permitted provided that the following conditions are met:
//
// 1. Redistributions of source code must retain the above copyright notice, this
// list of conditions and the following disclaimer.
//
// 2. Redistributions in binary form must reproduce the above copyright notice,
// this list of conditions and the following disclaimer in the documentation
// and/or other materials provided with the distribution.
//
// 3. Neither the name of the copyright holder nor the names of its
// contributors may be used to endorse or promote products derived from
// this software without specific prior written permission.
//
// THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS AND CONTRIBUTORS "AS IS"
// AND ANY EXPRESS OR IMPLIED WARRANTIES, INCLUDING, BUT NOT LIMITED TO, THE
// IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS FOR A PARTICULAR PURPOSE ARE
// DISCLAIMED. IN NO EVENT SHALL THE COPYRIGHT HOLDER OR CONTRIBUTORS BE LIABLE
// FOR ANY DIRECT, INDIRECT, INCIDENTAL, SPECIAL, EXEMPLARY, OR CONSEQUENTIAL
// DAMAGES (INCLUDING, BUT NOT LIMITED TO, PROCUREMENT OF SUBSTITUTE GOODS OR
// SERVICES; LOSS OF USE, DATA, OR PROFITS; OR BUSINESS INTERRUPTION) HOWEVER
// CAUSED AND ON ANY THEORY OF LIABILITY, WHETHER IN CONTRACT, STRICT LIABILITY,
// OR TORT (INCLUDING NEGLIGENCE OR OTHERWISE) ARISING IN ANY WAY OUT OF THE USE
// OF THIS SOFTWARE, EVEN IF ADVISED OF THE POSSIBILITY OF SUCH DAMAGE.
//
#pragma once
#ifndef CUTLASS_ENABLE_GDC_FOR_SM90
#error "compile with -DCUTLASS_ENABLE_GDC_FOR_SM90=1: without it a dependent launch would not wait for its input"
#endif
#include "bolt/sm90_conv_mainloop.hpp"
#include "cute/arch/cluster_sm90.hpp"
#include "cute/tensor.hpp"
#include "cutlass/arch/grid_dependency_control.h"
#include "cutlass/arch/reg_reconfig.h"
#include "cutlass/conv/convnd_problem_shape.hpp"
#include "cutlass/device_kernel.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/pipeline/sm90_pipeline.hpp"

namespace bolt::conv {

using namespace cute;

// The persistent walk, counted in cluster tiles.
struct TileScheduler {
  struct Params {
    int tiles, tiles_n;
  };
  Params params;
  int index, step;
  CUTLASS_DEVICE TileScheduler(Params const& params_, int cluster, int clusters)
      : params(params_), index(cluster), step(clusters) {}
  CUTLASS_DEVICE bool valid() const { return index < params.tiles; }
  CUTLASS_DEVICE void advance(int turns = 1) { index += turns * step; }
  CUTLASS_DEVICE int m() const { return index / params.tiles_n; }
  CUTLASS_DEVICE int n() const { return index % params.tiles_n; }
};

template <class Mainloop_, class Epilogue_>
struct PersistentConv {
  using Mainloop = Mainloop_;
  using Epilogue = Epilogue_;
  using TileShape = typename Mainloop::TileShape;
  using TiledMma = typename Mainloop::TiledMma;
  using ClusterShape = typename Mainloop::DispatchPolicy::ClusterShape;
  using Problem = typename Mainloop::ProblemShape;
  using LoadPipeline = typename Mainloop::MainloopPipeline;
  using SourcePipeline = typename Epilogue::LoadPipeline;
  using StorePipeline = typename Epilogue::StorePipeline;
  using StrideD = typename Epilogue::StrideD;
  using ArchTag = cutlass::arch::Sm90;

  static constexpr bool kCooperative = Mainloop::DispatchPolicy::Schedule::kCooperative;
  static constexpr int kWarp = cutlass::NumThreadsPerWarp, kWarpGroup = cutlass::NumThreadsPerWarpGroup;
  static constexpr int kConsumers = 2;
  static constexpr int kMmaThreads = CUTE_STATIC_V(size(TiledMma{}));
  static constexpr int kThreads = (1 + kConsumers) * kWarpGroup;
  static constexpr int MaxThreadsPerBlock = kThreads, MinBlocksPerMultiprocessor = 1;  // read by device_kernel<>
  static constexpr int kClusterM = size<0>(ClusterShape{}), kClusterN = size<1>(ClusterShape{});
  static constexpr int kStages = Mainloop::DispatchPolicy::Stages;
  static_assert(kMmaThreads == (kCooperative ? kConsumers : 1) * kWarpGroup,
                "a tile belongs to one consumer warp group, or to all of them when they cooperate");

  // What the producer warp group gives up and the consumers take; CUTLASS's figures for light and heavy accumulators.
  static constexpr int kAccumulators = size<0>(TileShape{}) * size<1>(TileShape{}) / kMmaThreads;
  static constexpr bool kHeavy = kAccumulators >= 208;
  static constexpr int kProducerRegisters = kHeavy ? 24 : 40, kConsumerRegisters = kHeavy ? 240 : 232;

  // Pingpong: the consumers alternate in products, then in epilogues.
  using TurnBarrier = cutlass::OrderedSequenceBarrier</*phases*/ 2, kConsumers>;

  struct SharedStorage {
    struct Tensors : aligned_struct<128, _1> {
      typename Epilogue::TensorStorage epilogue;
      typename Mainloop::TensorStorage mainloop;
    } tensors;
    struct Pipelines : aligned_struct<16, _1> {
      alignas(16) typename Mainloop::PipelineStorage load;
      alignas(16) typename Epilogue::PipelineStorage source;
      alignas(16) typename TurnBarrier::SharedStorage turn;
    } pipelines;
  };
  static constexpr int SharedStorageSize = sizeof(SharedStorage);
  static_assert(SharedStorageSize <= cutlass::gemm::collective::detail::sm90_smem_capacity_bytes,
                "the stage count left too little shared memory for the epilogue and the barriers");

  struct Arguments {
    Problem problem;
    typename Mainloop::Arguments mainloop;
    typename Epilogue::Arguments epilogue;
    int sm_count = 0;
    bool weights_constant = true;  // not written by the previous kernel of the stream
  };
  struct Params {
    Shape<int, int, Shape<int, int, int>, _1> mnkl;  // (NPQ, K, (C,S,R), 1)
    typename Mainloop::Params mainloop;
    typename Epilogue::Params epilogue;
    TileScheduler::Params scheduler;
    int clusters;
    bool weights_constant;
  };

  static auto epilogue_shape(Arguments const& args) {
    auto [m, n, k, l] = Mainloop::get_problem_shape_MNKL(args.problem);
    return make_shape(int(m), int(n), 1, 1);
  }

  static bool can_implement(Arguments const& args) {
    return Mainloop::can_implement(args.problem, args.mainloop) &&
           Epilogue::can_implement(epilogue_shape(args), args.epilogue);
  }

  static Params to_params(Arguments const& args) {
    auto [m, n, k, l] = Mainloop::get_problem_shape_MNKL(args.problem);
    int const tiles_m = ceil_div(ceil_div(int(m), int(size<0>(TileShape{}))), kClusterM);
    int const tiles_n = ceil_div(ceil_div(int(n), int(size<1>(TileShape{}))), kClusterN);
    int const resident = cute::max(args.sm_count / (kClusterM * kClusterN), 1);
    return {make_shape(int(m), int(n), k, _1{}),
            Mainloop::to_underlying_arguments(args.problem, args.mainloop, nullptr),
            Epilogue::to_underlying_arguments(epilogue_shape(args), args.epilogue, nullptr),
            {tiles_m * tiles_n, tiles_n},
            cute::min(resident, tiles_m * tiles_n),
            args.weights_constant};
  }

  static cudaError_t launch(Params& params, cudaStream_t stream, bool dependent_launch) {
    void const* kernel = reinterpret_cast<void const*>(&cutlass::device_kernel<PersistentConv>);
    cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SharedStorageSize);
    if (status != cudaSuccess) return status;
    cudaLaunchAttribute attributes[2]{};
    unsigned count = 0;
    if (kClusterM * kClusterN > 1) {
      attributes[count].id = cudaLaunchAttributeClusterDimension;
      attributes[count++].val.clusterDim = {unsigned(kClusterM), unsigned(kClusterN), 1};
    }
    if (dependent_launch) {
      attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attributes[count++].val.programmaticStreamSerializationAllowed = 1;
    }
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(kClusterM * params.clusters, kClusterN);
    config.blockDim = kThreads;
    config.dynamicSmemBytes = SharedStorageSize;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = count;
    void* arguments[] = {&params};
    return cudaLaunchKernelExC(&config, kernel, arguments);
  }

  CUTLASS_DEVICE void operator()(Params const& params, char* smem) {
    SharedStorage& storage = *reinterpret_cast<SharedStorage*>(smem);
    int const warp = cutlass::canonical_warp_idx_sync();
    int const group = cutlass::canonical_warp_group_idx();
    bool const loads = warp == 0, loads_source = warp == 2, consumes = group > 0;

    if (warp == 0 && elect_one_sync()) {
      Mainloop::prefetch_tma_descriptors(params.mainloop);
      Epilogue::prefetch_tma_descriptors(params.epilogue);
    }
    LoadPipeline load_pipeline = make_load_pipeline(params, storage, loads, consumes);
    SourcePipeline source_pipeline = make_source_pipeline(params, storage, loads_source, consumes);
    typename TurnBarrier::Params turn_params;
    turn_params.group_id = group - 1;
    turn_params.group_size = kWarpGroup;
    TurnBarrier turn(storage.pipelines.turn, turn_params);

    Mainloop mainloop;
    Epilogue epilogue(params.epilogue, storage.tensors.epilogue);
    auto const inputs = mainloop.load_init(params.mnkl, params.mainloop);  // A (BM,BK,m,k) and B (BN,BK,n,k)
    int const m_in_cluster = int(blockIdx.x) % kClusterM, n_in_cluster = int(blockIdx.y);
    TileScheduler scheduler(params.scheduler, int(blockIdx.x) / kClusterM, params.clusters);
    auto coordinates = [&] {
      return make_coord(scheduler.m() * kClusterM + m_in_cluster, scheduler.n() * kClusterN + n_in_cluster, _, 0);
    };

    // Every CTA of the cluster must see the barriers of the others before it uses them.
    if constexpr (kClusterM * kClusterN > 1) {
      cluster_arrive_relaxed();
      cluster_wait();
    } else {
      __syncthreads();
    }
    cutlass::arch::launch_dependent_grids();

    if (!consumes) {
      cutlass::arch::warpgroup_reg_dealloc<kProducerRegisters>();
      if (loads && elect_one_sync()) {
        load_tiles(params, storage, load_pipeline, inputs, scheduler, coordinates, m_in_cluster, n_in_cluster);
      } else if (loads_source && epilogue.is_producer_load_needed()) {
        load_source(params, storage, source_pipeline, epilogue, scheduler, coordinates);
      }
    } else {
      cutlass::arch::warpgroup_reg_alloc<kConsumerRegisters>();
      consume(params, storage, load_pipeline, source_pipeline, turn, mainloop, epilogue, size<3>(get<0>(inputs)),
              group - 1, scheduler, coordinates);
    }
  }

 private:
  CUTLASS_DEVICE static LoadPipeline make_load_pipeline(Params const& params, SharedStorage& storage, bool loads,
                                                        bool consumes) {
    typename LoadPipeline::Params pipeline;
    if (loads) pipeline.role = LoadPipeline::ThreadCategory::Producer;
    if (consumes) pipeline.role = LoadPipeline::ThreadCategory::Consumer;
    pipeline.is_leader = threadIdx.x % kWarpGroup == 0;
    pipeline.num_consumers = kMmaThreads;
    pipeline.transaction_bytes = params.mainloop.tma_transaction_bytes;
    return LoadPipeline(storage.pipelines.load, pipeline, ClusterShape{});
  }

  CUTLASS_DEVICE static SourcePipeline make_source_pipeline(Params const& params, SharedStorage& storage, bool loads,
                                                            bool consumes) {
    typename SourcePipeline::Params pipeline;
    if (loads) pipeline.role = SourcePipeline::ThreadCategory::Producer;
    if (consumes) pipeline.role = SourcePipeline::ThreadCategory::Consumer;
    pipeline.dst_blockid = block_rank_in_cluster();
    pipeline.producer_arv_count = kWarp;
    pipeline.consumer_arv_count = kMmaThreads;
    pipeline.transaction_bytes = params.epilogue.tma_transaction_bytes;
    return SourcePipeline(storage.pipelines.source, pipeline);
  }

  // One thread: every tile's A and B through the ring.
  template <class Inputs, class Coordinates>
  CUTLASS_DEVICE static void load_tiles(Params const& params, SharedStorage& storage, LoadPipeline& pipeline,
                                        Inputs const& inputs, TileScheduler& scheduler, Coordinates const& coordinates,
                                        int m_in_cluster, int n_in_cluster) {
    auto const& gA = get<0>(inputs);
    auto const& gB = get<1>(inputs);
    auto const& tma_a = params.mainloop.tma_load_a;
    auto const& tma_b = params.mainloop.tma_load_b;
    Tensor sA = make_tensor(make_smem_ptr(storage.tensors.mainloop.smem_A.data()), typename Mainloop::SmemLayoutA{});
    Tensor sB = make_tensor(make_smem_ptr(storage.tensors.mainloop.smem_B.data()), typename Mainloop::SmemLayoutB{});
    auto slice_a = tma_a.get_slice(n_in_cluster);  // CTAs along N share A, each fetches its part for all
    auto slice_b = tma_b.get_slice(m_in_cluster);
    Tensor tAsA = slice_a.partition_D(sA);
    Tensor tBsB = slice_b.partition_D(sB);
    uint16_t mask_a = 0, mask_b = 0;  // who receives: CTA (m, n) is bit m + n * kClusterM
    if constexpr (kClusterN > 1) {
      for (int n = 0; n < kClusterN; ++n) mask_a |= uint16_t(1) << (m_in_cluster + n * kClusterM);
    }
    if constexpr (kClusterM > 1) {
      for (int m = 0; m < kClusterM; ++m) mask_b |= uint16_t(1) << (m + n_in_cluster * kClusterM);
    }

    int const k_tiles = size<3>(gA);
    auto state = cutlass::make_producer_start_state<LoadPipeline>();
    bool waited = !params.weights_constant;
    if (waited) cutlass::arch::wait_on_dependent_grids();
    for (; scheduler.valid(); scheduler.advance()) {
      auto const coordinate = coordinates();
      Tensor tAgA = slice_a.partition_S(gA(_, _, idx2crd(get<0>(coordinate), shape<2>(gA)), _));
      Tensor tBgB = slice_b.partition_S(gB(_, _, idx2crd(get<1>(coordinate), shape<2>(gB)), _));
      auto k_of_a = make_coord_iterator(shape<3>(gA));
      auto k_of_b = k_of_a;
      auto load_a = [&](auto const& at) {
        copy(tma_a.with(*pipeline.producer_get_barrier(at), mask_a), tAgA(_, _, _, *k_of_a), tAsA(_, _, _, at.index()));
        ++k_of_a;
      };
      auto load_b = [&](auto const& at) {
        copy(tma_b.with(*pipeline.producer_get_barrier(at), mask_b), tBgB(_, _, _, *k_of_b), tBsB(_, _, _, at.index()));
        ++k_of_b;
      };
      int k = 0;
      if (!waited) {  // weights into every stage, then the wait, then the pixels
        int const early = cute::min(int(kStages), k_tiles);
        auto ahead = state;
        for (int i = 0; i < early; ++i, ++ahead) {
          pipeline.producer_acquire(ahead);
          load_b(ahead);
        }
        cutlass::arch::wait_on_dependent_grids();
        for (; k < early; ++k, ++state) load_a(state);
        waited = true;
      }
      CUTLASS_PRAGMA_NO_UNROLL
      for (; k < k_tiles; ++k, ++state) {
        pipeline.producer_acquire(state);
        load_a(state);
        load_b(state);
      }
    }
    pipeline.producer_tail(state);  // no CTA of a cluster leaves while others still signal its barriers
  }

  template <class Coordinates>
  CUTLASS_DEVICE static void load_source(Params const& params, SharedStorage& storage, SourcePipeline& pipeline,
                                         Epilogue& epilogue, TileScheduler& scheduler, Coordinates const& coordinates) {
    auto const shape = make_shape(get<0>(params.mnkl), get<1>(params.mnkl), 1, 1);
    typename Epilogue::LoadPipelineState state = cutlass::make_producer_start_state<SourcePipeline>();
    cutlass::arch::wait_on_dependent_grids();
    for (; scheduler.valid(); scheduler.advance()) {
      state = epilogue.load(pipeline, state, shape, TileShape{}, coordinates(), TiledMma{}, threadIdx.x % kWarp,
                            storage.tensors.epilogue);
    }
    epilogue.load_tail(pipeline, state);
  }

  template <class Coordinates>
  CUTLASS_DEVICE static void consume(Params const& params, SharedStorage& storage, LoadPipeline& load_pipeline,
                                     SourcePipeline& source_pipeline, TurnBarrier& turn, Mainloop& mainloop,
                                     Epilogue& epilogue, int k_tiles, int consumer, TileScheduler& scheduler,
                                     Coordinates const& coordinates) {
    constexpr int kTurns = kCooperative ? 1 : kConsumers;  // tiles until this consumer's next one
    constexpr int kSourceTiles = Epilogue::get_load_pipe_increment(TileShape{});
    constexpr int kStoreTiles = Epilogue::get_store_pipe_increment(TileShape{});
    auto const shape = make_shape(get<0>(params.mnkl), get<1>(params.mnkl), 1, 1);
    int const thread = threadIdx.x % kWarpGroup + (kCooperative ? consumer * kWarpGroup : 0);
    int const mma_thread = kCooperative ? consumer * kWarpGroup : 0;  // uniform in a warp group: all wgmma asks for
    TiledMma tiled_mma;
    typename Mainloop::PipelineState load_state;
    typename Epilogue::LoadPipelineState source_state;
    typename Epilogue::StorePipelineState store_state = cutlass::make_producer_start_state<StorePipeline>();
    if (!kCooperative && consumer == 1) {  // the second consumer starts with the second tile
      scheduler.advance();
      load_state.advance(k_tiles);
      source_state.advance(kSourceTiles);
      store_state.advance(kStoreTiles);
    }
    bool stored = false;
    for (; scheduler.valid(); scheduler.advance(kTurns)) {
      Tensor accumulators = partition_fragment_C(tiled_mma, take<0, 2>(TileShape{}));
      if constexpr (!kCooperative) turn.wait();
      mainloop.mma(load_pipeline, load_state, accumulators, k_tiles, mma_thread, storage.tensors.mainloop,
                   params.mainloop);
      if constexpr (!kCooperative) turn.arrive();
      mainloop.mma_tail(load_pipeline, load_state, k_tiles);
      load_state.advance(k_tiles * kTurns);
      if constexpr (!kCooperative) turn.wait();
      auto [next_source, next_store] =
          epilogue.store(source_pipeline, source_state, store_pipeline(), store_state, shape, TileShape{},
                         coordinates(), accumulators, tiled_mma, thread, storage.tensors.epilogue);
      source_state = next_source;
      store_state = next_store;
      stored = true;
      if constexpr (!kCooperative) {
        // The other consumer takes over the store buffers: let our TMA stores finish reading them first.
        auto [drained_source, drained_store] =
            epilogue.store_tail(source_pipeline, source_state, store_pipeline(), store_state);
        source_state = drained_source;
        store_state = drained_store;
        source_state.advance(kSourceTiles);
        store_state.advance(kStoreTiles);
        turn.arrive();
      }
    }
    if (kCooperative && stored) epilogue.store_tail(source_pipeline, source_state, store_pipeline(), store_state);
  }

  CUTLASS_DEVICE static StorePipeline store_pipeline() {
    typename StorePipeline::Params pipeline;
    pipeline.always_wait = true;
    return StorePipeline(pipeline);
  }
};

}  // namespace bolt::conv
