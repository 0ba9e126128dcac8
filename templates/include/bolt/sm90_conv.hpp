// The persistent im2col convolution made from a Config, behind the arguments of bolt/abi.h.
//
// A Config gives
//   Element, ElementD        types of activations and weights, of the output and of the source
//   kTileM, kTileN, kTileK   CTA tile of the implicit GEMM;  kClusterM, kClusterN: CTAs that share tiles by multicast
//   kCooperative             both consumer warp groups share a tile; otherwise each has its own (pingpong)
//   Chain, kFinalRelu        the epilogue, see bolt/epilogue_3x.h
// `pdl` = 2 says that the weights are not constants: they too wait for the previous kernel.
#pragma once
#include "bolt/abi.h"
#include "bolt/epilogue_3x.h"
#include "bolt/sm90_conv_persistent.hpp"

namespace bolt {

template <class Config>
struct Sm90Conv {
  using Element = typename Config::Element;
  using ElementD = typename Config::ElementD;
  using RowMajor = cutlass::layout::RowMajor;
  template <int kValue>
  using Int = cute::Int<kValue>;
  using TileShape = cute::Shape<Int<Config::kTileM>, Int<Config::kTileN>, Int<Config::kTileK>>;
  using ConvTileShape = cute::Shape<Int<Config::kTileM>, Int<Config::kTileN>, cute::Shape<Int<Config::kTileK>>>;
  using ClusterShape = cute::Shape<Int<Config::kClusterM>, Int<Config::kClusterN>, cute::_1>;
  static constexpr int kTmaBytes = 16, kAlignD = kTmaBytes / int(sizeof(ElementD));
  static_assert(!Config::kCooperative || Config::kTileM % 128 == 0,
                "two cooperating warp groups take 64 rows each of a wgmma");

  using Schedule = cute::conditional_t<Config::kCooperative, conv::Cooperative, conv::Pingpong>;
  using EpilogueSchedule =
      cute::conditional_t<Config::kCooperative, cutlass::epilogue::TmaWarpSpecializedCooperative,
                          cutlass::epilogue::TmaWarpSpecialized>;
  using Chain3x = Epilogue3x<typename Config::Chain, TileShape, Element, ElementD, Config::kFinalRelu>;
  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, ClusterShape,
      cutlass::epilogue::collective::EpilogueTileAuto, float, float, typename Chain3x::ElementC, RowMajor, kAlignD,
      ElementD, RowMajor, kAlignD, EpilogueSchedule, typename Chain3x::Tree>::CollectiveOp;
  static constexpr int kBarrierBytes = 256;  // turn barriers and alignment, beside what the stage count accounts for
  using Mainloop = typename conv::MainloopBuilder<Element, ConvTileShape, ClusterShape,
                                                  int(sizeof(typename Epilogue::SharedStorage)) + kBarrierBytes,
                                                  Schedule>::Collective;
  using Kernel = conv::PersistentConv<Mainloop, Epilogue>;

  static typename Kernel::Arguments arguments(bolt_args const& args) {
    typename Kernel::Arguments result{};
    result.problem = typename Kernel::Problem(
        cutlass::conv::Mode::kCrossCorrelation, {args.cn, args.h, args.w, args.c}, {args.cout, args.r, args.s, args.c},
        {args.pad_top, args.pad_left}, {args.pad_bottom, args.pad_right}, {args.stride_h, args.stride_w},
        {args.dilation_h, args.dilation_w}, 1);
    result.mainloop.ptr_A = static_cast<Element const*>(args.a);
    result.mainloop.ptr_B = static_cast<Element const*>(args.b);
    result.epilogue.thread = Chain3x::arguments(args.bias);
    typename Kernel::StrideD packed{};  // (NPQ, K), row-major
    cute::get<0>(packed) = args.cout;
    if constexpr (Config::Chain::kSource) {
      result.epilogue.ptr_C = static_cast<ElementD const*>(args.source);
      result.epilogue.dC = packed;
    }
    result.epilogue.ptr_D = static_cast<ElementD*>(args.d);
    result.epilogue.dD = packed;
    if (args.ldd) cute::get<0>(result.epilogue.dD) = args.ldd;
    result.sm_count = args.sm_count;
    result.weights_constant = args.pdl != 2;
    return result;
  }

  static bool aligned(void const* pointer) { return reinterpret_cast<uintptr_t>(pointer) % kTmaBytes == 0; }

  static int check(bolt_args const& args) {
    constexpr int kMaxStride = 8;  // element stride of an im2col TMA descriptor
    if (args.groups > 1 || args.sm_count <= 0 || args.p <= 0 || args.q <= 0) return BOLT_E_UNSUPPORTED;
    if (args.stride_h > kMaxStride || args.stride_w > kMaxStride) return BOLT_E_UNSUPPORTED;
    if (Config::Chain::kBias && !args.bias) return BOLT_E_UNSUPPORTED;
    if (Config::Chain::kSource && (!args.source || !aligned(args.source))) return BOLT_E_UNSUPPORTED;
    if (!aligned(args.a) || !aligned(args.b) || !aligned(args.d)) return BOLT_E_UNSUPPORTED;
    if (args.ldd && (args.ldd < args.cout || args.ldd % kAlignD)) return BOLT_E_UNSUPPORTED;
    auto const arguments_ = arguments(args);
    if (arguments_.problem.shape_C[1] != args.p || arguments_.problem.shape_C[2] != args.q) return BOLT_E_UNSUPPORTED;
    return Kernel::can_implement(arguments_) ? BOLT_OK : BOLT_E_UNSUPPORTED;
  }

  static int run(bolt_args const& args, cudaStream_t stream) {
    if (int refused = check(args)) return refused;
    auto params = Kernel::to_params(arguments(args));
    return Kernel::launch(params, stream, args.pdl != 0) == cudaSuccess ? BOLT_OK : BOLT_E_LAUNCH;
  }
};

}  // namespace bolt
