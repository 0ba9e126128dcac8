// The mainloop of the persistent Hopper convolution: CUTLASS's im2col TMA + wgmma collective with our own tiled MMA.
//
// Follows CUTLASS's conv/collective/builders/sm90_gmma_builder.inl, of which this is the notice:
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
#include "cutlass/cutlass.h"
#include "cutlass/kernel_hardware_info.hpp"  // before the conv builder, which uses it undeclared
#include "cute/tensor.hpp"
#include "cutlass/conv/collective/collective_builder.hpp"
#include "cutlass/conv/convolution.h"
#include "cutlass/conv/detail.hpp"
#include "cutlass/conv/dispatch_policy.hpp"

namespace bolt::conv {

using namespace cute;

// Our own schedule tags: CUTLASS's convolution policy rejects its own persistent ones, which it does not implement.
struct Pingpong {
  static constexpr bool kCooperative = false;
};
struct Cooperative {
  static constexpr bool kCooperative = true;
};

// The forward mainloop collective, put together by hand so that its tiled MMA can span two warp groups. `kCarveout` is
// the shared memory of everything else, which gives the number of stages unless `kWantedStages` does.
template <class Element, class TileShape, class ClusterShape, int kCarveout, class Schedule, int kWantedStages = 0>
struct MainloopBuilder {
  static constexpr int kSpatialDimensions = 2;
  static constexpr auto kMajor = GMMA::Major::K;
  using Warps = conditional_t<Schedule::kCooperative, Layout<Shape<_2, _1, _1>>, Layout<Shape<_1, _1, _1>>>;
  using TiledMma =
      decltype(make_tiled_mma(GMMA::ss_op_selector<Element, Element, float, TileShape, kMajor, kMajor>(), Warps{}));
  using CopyA = decltype(cutlass::conv::collective::detail::sm90_cluster_shape_to_im2col_tma_atom(
      shape<1>(ClusterShape{})));
  using CopyB = decltype(cutlass::gemm::collective::detail::sm90_cluster_shape_to_tma_atom(shape<0>(ClusterShape{})));
  using AtomA = decltype(cutlass::gemm::collective::detail::ss_smem_selector<
                         kMajor, Element, decltype(get<0>(TileShape{})), decltype(get<2>(TileShape{}))>());
  using AtomB = decltype(cutlass::gemm::collective::detail::ss_smem_selector<
                         kMajor, Element, decltype(get<1>(TileShape{})), decltype(get<2>(TileShape{}))>());
  using StageCount = conditional_t<kWantedStages != 0, cutlass::conv::collective::StageCount<kWantedStages>,
                                   cutlass::conv::collective::StageCountAutoCarveout<kCarveout>>;
  static constexpr int kStages = cutlass::conv::collective::detail::compute_stage_count_or_override<
      cutlass::gemm::collective::detail::sm90_smem_capacity_bytes, Element, Element, TileShape>(StageCount{});
  static_assert(kStages >= 2, "the tile and its epilogue leave no room for two load stages");
  using LayoutA = decltype(tile_to_shape(
      AtomA{}, make_shape(shape<0>(TileShape{}), shape<2>(TileShape{}), Int<kStages>{}), Step<_2, _1, _3>{}));
  using LayoutB = decltype(tile_to_shape(
      AtomB{}, make_shape(shape<1>(TileShape{}), shape<2>(TileShape{}), Int<kStages>{}), Step<_2, _1, _3>{}));
  using Policy = cutlass::conv::MainloopSm90TmaGmmaWarpSpecializedImplicitGemm<
      cutlass::conv::Operator::kFprop, kStages, kSpatialDimensions, ClusterShape, Schedule>;
  using Collective = cutlass::conv::collective::CollectiveConv<
      Policy, TileShape, Element, Element, TiledMma,
      cutlass::conv::collective::detail::Sm90ImplicitGemmTileTraits<CopyA, LayoutA>,
      cutlass::conv::collective::detail::Sm90ImplicitGemmTileTraits<CopyB, LayoutB>>;
};

}  // namespace bolt::conv
