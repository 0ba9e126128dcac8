// Host side of the sm75/sm80-class GEMM: argument checks, parameters and launch of kernel::GemmWithFusedEpilogue.
#pragma once
#include "bolt/epilogue_2x.h"
#include "bolt/launch_2x.h"
#include "bolt/split_k.h"
#include "cutlass/gemm/kernel/default_gemm_with_broadcast.h"

namespace bolt {

template <class Kernel>
using WithSlicedK = cutlass::gemm::kernel::GemmWithFusedEpilogue<
    typename Kernel::Mma, typename SlicedK<typename Kernel::Epilogue>::type, typename Kernel::ThreadblockSwizzle>;

// `Chain`, `D`, `Bias` and `kD` (the access width) describe the final output. With kSplit the kernel itself writes fp32
// partial sums of each slice of K to the workspace and bolt/split_k.h finishes.
template <class Kernel, class Chain, class D, class Bias, int kD, bool kSplit>
struct Gemm2x {
  using ElementA = typename Kernel::ElementA;
  using ElementB = typename Kernel::ElementB;
  using Mode = cutlass::gemm::GemmUniversalMode;
  static constexpr int kA = Kernel::kAlignmentA, kB = Kernel::kAlignmentB;

  static int check(bolt_args const& a) {
    if (a.m <= 0 || a.n <= 0 || a.k <= 0 || a.batch <= 0) return BOLT_E_UNSUPPORTED;
    if (kSplit ? a.batch != 1 || a.splits < 1 || a.splits > 65535 : a.splits > 1) return BOLT_E_UNSUPPORTED;
    if (Kernel::can_implement(cutlass::gemm::GemmCoord(a.m, a.n, a.k)) != cutlass::Status::kSuccess || a.n % kD)
      return BOLT_E_UNSUPPORTED;
    if (a.lda % kA || a.ldb % kB || a.ldd % kD) return BOLT_E_UNSUPPORTED;
    if (a.batch > 1 && (a.stride_a % kA || a.stride_b % kB || a.stride_d % kD)) return BOLT_E_UNSUPPORTED;
    if (Chain::kSource && (a.ldsource % kD || (a.batch > 1 && a.stride_source % kD) || !aligned(a.source, kD * sizeof(D))))
      return BOLT_E_UNSUPPORTED;
    if (!aligned(a.a, kA * sizeof(ElementA)) || !aligned(a.b, kB * sizeof(ElementB)) || !aligned(a.d, kD * sizeof(D)) ||
        (Chain::kBias && !aligned(a.bias, kD * sizeof(Bias))))
      return BOLT_E_UNSUPPORTED;
    if (ceil_div(a.n, Kernel::ThreadblockShape::kN) > 65535 || a.batch > 65535) return BOLT_E_UNSUPPORTED;
    return BOLT_OK;
  }

  static size_t workspace(bolt_args const& a) {
    return kSplit && a.splits > 0 ? size_t(a.splits) * a.m * a.n * sizeof(float) : 0;
  }

  // `bias_stride`: elements between the biases of two batch entries, 0 when they share one.
  static int run(bolt_args const& a, cudaStream_t stream, int64_t bias_stride = 0) {
    if (int error = check(a)) return error;
    if ((Chain::kBias && !a.bias) || (Chain::kSource && !a.source)) return BOLT_E_UNSUPPORTED;
    if (kSplit && (!a.workspace || !aligned(a.workspace, 16) || a.workspace_bytes < workspace(a)))
      return BOLT_E_WORKSPACE;
    typename Kernel::Arguments arguments;
    arguments.mode = kSplit ? Mode::kGemmSplitKParallel : a.batch > 1 ? Mode::kBatched : Mode::kGemm;
    arguments.problem_size = {a.m, a.n, a.k};
    arguments.batch_count = kSplit ? a.splits : a.batch;
    arguments.batch_stride_D = kSplit ? int64_t(a.m) * a.n : a.stride_d;
    arguments.ptr_A = a.a;
    arguments.ptr_B = a.b;
    arguments.ptr_C = !kSplit && Chain::kSource ? a.source : nullptr;
    arguments.ptr_D = kSplit ? a.workspace : a.d;
    arguments.ptr_Vector = !kSplit && Chain::kBias ? const_cast<void*>(a.bias) : nullptr;
    arguments.ptr_Tensor = nullptr;
    arguments.batch_stride_A = a.stride_a;
    arguments.batch_stride_B = a.stride_b;
    arguments.batch_stride_C = a.stride_source;
    arguments.batch_stride_Vector = bias_stride;
    arguments.batch_stride_Tensor = 0;
    arguments.lda = a.lda;
    arguments.ldb = a.ldb;
    arguments.ldd = kSplit ? a.n : a.ldd;
    arguments.ldc = !kSplit && Chain::kSource ? a.ldsource : arguments.ldd;
    arguments.ldr = 0;
    arguments.ldt = arguments.ldd;
    typename Kernel::Params params(arguments, a.sm_count, 1);
    auto tiles = params.grid_tiled_shape;
    params.swizzle_log_tile = swizzle_log(a.swizzle, tiles.n());
    int width = 1 << params.swizzle_log_tile;
    dim3 grid(tiles.m() * width, ceil_div(tiles.n(), width), tiles.k());
    int error = launch(entry_2x<Kernel>, grid, Kernel::kThreadCount, sizeof(typename Kernel::SharedStorage),
                       a.pdl != 0, stream, params);
    if constexpr (kSplit) {
      if (error) return error;
      ReduceParams<D> reduce = {static_cast<float const*>(a.workspace), a.bias, a.source, static_cast<D*>(a.d),
                                tiles.k(), a.n, a.m, a.ldsource, a.ldd};
      return launch_reduce<Chain, Bias, D, kD>(reduce, a.pdl != 0, stream);
    }
    return error;
  }

 private:
  static int ceil_div(int a, int b) { return (a + b - 1) / b; }
};

}  // namespace bolt
