// Two products in one kernel for sm75 and later, over CUTLASS's example 13: GEMM -> GEMM and conv -> 1x1 conv.
//
// A block computes kM rows of the first product over all of N0, turns its accumulators into 16-bit operands, and
// multiplies them by B1 over all of N1. They stay in registers (each warp has whole rows, so it owns the operand it
// needs) or go through shared memory (warps may then split N too, which larger widths need).
//
// What the example's own can_implement does not say, and the rules in templates/sm80_b2b do:
//   - the second main loop runs over the tile's N0, not the problem's, and its loads of B1 past K1 are skipped without
//     clearing shared memory: N0 must fill the tile, or stale data is multiplied in;
//   - its loads take a partial K tile first, while the operand in registers begins with the first columns: N0 must be a
//     multiple of the K tile;
//   - the store maps rows of N1 / 8 accesses to the lanes of a warp: a count that does not divide 32 (N1 = 96) makes
//     lanes write rows of other warps.
//
// And what CUTLASS's epilogue for f16 from f32 accumulators gets wrong in accesses of eight elements
// (epilogue/warp/tile_iterator_tensor_op_mixed.h): each 32 columns are staged by one of two pointers, but a warp of
// neither 32 nor 64 columns keeps the first, so that every second 32 columns of D come out with neighbouring fours
// swapped. Such warps store four elements at a time: that epilogue has one pointer.
#pragma once
#include "bolt/activations.h"
#include "bolt/launch_2x.h"
#include "cutlass/array.h"
#include "cutlass/epilogue/thread/scale_type.h"
#include "cutlass/numeric_conversion.h"
#include "cutlass/epilogue/threadblock/default_epilogue_tensor_op.h"
#include "device/b2b_gemm.h"
#include "kernel/default_b2b_conv2d_fprop_sm75.h"
#include "kernel/default_b2b_conv2d_fprop_sm80.h"
#include "kernel/default_b2b_conv2d_fprop_smem_accumulator_sm75.h"
#include "kernel/default_b2b_conv2d_fprop_smem_accumulator_sm80.h"

namespace bolt {

// The first product's epilogue: example 13 hands it four accumulators, a scale that is not used and a bias.
template <class Chain, class Element, class Accumulator>
struct InnerOp {
  static_assert(!Chain::kSource, "the intermediate never lies in memory, nor does a tensor to join it");
  using ElementOutput = Element;
  using ElementAccumulator = Accumulator;
  using ElementCompute = Element;  // the type of the bias in memory; arithmetic is fp32
  static int const kCount = 4;
  static cutlass::epilogue::thread::ScaleType::Kind const kScale =
      cutlass::epilogue::thread::ScaleType::OnlyAlphaScaling;
  using FragmentOutput = cutlass::Array<Element, kCount>;
  using FragmentAccumulator = cutlass::Array<Accumulator, kCount>;
  using FragmentScaleBias = cutlass::Array<Element, kCount>;
  struct Params {};

  CUTLASS_HOST_DEVICE InnerOp(Params const&) {}
  CUTLASS_HOST_DEVICE bool is_source_needed() const { return false; }

  CUTLASS_HOST_DEVICE FragmentOutput operator()(FragmentAccumulator const& accumulator, FragmentScaleBias const&,
                                                FragmentScaleBias const& bias) const {
    cutlass::Array<float, kCount> result;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kCount; ++i) result[i] = Chain::apply(float(accumulator[i]), float(bias[i]), 0.f);
    return cutlass::NumericArrayConverter<Element, float, kCount>()(result);
  }

  CUTLASS_HOST_DEVICE FragmentOutput operator()(FragmentAccumulator const& accumulator) const {
    FragmentScaleBias none;
    none.clear();
    return (*this)(accumulator, none, none);
  }
};

// The second product's epilogue. Example 13 reads one tensor beside the accumulators: the bias with a row stride of 0,
// or the source. A chain with both is refused.
template <class Chain, class Element, class Accumulator, int kElements>
struct OuterOp {
  static_assert(!(Chain::kBias && Chain::kSource), "the kernel reads one operand beside the accumulators");
  using ElementOutput = Element;
  using ElementAccumulator = Accumulator;
  using ElementCompute = float;
  static int const kCount = kElements;
  using FragmentOutput = cutlass::Array<Element, kCount>;
  using FragmentSource = FragmentOutput;
  using FragmentAccumulator = cutlass::Array<Accumulator, kCount>;
  struct Params {};

  CUTLASS_HOST_DEVICE OuterOp(Params const&) {}
  CUTLASS_HOST_DEVICE bool is_source_needed() const { return Chain::kBias || Chain::kSource; }
  CUTLASS_HOST_DEVICE void set_k_partition(int, int) {}

  CUTLASS_HOST_DEVICE FragmentOutput operator()(FragmentAccumulator const& accumulator,
                                                FragmentSource const& read) const {
    cutlass::Array<float, kCount> result;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kCount; ++i) {
      float const x = float(read[i]);
      result[i] = Chain::apply(float(accumulator[i]), Chain::kBias ? x : 0.f, Chain::kSource ? x : 0.f);
    }
    return cutlass::NumericArrayConverter<Element, float, kCount>()(result);
  }

  CUTLASS_HOST_DEVICE FragmentOutput operator()(FragmentAccumulator const& accumulator) const {
    FragmentSource none;
    none.clear();
    return (*this)(accumulator, none);
  }
};

template <class Iterator>
struct HasTwoPointers : cutlass::platform::false_type {};
template <class Warp, class Instruction, class Element, bool kByte>
struct HasTwoPointers<cutlass::epilogue::warp::TileIteratorTensorOpMixed<Warp, Instruction, Element, 32, 16, 8, 8, kByte>>
    : cutlass::platform::true_type {};

// A Config gives Element, Accumulator, Inner and Outer (chains), Arch, kM, kN0, kN1, kK, Warp0, Warp1 (GemmShape),
// kInstructionK, kStages, kShared (the intermediate goes through shared memory) and kConv.
template <class Config>
struct B2b2x {
  using Element = typename Config::Element;
  using Accumulator = typename Config::Accumulator;
  using Inner = InnerOp<typename Config::Inner, Element, Accumulator>;
  static constexpr bool kPlainStaging = Config::Warp1::kN == 32 || Config::Warp1::kN == 64 ||
                                          !cutlass::platform::is_same<Element, cutlass::half_t>::value ||
                                          !cutlass::platform::is_same<Accumulator, float>::value;
  static constexpr int kStore = kPlainStaging ? 8 : 4;  // elements
  using Outer = OuterOp<typename Config::Outer, Element, Accumulator, kStore>;
  using Row = cutlass::layout::RowMajor;
  using Column = cutlass::layout::ColumnMajor;
  using Nhwc = cutlass::layout::TensorNHWC;
  using Block0 = cutlass::gemm::GemmShape<Config::kM, Config::kN0, Config::kK>;
  using Block1 = cutlass::gemm::GemmShape<Config::kM, Config::kN1, Config::kK>;
  using Instruction = cutlass::gemm::GemmShape<16, 8, Config::kInstructionK>;
  using Swizzle = cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<1>;
  static constexpr int kAccess = 8;
  static_assert(Config::kN0 % Config::kK == 0, "the second main loop takes whole K tiles of the intermediate");
  static_assert(kAccess * 32 % Config::kN1 == 0, "a row of the result is a number of accesses that divides a warp");

  template <bool kConv, class = void>
  struct Pick {
    using Kernel = typename cutlass::gemm::kernel::DefaultB2bGemm<
        Element, Row, kAccess, Element, Column, kAccess, Element, Row, Accumulator, cutlass::arch::OpClassTensorOp,
        typename Config::Arch, Block0, Block1, typename Config::Warp0, typename Config::Warp1, Instruction, Inner,
        Outer, Swizzle, Config::kStages, cutlass::arch::OpMultiplyAdd, Config::kShared>::B2bGemmKernel;
  };
  template <class Void>
  struct Pick<true, Void> {
    using Kernel = typename cutlass::conv::kernel::DefaultB2bConv2dFprop<
        Element, Nhwc, Element, Nhwc, Element, Nhwc, Accumulator, cutlass::arch::OpClassTensorOp,
        typename Config::Arch, Block0, Block1, typename Config::Warp0, typename Config::Warp1, Instruction, Inner,
        Outer, Swizzle, Config::kStages, cutlass::arch::OpMultiplyAdd, cutlass::conv::IteratorAlgorithm::kOptimized,
        Config::kShared>::Kernel;
  };
  using Kernel = typename Pick<Config::kConv>::Kernel;
  static constexpr int kSharedBytes = int(sizeof(typename Kernel::SharedStorage));
  static_assert(!HasTwoPointers<typename Kernel::Epilogue::WarpTileIterator>::value || Config::Warp1::kN == 32 ||
                    Config::Warp1::kN == 64,
                "the epilogue swaps columns of a warp of this width");

  static cutlass::conv::Conv2dProblemSize first(bolt_args const& a) {  // see problem() in bolt/sm80_conv.h
    return cutlass::conv::Conv2dProblemSize(a.cn, a.h, a.w, a.c, a.cout, a.r, a.s, a.p, a.q, a.pad_top, a.pad_left,
                                            a.stride_h, a.stride_w, a.dilation_h, a.dilation_w,
                                            cutlass::conv::Mode::kCrossCorrelation, 1, 1);
  }
  static cutlass::conv::Conv2dProblemSize second(bolt_args const& a) {
    return cutlass::conv::Conv2dProblemSize(a.cn, a.p, a.q, a.cout, a.n1, 1, 1, a.p, a.q, 0, 0, 1, 1, 1, 1,
                                            cutlass::conv::Mode::kCrossCorrelation, 1, 1);
  }

  static int check(bolt_args const& a) {
    int const n0 = Config::kConv ? a.cout : a.n;
    if (n0 != Config::kN0 || a.n1 != Config::kN1 || a.batch > 1 || a.ldb1 % kAccess || a.ldd % kAccess)
      return BOLT_E_UNSUPPORTED;
    constexpr size_t kBytes = kAccess * sizeof(Element);
    if (!a.a || !a.b || !a.b1 || !a.d || !aligned(a.a, kBytes) || !aligned(a.b, kBytes) || !aligned(a.b1, kBytes) ||
        !aligned(a.d, kBytes))
      return BOLT_E_UNSUPPORTED;
    if ((Config::Inner::kBias && (!a.bias || !aligned(a.bias, 4))) ||
        (Config::Outer::kBias && (!a.bias1 || !aligned(a.bias1, kBytes))) ||
        (Config::Outer::kSource && (!a.source1 || !aligned(a.source1, kBytes) || a.ldsource1 % kAccess)))
      return BOLT_E_UNSUPPORTED;
    if constexpr (Config::kConv) {
      if (a.groups > 1 || a.cn <= 0 || a.p <= 0 || a.q <= 0 || a.ldd != a.n1 || a.ldb1 != a.cout ||
          (Config::Outer::kSource && a.ldsource1 != a.n1))
        return BOLT_E_UNSUPPORTED;
      if (Kernel::B2bMma::IteratorA0::can_implement(first(a)) != cutlass::Status::kSuccess ||
          Kernel::B2bMma::IteratorB0::can_implement(first(a)) != cutlass::Status::kSuccess ||
          Kernel::B2bMma::IteratorB1::can_implement(second(a)) != cutlass::Status::kSuccess)
        return BOLT_E_UNSUPPORTED;
      constexpr int64_t kLimit = int64_t(1) << 31;  // the iterators count bytes in 32 bits
      if (first(a).activation_size() * int64_t(sizeof(Element)) >= kLimit ||
          second(a).output_size() * int64_t(sizeof(Element)) >= kLimit)
        return BOLT_E_UNSUPPORTED;
    } else if (a.m <= 0 || a.k <= 0 || a.k % kAccess || a.lda % kAccess || a.ldb % kAccess) {
      return BOLT_E_UNSUPPORTED;
    }
    return BOLT_OK;
  }

  static int run(bolt_args const& a, cudaStream_t stream) {
    if (int error = check(a)) return error;
    auto* const b0 = static_cast<Element*>(const_cast<void*>(a.b));
    auto* const b1 = static_cast<Element*>(const_cast<void*>(a.b1));
    auto* const activation = static_cast<Element*>(const_cast<void*>(a.a));
    auto* const result = static_cast<Element*>(a.d);
    // The bias is always loaded: a chain without one gets N0 values of B0, which it does not use.
    auto* const bias0 = Config::Inner::kBias ? static_cast<Element*>(const_cast<void*>(a.bias)) : b0;
    auto* const read = static_cast<Element*>(const_cast<void*>(Config::Outer::kBias ? a.bias1 : a.source1));
    int const read_stride = Config::Outer::kBias ? 0 : int(a.ldsource1);
    if constexpr (Config::kConv) {
      typename Kernel::Arguments arguments(
          first(a), second(a), {activation, Nhwc::packed({a.cn, a.h, a.w, a.c})},
          {b0, Nhwc::packed({a.cout, a.r, a.s, a.c})}, {nullptr, Nhwc()}, {nullptr, 0}, {bias0, 0},
          {b1, Nhwc::packed({a.n1, 1, 1, a.cout})},
          {read, Config::Outer::kBias ? Nhwc(typename Nhwc::Stride(0)) : Nhwc::packed({a.cn, a.p, a.q, a.n1})},
          {result, Nhwc::packed({a.cn, a.p, a.q, a.n1})}, {}, {});
      return start(typename Kernel::Params(arguments), a, stream);
    } else {
      cutlass::gemm::GemmCoord const size0(a.m, a.n, a.k), size1(a.m, a.n1, a.n);
      auto const tiles = Swizzle::get_tiled_shape(size0, {Config::kM, Config::kN0, Config::kK}, 1);
      return start(typename Kernel::Params(cutlass::gemm::GemmUniversalMode::kGemm, size0, size1, tiles,
                                           {activation, Row(int(a.lda))}, {b0, Column(int(a.ldb))}, {nullptr, Row(0)},
                                           {nullptr, 0}, {bias0, 0}, {b1, Column(int(a.ldb1))},
                                           {read, Row(read_stride)}, {result, Row(int(a.ldd))}, 0, 0, 0, 0, 0, 0, 0),
                   a, stream);
    }
  }

 private:
  static int start(typename Kernel::Params const& params, bolt_args const& a, cudaStream_t stream) {
    dim3 const grid = Swizzle::get_grid_shape(params.grid_tiled_shape);
    return launch(entry_2x<Kernel>, grid, Kernel::kThreadCount, kSharedBytes, a.pdl != 0, stream, params);
  }
};

}  // namespace bolt
