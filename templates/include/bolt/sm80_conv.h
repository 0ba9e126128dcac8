// Host side of the sm75/sm80-class NHWC forward convolution: problem size, checks, launch of
// kernel::ImplicitGemmConvolutionWithFusedEpilogue.
#pragma once
#include "bolt/epilogue_2x.h"
#include "bolt/launch_2x.h"
#include "bolt/split_k.h"
#include "cutlass/conv/kernel/default_conv2d_fprop_with_broadcast.h"

namespace bolt {

template <class Kernel>
using ConvWithSlicedK = cutlass::conv::kernel::ImplicitGemmConvolutionWithFusedEpilogue<
    typename Kernel::Mma, typename SlicedK<typename Kernel::Epilogue>::type, typename Kernel::ThreadblockSwizzle,
    cutlass::conv::Operator::kFprop>;

// `Chain`, `D`, `Bias` and `kD` (the access width) describe the final output. With kSplit the kernel itself writes fp32
// partial sums of each slice of C to the workspace and bolt/split_k.h finishes.
template <class Kernel, class Chain, class D, class Bias, int kD, bool kSplit>
struct Conv2x {
  using Iterator = typename Kernel::Mma::IteratorA;
  using ElementA = typename Kernel::ElementA;
  using ElementB = typename Kernel::ElementB;
  using Nhwc = cutlass::layout::TensorNHWC;
  static constexpr int kA = Iterator::AccessType::kElements;
  using Stored = typename Kernel::ElementC;  // D, or float with kSplit
  static constexpr auto kAlgorithm = Kernel::kIteratorAlgorithm;

  // CUTLASS keeps one pad per axis. The top and left pads place the window; the bottom and right ones only decide P
  // and Q, which are given here, and the iterators predicate every read past the input, so any padding is exact.
  static cutlass::conv::Conv2dProblemSize problem(bolt_args const& a) {
    return cutlass::conv::Conv2dProblemSize(a.cn, a.h, a.w, a.c, a.cout, a.r, a.s, a.p, a.q, a.pad_top, a.pad_left,
                                            a.stride_h, a.stride_w, a.dilation_h, a.dilation_w,
                                            cutlass::conv::Mode::kCrossCorrelation, kSplit ? a.splits : 1, 1);
  }

  // Elements from one output pixel to the next.
  static int64_t pitch(bolt_args const& a) { return a.ldd ? a.ldd : a.cout; }

  static int check(bolt_args const& a) {
    if (a.cn <= 0 || a.h <= 0 || a.w <= 0 || a.c <= 0 || a.cout <= 0 || a.r <= 0 || a.s <= 0 || a.p <= 0 || a.q <= 0)
      return BOLT_E_UNSUPPORTED;
    if (a.pad_top < 0 || a.pad_left < 0 || a.pad_bottom < 0 || a.pad_right < 0 || a.stride_h <= 0 || a.stride_w <= 0 ||
        a.dilation_h <= 0 || a.dilation_w <= 0 || a.groups != 1)
      return BOLT_E_UNSUPPORTED;
    if (kSplit ? a.splits < 1 || a.splits > 65535 : a.splits > 1) return BOLT_E_UNSUPPORTED;
    if (a.p != extent(a.h, a.pad_top + a.pad_bottom, a.r, a.dilation_h, a.stride_h) ||
        a.q != extent(a.w, a.pad_left + a.pad_right, a.s, a.dilation_w, a.stride_w))
      return BOLT_E_UNSUPPORTED;
    auto size = problem(a);
    if (Iterator::can_implement(size) != cutlass::Status::kSuccess ||
        Kernel::Mma::IteratorB::can_implement(size) != cutlass::Status::kSuccess || a.cout % kD ||
        pitch(a) < a.cout || pitch(a) % kD)
      return BOLT_E_UNSUPPORTED;
    // The iterators count bytes in 32 bits.
    constexpr int64_t kLimit = int64_t(1) << 31;
    if (size.activation_size() * int64_t(sizeof(ElementA)) >= kLimit ||
        size.filter_size() * int64_t(sizeof(ElementB)) >= kLimit ||
        size.output_size() * int64_t(sizeof(Stored)) >= kLimit ||
        int64_t(a.cn) * a.p * a.q * pitch(a) * int64_t(sizeof(D)) >= kLimit)
      return BOLT_E_UNSUPPORTED;
    if (!aligned(a.a, kA * sizeof(ElementA)) || !aligned(a.b, kA * sizeof(ElementB)) ||
        !aligned(a.d, kD * sizeof(D)) || (Chain::kBias && !aligned(a.bias, kD * sizeof(Bias))) ||
        (Chain::kSource && !aligned(a.source, kD * sizeof(D))))
      return BOLT_E_UNSUPPORTED;
    if ((a.cout + Kernel::ThreadblockShape::kN - 1) / Kernel::ThreadblockShape::kN > 65535) return BOLT_E_UNSUPPORTED;
    return BOLT_OK;
  }

  static size_t workspace(bolt_args const& a) {
    return kSplit && a.splits > 0 ? size_t(a.splits) * a.cn * a.p * a.q * a.cout * sizeof(float) : 0;
  }

  static int run(bolt_args const& a, cudaStream_t stream) {
    if (int error = check(a)) return error;
    if ((Chain::kBias && !a.bias) || (Chain::kSource && !a.source)) return BOLT_E_UNSUPPORTED;
    if (kSplit && (!a.workspace || !aligned(a.workspace, 16) || a.workspace_bytes < workspace(a)))
      return BOLT_E_WORKSPACE;
    auto size = problem(a);
    auto packed = Nhwc::packed({a.cn, a.p, a.q, a.cout});
    auto output = kSplit ? packed : Nhwc::packed({a.cn, a.p, a.q, int(pitch(a))});
    auto* source = static_cast<Stored*>(const_cast<void*>(!kSplit && Chain::kSource ? a.source : nullptr));
    typename Kernel::Arguments arguments(
        size, {static_cast<ElementA*>(const_cast<void*>(a.a)), Nhwc::packed({a.cn, a.h, a.w, a.c})},
        {static_cast<ElementB*>(const_cast<void*>(a.b)), Nhwc::packed({a.cout, a.r, a.s, a.c})}, {source, packed},
        {static_cast<Stored*>(kSplit ? a.workspace : a.d), output}, {},
        kSplit ? cutlass::conv::SplitKMode::kParallel : cutlass::conv::SplitKMode::kSerial,
        !kSplit && Chain::kBias ? const_cast<void*>(a.bias) : nullptr, nullptr, 0, a.cout);
    typename Kernel::Params params(arguments);
    // The kernel counts K iterations as for the general iterators; the few-channel ones pack several taps in one.
    params.gemm_k_iterations = cutlass::conv::implicit_gemm_k_iterations(
        cutlass::conv::Operator::kFprop, Kernel::ThreadblockShape::kK, size, kAlgorithm);
    auto tiles = params.grid_tiled_shape;
    params.swizzle_log_tile = swizzle_log(a.swizzle, tiles.n());
    int width = 1 << params.swizzle_log_tile;
    dim3 grid(tiles.m() * width, (tiles.n() + width - 1) / width, tiles.k());
    int error = launch(entry_2x<Kernel>, grid, Kernel::kThreadCount, sizeof(typename Kernel::SharedStorage),
                       a.pdl != 0, stream, params);
    if constexpr (kSplit) {
      if (error) return error;
      ReduceParams<D> reduce = {static_cast<float const*>(a.workspace), a.bias, a.source, static_cast<D*>(a.d),
                                tiles.k(), a.cout, int64_t(a.cn) * a.p * a.q, a.cout, pitch(a)};
      return launch_reduce<Chain, Bias, D, kD>(reduce, a.pdl != 0, stream);
    }
    return error;
  }

 private:
  static int extent(int size, int pads, int taps, int dilation, int stride) {
    int span = size + pads - (taps - 1) * dilation - 1;
    return span < 0 ? 0 : span / stride + 1;
  }
};

}  // namespace bolt
