// Where bolt/sm90_split.hpp gets its operands from: the TMA descriptors, shared-memory layouts and tiled MMA of
// CUTLASS's collectives, for a product (GemmOperands) and for a convolution (ConvOperands).
//
// Each gives
//   Mainloop, TileShape        of CUTLASS; one consumer warp group, clusters of one as far as loading goes
//   Params, to_params(args)    what goes to the kernel;  can_implement(args), k_tiles(args): what it can be asked for
//   inputs(params, batch)      A (BM,BK,m,k) and B (BN,BK,n,k) of a batch entry
#pragma once
#include "bolt/abi.h"
#include "bolt/sm90_conv_mainloop.hpp"
#include "cutlass/epilogue/dispatch_policy.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"

namespace bolt::split {

using namespace cute;

constexpr int kTmaBytes = 16;  // every row that TMA moves starts at and is a multiple of 16 bytes

template <class Config>
using TileShapeOf = Shape<Int<Config::kTileM>, Int<Config::kTileN>, Int<Config::kTileK>>;

template <class Config>
struct GemmOperands {
  static constexpr bool kConv = false;
  using Element = typename Config::Element;
  using TileShape = TileShapeOf<Config>;
  using Row = cutlass::layout::RowMajor;
  using Column = cutlass::layout::ColumnMajor;
  template <class Layout>
  using Transposed = conditional_t<is_same_v<Layout, Row>, Column, Row>;
  // D^T = B^T A^T
  using LayoutA = conditional_t<Config::kSwap, Transposed<typename Config::LayoutB>, typename Config::LayoutA>;
  using LayoutB = conditional_t<Config::kSwap, Transposed<typename Config::LayoutA>, typename Config::LayoutB>;
  static constexpr int kAlign = kTmaBytes / int(sizeof(Element));
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, LayoutA, kAlign, Element, LayoutB, kAlign, float,
      TileShape, Shape<_1, _1, _1>, cutlass::gemm::collective::StageCount<Config::kStages>,
      cutlass::gemm::KernelTmaWarpSpecialized>::CollectiveOp;
  struct Params {
    typename Mainloop::Params mainloop;
    int m, n, k, batch;  // of the mainloop's view
  };

  // (rows, columns, batch): one of the first two is the static 1 of the contiguous dimension.
  template <class Stride>
  static Stride stride(int64_t leading, int64_t batch) {
    Stride result{};
    if constexpr (is_static<decltype(get<0>(result))>::value) {
      get<1>(result) = leading;
    } else {
      get<0>(result) = leading;
    }
    get<2>(result) = batch;
    return result;
  }

  static Params to_params(bolt_args const& args) {
    void const* a = Config::kSwap ? args.b : args.a;
    void const* b = Config::kSwap ? args.a : args.b;
    int const m = Config::kSwap ? args.n : args.m, n = Config::kSwap ? args.m : args.n;
    int const batch = args.batch < 1 ? 1 : args.batch;
    typename Mainloop::Arguments arguments{};
    arguments.ptr_A = static_cast<Element const*>(a);
    arguments.ptr_B = static_cast<Element const*>(b);
    arguments.dA = Config::kSwap ? stride<typename Mainloop::StrideA>(args.ldb, args.stride_b)
                                 : stride<typename Mainloop::StrideA>(args.lda, args.stride_a);
    arguments.dB = Config::kSwap ? stride<typename Mainloop::StrideB>(args.lda, args.stride_a)
                                 : stride<typename Mainloop::StrideB>(args.ldb, args.stride_b);
    auto const shape = make_shape(m, n, int(args.k), batch);
    return {Mainloop::to_underlying_arguments(shape, arguments, nullptr), m, n, int(args.k), batch};
  }

  static int k_tiles(bolt_args const& args) { return (args.k + Config::kTileK - 1) / Config::kTileK; }

  static bool tma_ok(void const* pointer, int64_t leading, int64_t batch) {
    return reinterpret_cast<uintptr_t>(pointer) % kTmaBytes == 0 && leading % kAlign == 0 && batch % kAlign == 0;
  }

  static bool can_implement(bolt_args const& args) {
    return args.k > 0 && tma_ok(args.a, args.lda, args.stride_a) && tma_ok(args.b, args.ldb, args.stride_b);
  }

  CUTLASS_DEVICE static auto inputs(Params const& params, int batch) {
    auto const whole = Mainloop{}.load_init(make_shape(params.m, params.n, params.k, params.batch), params.mainloop);
    return cute::make_tuple(get<0>(whole)(_, _, _, _, batch), get<1>(whole)(_, _, _, _, batch));
  }
};

template <class Config>
struct ConvOperands {
  static constexpr bool kConv = true;
  static_assert(!Config::kSwap, "the pixels of a convolution are the rows");
  using Element = typename Config::Element;
  using TileShape = TileShapeOf<Config>;
  using ConvTileShape = Shape<Int<Config::kTileM>, Int<Config::kTileN>, Shape<Int<Config::kTileK>>>;
  using Builder = conv::MainloopBuilder<Element, ConvTileShape, Shape<_1, _1, _1>, 0, conv::Pingpong, Config::kStages>;
  using Mainloop = typename Builder::Collective;
  using Problem = typename Mainloop::ProblemShape;
  struct Params {
    typename Mainloop::Params mainloop;
    Shape<int, int, Shape<int, int, int>, _1> mnkl;  // (NPQ, K, (C,S,R), 1)
  };

  static Problem problem(bolt_args const& args) {
    return Problem(cutlass::conv::Mode::kCrossCorrelation, {args.cn, args.h, args.w, args.c},
                   {args.cout, args.r, args.s, args.c}, {args.pad_top, args.pad_left},
                   {args.pad_bottom, args.pad_right}, {args.stride_h, args.stride_w},
                   {args.dilation_h, args.dilation_w}, 1);
  }

  static typename Mainloop::Arguments arguments(bolt_args const& args) {
    return {static_cast<Element const*>(args.a), static_cast<Element const*>(args.b)};
  }

  static Params to_params(bolt_args const& args) {
    auto const shape = problem(args);
    auto const [m, n, k, l] = Mainloop::get_problem_shape_MNKL(shape);
    return {Mainloop::to_underlying_arguments(shape, arguments(args), nullptr), make_shape(int(m), int(n), k, _1{})};
  }

  static int k_tiles(bolt_args const& args) { return (args.c + Config::kTileK - 1) / Config::kTileK * args.r * args.s; }

  static bool can_implement(bolt_args const& args) {
    constexpr int kMaxStride = 8;  // element stride of an im2col TMA descriptor
    auto const aligned = [](void const* pointer) { return reinterpret_cast<uintptr_t>(pointer) % kTmaBytes == 0; };
    if (args.groups > 1 || args.p <= 0 || args.q <= 0 || !aligned(args.a) || !aligned(args.b)) return false;
    if (args.stride_h > kMaxStride || args.stride_w > kMaxStride) return false;
    auto const shape = problem(args);
    if (shape.shape_C[1] != args.p || shape.shape_C[2] != args.q) return false;
    return Mainloop::can_implement(shape, arguments(args));
  }

  CUTLASS_DEVICE static auto inputs(Params const& params, int) {
    return Mainloop{}.load_init(params.mnkl, params.mainloop);
  }
};

}  // namespace bolt::split
