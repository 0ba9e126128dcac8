// TMA and wgmma GEMM (sm_90a): a CUTLASS 3.x GemmUniversal made from a Config, behind the arguments of bolt/abi.h.
//
// A Config gives
//   Element, ElementD        types of A and B (float: computed as tf32), of the output, and of the source
//   LayoutA, LayoutB         cutlass::layout tags
//   kTileM, kTileN, kTileK   CTA tile;  kClusterM, kClusterN: CTAs that share tiles by multicast
//   kCooperative             both consumer warp groups share a tile; otherwise each has its own (pingpong)
//   kStreamK                 work is cut along K so that every SM gets an equal share (needs kCooperative); never
//                            launched programmatically
//   kSwap                    D^T = B^T A^T is computed: the tile is N x M then, so that rows of D are cut into as few as
//                            wgmma takes columns, 8, and not 64
//   Chain, kFinalRelu        the epilogue, see bolt/epilogue_3x.h
#pragma once
#include "cutlass/cutlass.h"
#include "cute/tensor.hpp"
#include "bolt/abi.h"
#include "bolt/epilogue_3x.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#include "cutlass/gemm/kernel/gemm_universal.hpp"

namespace bolt {

// Whether kernels of this file can be launched programmatically. CUTLASS 4.2's stream-K scheduler does not compile with
// it, so those kernels have a file of their own.
#ifdef CUTLASS_ENABLE_GDC_FOR_SM90
constexpr bool kDependentLaunch = true;
#else
constexpr bool kDependentLaunch = false;
#endif

template <class Config>
struct Sm90Gemm {
  using Element = typename Config::Element;
  using ElementD = typename Config::ElementD;
  using RowMajor = cutlass::layout::RowMajor;
  using TileShape = cute::Shape<cute::Int<Config::kTileM>, cute::Int<Config::kTileN>, cute::Int<Config::kTileK>>;
  using ClusterShape = cute::Shape<cute::Int<Config::kClusterM>, cute::Int<Config::kClusterN>, cute::_1>;
  static constexpr bool kSwap = Config::kSwap;
  template <class Layout>
  using Transposed = cute::conditional_t<cute::is_same_v<Layout, RowMajor>, cutlass::layout::ColumnMajor, RowMajor>;
  using LayoutA = cute::conditional_t<kSwap, Transposed<typename Config::LayoutB>, typename Config::LayoutA>;
  using LayoutB = cute::conditional_t<kSwap, Transposed<typename Config::LayoutA>, typename Config::LayoutB>;
  using LayoutD = cute::conditional_t<kSwap, cutlass::layout::ColumnMajor, RowMajor>;
  static constexpr int kTmaBytes = 16;  // every row that TMA moves starts at and is a multiple of 16 bytes
  static constexpr int kAlign = kTmaBytes / int(sizeof(Element)), kAlignD = kTmaBytes / int(sizeof(ElementD));
  static_assert(!Config::kStreamK || Config::kCooperative, "CUTLASS's stream-K scheduler needs the cooperative kernel");
  static_assert(kDependentLaunch != Config::kStreamK,
                "compile with -DCUTLASS_ENABLE_GDC_FOR_SM90=1, or a dependent launch would not wait for its input; "
                "stream-K without");
  static_assert(!Config::kCooperative || Config::kTileM % 128 == 0,
                "two cooperating warp groups take 64 rows each of a wgmma");

  using Schedule = cute::conditional_t<Config::kCooperative, cutlass::gemm::KernelTmaWarpSpecializedCooperative,
                                       cutlass::gemm::KernelTmaWarpSpecializedPingpong>;
  using EpilogueSchedule =
      cute::conditional_t<Config::kCooperative, cutlass::epilogue::TmaWarpSpecializedCooperative,
                          cutlass::epilogue::TmaWarpSpecialized>;
  using Chain3x = Epilogue3x<typename Config::Chain, TileShape, Element, ElementD, Config::kFinalRelu, kSwap>;
  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, ClusterShape,
      cutlass::epilogue::collective::EpilogueTileAuto, float, float, typename Chain3x::ElementC, LayoutD, kAlignD,
      ElementD, LayoutD, kAlignD, EpilogueSchedule, typename Chain3x::Tree>::CollectiveOp;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, LayoutA, kAlign, Element, LayoutB, kAlign,
      float, TileShape, ClusterShape,
      cutlass::gemm::collective::StageCountAutoCarveout<int(sizeof(typename Epilogue::SharedStorage))>,
      Schedule>::CollectiveOp;
  using Scheduler = cute::conditional_t<Config::kStreamK, cutlass::gemm::StreamKScheduler, void>;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, Epilogue, Scheduler>;
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

  // (rows, columns, batch): one of the first two is the static 1 of the contiguous dimension.
  template <class Stride>
  static Stride stride(int64_t leading, int64_t batch) {
    Stride result{};
    if constexpr (cute::is_static<decltype(cute::get<0>(result))>::value) {
      cute::get<1>(result) = leading;
    } else {
      cute::get<0>(result) = leading;
    }
    cute::get<2>(result) = batch;
    return result;
  }

  static typename Gemm::Arguments arguments(bolt_args const& args) {
    typename Gemm::Arguments result{};
    result.mode = args.batch > 1 ? cutlass::gemm::GemmUniversalMode::kBatched : cutlass::gemm::GemmUniversalMode::kGemm;
    int const batch = args.batch > 1 ? args.batch : 1;
    int const m = kSwap ? args.n : args.m, n = kSwap ? args.m : args.n;
    result.problem_shape = cute::make_shape(m, n, int(args.k), batch);
    result.mainloop.ptr_A = static_cast<Element const*>(kSwap ? args.b : args.a);
    result.mainloop.ptr_B = static_cast<Element const*>(kSwap ? args.a : args.b);
    result.mainloop.dA = kSwap ? stride<typename Kernel::StrideA>(args.ldb, args.stride_b)
                               : stride<typename Kernel::StrideA>(args.lda, args.stride_a);
    result.mainloop.dB = kSwap ? stride<typename Kernel::StrideB>(args.lda, args.stride_a)
                               : stride<typename Kernel::StrideB>(args.ldb, args.stride_b);
    result.epilogue.thread = Chain3x::arguments(args.bias);
    if constexpr (Config::Chain::kSource) {
      result.epilogue.ptr_C = static_cast<ElementD const*>(args.source);
      result.epilogue.dC = stride<typename Kernel::StrideC>(args.ldsource, args.stride_source);
    }
    result.epilogue.ptr_D = static_cast<ElementD*>(args.d);
    result.epilogue.dD = stride<typename Kernel::StrideD>(args.ldd, args.stride_d);
    result.hw_info.sm_count = args.sm_count;
    using Raster = decltype(result.scheduler.raster_order);
    result.scheduler.raster_order = args.raster == (kSwap ? 2 : 1)   ? Raster::AlongM
                                    : args.raster == (kSwap ? 1 : 2) ? Raster::AlongN
                                                                     : Raster::Heuristic;
    result.scheduler.max_swizzle_size = args.swizzle > 0 ? args.swizzle : 1;
    if constexpr (Config::kStreamK) {
      using Decomposition = decltype(result.scheduler.decomposition_mode);
      result.scheduler.splits = args.splits > 1 ? args.splits : 1;
      result.scheduler.decomposition_mode = args.splits > 1 ? Decomposition::SplitK : Decomposition::StreamK;
    }
    return result;
  }

  // TMA addresses a tensor by a 16-byte aligned pointer and strides that are multiples of 16 bytes.
  template <class T>
  static bool tma_ok(void const* pointer, int64_t leading, int64_t batch) {
    constexpr int64_t kElements = kTmaBytes / int64_t(sizeof(T));
    return reinterpret_cast<uintptr_t>(pointer) % kTmaBytes == 0 && leading % kElements == 0 && batch % kElements == 0;
  }

  static int check(bolt_args const& args) {
    if (args.m <= 0 || args.n <= 0 || args.k <= 0 || args.sm_count <= 0) return BOLT_E_UNSUPPORTED;
    if (!tma_ok<Element>(args.a, args.lda, args.stride_a) || !tma_ok<Element>(args.b, args.ldb, args.stride_b) ||
        !tma_ok<ElementD>(args.d, args.ldd, args.stride_d)) {
      return BOLT_E_UNSUPPORTED;
    }
    if (Config::Chain::kSource && !tma_ok<ElementD>(args.source, args.ldsource, args.stride_source)) {
      return BOLT_E_UNSUPPORTED;
    }
    if (Config::Chain::kBias && !args.bias) return BOLT_E_UNSUPPORTED;
    if (!Config::kStreamK && args.splits > 1) return BOLT_E_UNSUPPORTED;
    return Gemm::can_implement(arguments(args)) == cutlass::Status::kSuccess ? BOLT_OK : BOLT_E_UNSUPPORTED;
  }

  static size_t workspace(bolt_args const& args) { return Gemm::get_workspace_size(arguments(args)); }

  static int run(bolt_args const& args, cudaStream_t stream) {
    if (int refused = check(args)) return refused;
    auto const arguments_ = arguments(args);
    size_t const scratch = Gemm::get_workspace_size(arguments_);
    if (scratch > args.workspace_bytes || (scratch && !args.workspace)) return BOLT_E_WORKSPACE;
    Gemm gemm;
    if (gemm.initialize(arguments_, args.workspace, stream) != cutlass::Status::kSuccess) return BOLT_E_LAUNCH;
    auto const status = gemm.run(stream, nullptr, kDependentLaunch && args.pdl);
    return status == cutlass::Status::kSuccess ? BOLT_OK : BOLT_E_LAUNCH;
  }
};

}  // namespace bolt
