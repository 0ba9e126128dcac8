// Host side of the sm75/sm80-class GEMM: argument checks, parameters and launch of kernel::GemmWithFusedEpilogue.
#pragma once
#include "bolt/epilogue_2x.h"
#include "bolt/launch_2x.h"
#include "cutlass/gemm/kernel/default_gemm_with_broadcast.h"

namespace bolt {

template <class Kernel, class Chain>
struct Gemm2x {
  using ElementA = typename Kernel::ElementA;
  using ElementB = typename Kernel::ElementB;
  using ElementD = typename Kernel::ElementC;
  using Bias = typename Kernel::EpilogueOutputOp::ElementVector;
  static constexpr int kA = Kernel::kAlignmentA, kB = Kernel::kAlignmentB, kD = Kernel::kAlignmentC;

  static int check(bolt_args const& a) {
    if (a.m <= 0 || a.n <= 0 || a.k <= 0 || a.batch <= 0 || a.splits > 1) return BOLT_E_UNSUPPORTED;
    if (Kernel::can_implement(cutlass::gemm::GemmCoord(a.m, a.n, a.k)) != cutlass::Status::kSuccess)
      return BOLT_E_UNSUPPORTED;
    if (a.lda % kA || a.ldb % kB || a.ldd % kD || a.stride_a % kA || a.stride_b % kB || a.stride_d % kD)
      return BOLT_E_UNSUPPORTED;
    if (Chain::kSource && (a.ldsource % kD || a.stride_source % kD || !aligned(a.source, kD * sizeof(ElementD))))
      return BOLT_E_UNSUPPORTED;
    if (!aligned(a.a, kA * sizeof(ElementA)) || !aligned(a.b, kB * sizeof(ElementB)) ||
        !aligned(a.d, kD * sizeof(ElementD)) || (Chain::kBias && !aligned(a.bias, kD * sizeof(Bias))))
      return BOLT_E_UNSUPPORTED;
    if (ceil_div(a.n, Kernel::ThreadblockShape::kN) > 65535 || a.batch > 65535) return BOLT_E_UNSUPPORTED;
    return BOLT_OK;
  }

  static int run(bolt_args const& a, cudaStream_t stream) {
    if (int error = check(a)) return error;
    if ((Chain::kBias && !a.bias) || (Chain::kSource && !a.source)) return BOLT_E_UNSUPPORTED;
    auto mode = a.batch > 1 ? cutlass::gemm::GemmUniversalMode::kBatched : cutlass::gemm::GemmUniversalMode::kGemm;
    typename Kernel::Arguments arguments;
    arguments.mode = mode;
    arguments.problem_size = {a.m, a.n, a.k};
    arguments.batch_count = a.batch;
    arguments.batch_stride_D = a.stride_d;
    arguments.ptr_A = a.a;
    arguments.ptr_B = a.b;
    arguments.ptr_C = Chain::kSource ? a.source : nullptr;
    arguments.ptr_D = a.d;
    arguments.ptr_Vector = Chain::kBias ? const_cast<void*>(a.bias) : nullptr;
    arguments.ptr_Tensor = nullptr;
    arguments.batch_stride_A = a.stride_a;
    arguments.batch_stride_B = a.stride_b;
    arguments.batch_stride_C = a.stride_source;
    arguments.batch_stride_Vector = 0;
    arguments.batch_stride_Tensor = 0;
    arguments.lda = a.lda;
    arguments.ldb = a.ldb;
    arguments.ldc = Chain::kSource ? a.ldsource : a.ldd;
    arguments.ldd = a.ldd;
    arguments.ldr = 0;
    arguments.ldt = a.ldd;
    typename Kernel::Params params(arguments, a.sm_count, 1);
    auto tiles = params.grid_tiled_shape;
    params.swizzle_log_tile = swizzle_log(a.swizzle, tiles.n());
    int width = 1 << params.swizzle_log_tile;
    dim3 grid(tiles.m() * width, ceil_div(tiles.n(), width), tiles.k());
    return launch(entry_2x<Kernel>, grid, Kernel::kThreadCount, sizeof(typename Kernel::SharedStorage), a.pdl != 0,
                  stream, params);
  }

 private:
  static int ceil_div(int a, int b) { return (a + b - 1) / b; }
};

}  // namespace bolt
