// Candidates with the kernels' C interface, run on the host. Each misbehaves in its own way.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

#include "bolt/abi.h"

typedef _Float16 half;

static int gemm(bolt_args const& g, float error = 0) {
  half const *a = (half const*)g.a, *b = (half const*)g.b, *bias = (half const*)g.bias;
  for (int i = 0; i < g.m; ++i)
    for (int j = 0; j < g.n; ++j) {
      float sum = bias ? float(bias[j]) : 0;
      for (int k = 0; k < g.k; ++k) sum += float(a[i * g.lda + k]) * float(b[j * g.ldb + k]);
      ((half*)g.d)[i * g.ldd + j] = half((sum > 0 ? sum : 0) + error);
    }
  return 0;
}

static int runs = 0, last_error = 0;
static void overwrite(void* p, size_t begin, int count) {
  for (int i = 0; i < count; ++i) ((unsigned char*)p)[begin + i] = 1;
}

#define KERNEL(NAME, CHECK, WORKSPACE, RUN)                                                                       \
  extern "C" int bolt_check_host_f16f32_##NAME##_al8x8x8_bias_relu(bolt_args const*) { return CHECK; }             \
  extern "C" size_t bolt_workspace_host_f16f32_##NAME##_al8x8x8_bias_relu(bolt_args const*) { return WORKSPACE; } \
  extern "C" int bolt_run_host_f16f32_##NAME##_al8x8x8_bias_relu(bolt_args const* g, cudaStream_t) { RUN; }

KERNEL(good, 0, 0, return gemm(*g))
KERNEL(chatty, 0, 0, puts("{\"done\": true}"); fflush(stdout); return gemm(*g))
KERNEL(refuses, BOLT_E_UNSUPPORTED, 0, return 0)
KERNEL(greedy, 0, size_t(1) << 40, return 0)
KERNEL(fails, 0, 0, last_error = BOLT_E_LAUNCH; return last_error)
KERNEL(reads_last_error, 0, 0, gemm(*g); return last_error)
KERNEL(wrong, 0, 0, return gemm(*g, 0.1f))
KERNEL(silent, 0, 0, return 0)
KERNEL(races, 0, 0, return gemm(*g, ++runs > 5 ? 0.1f : 0.f))
KERNEL(after, 0, 0, gemm(*g); overwrite(g->d, size_t(g->m) * g->n * 2, 2); return 0)
KERNEL(before, 0, 0, gemm(*g); overwrite(g->d, -1, 1); return 0)
KERNEL(scratch, 0, 512, gemm(*g); overwrite(g->workspace, 0, 512); return 0)
KERNEL(overrun, 0, 512, gemm(*g); overwrite(g->workspace, 0, 513); return 0)
KERNEL(underrun, 0, 512, gemm(*g); overwrite(g->workspace, -1, 1); return 0)
KERNEL(writes_a, 0, 0, gemm(*g); overwrite((void*)g->a, 5, 1); return 0)
KERNEL(neighbour, 0, 0, gemm(*g); overwrite((void*)g->b, -3, 1); return 0)
KERNEL(exits, 0, 0, exit(0); return 0)
KERNEL(forks, 0, 0, if (fork() == 0) return gemm(*g); _exit(9); return 0)
KERNEL(forks_beside, 0, 0, fork(); return gemm(*g))
KERNEL(crashes, 0, 0, raise(SIGSEGV); return 0)
KERNEL(aborts, 0, 0, fputs("assertion in a kernel\n", stderr); abort(); return 0)
KERNEL(hangs, 0, 0, for (volatile int i = 0;; i = i + 1) {} return 0)
KERNEL(breaks, 0, 0, setenv("BOLT_HOST_BROKEN", "CUDA_ERROR_ILLEGAL_ADDRESS", 1); return 0)
KERNEL(late, 0, 0, if (++runs > 4) raise(SIGKILL); return gemm(*g))
