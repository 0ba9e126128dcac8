// Grouped 1x1 convolution as a batched GEMM: batch entry g multiplies channels g*C/G.. of every pixel with the filters
// of group g, all within the NHWC tensors.
#pragma once
#include "bolt/sm80_gemm.h"

namespace bolt {

template <class Gemm>
struct GroupedPointwise {
  static int check(bolt_args const& a) {
    if (a.groups <= 1 || a.cn <= 0 || a.h <= 0 || a.w <= 0 || a.c <= 0 || a.cout <= 0 || a.c % a.groups ||
        a.cout % a.groups || a.r != 1 || a.s != 1 || a.stride_h != 1 || a.stride_w != 1 || a.p != a.h || a.q != a.w ||
        a.pad_top || a.pad_left || a.pad_bottom || a.pad_right || int64_t(a.cn) * a.h * a.w >= (int64_t(1) << 30))
      return BOLT_E_UNSUPPORTED;
    return Gemm::check(gemm(a));
  }
  static int run(bolt_args const& a, cudaStream_t stream) {
    if (int error = check(a)) return error;
    return Gemm::run(gemm(a), stream, a.cout / a.groups);
  }

 private:
  static bolt_args gemm(bolt_args const& a) {
    bolt_args g = a;
    g.m = a.cn * a.h * a.w;
    g.n = a.cout / a.groups;
    g.k = a.c / a.groups;
    g.batch = a.groups;
    g.lda = a.c;
    g.ldb = g.k;
    g.ldd = g.ldsource = a.cout;
    g.stride_a = g.k;
    g.stride_b = int64_t(g.n) * g.k;
    g.stride_d = g.stride_source = g.n;
    return g;
  }
};

}  // namespace bolt
