// The CUDA runtime calls of a generated plan.cu over host memory, and template kernels as plain loops over bolt_args.
#pragma once
#include "emulator.h"
#include <algorithm>
// The emulator replaces what the kernels call, so it comes first.
#include "bolt/abi.h"
#include "bolt/activations.h"
#include "common.cuh"

extern "C" {
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? EMULATED_MAJOR
           : attribute == cudaDevAttrComputeCapabilityMinor ? 0 : 108;
  return cudaSuccess;
}
char const* cudaGetErrorString(cudaError_t) { return "an error"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaMalloc(void** p, size_t bytes) {
  *p = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(*p, 0xFF, bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* p) { return std::free(p), cudaSuccess; }
cudaError_t cudaMemcpy(void* to, void const* from, size_t bytes, cudaMemcpyKind) {
  return std::memcpy(to, from, bytes), cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, void const* from, size_t bytes, cudaMemcpyKind, cudaStream_t) {
  return std::memcpy(to, from, bytes), cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t) {
  return std::memset(p, value, bytes), cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return *stream = reinterpret_cast<cudaStream_t>(8), cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
#ifdef EMULATED_CAPTURE  // the caller's stream is being captured: steps are enqueued directly
  return *status = cudaStreamCaptureStatusActive, cudaSuccess;
#else
  return *status = cudaStreamCaptureStatusNone, cudaSuccess;
#endif
}
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  return emulator::captured = new emulator::Work, cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  *graph = reinterpret_cast<cudaGraph_t>(emulator::captured);
  return emulator::captured = nullptr, cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete reinterpret_cast<emulator::Work*>(graph), cudaSuccess; }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = reinterpret_cast<cudaGraphExec_t>(new emulator::Work(*reinterpret_cast<emulator::Work*>(graph)));
  return cudaSuccess;
}
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo*) {
  *reinterpret_cast<emulator::Work*>(exec) = *reinterpret_cast<emulator::Work*>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return delete reinterpret_cast<emulator::Work*>(exec), cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t) {
  for (auto& work : *reinterpret_cast<emulator::Work*>(exec)) work();
  return cudaSuccess;
}
}

namespace emulator {

template <class Chain, class T, class D>
void finish(bolt_args const& a, float total, long place, long source_place, int column) {
  float const bias = Chain::kBias ? bolt::op::to_float(static_cast<T const*>(a.bias)[column]) : 0.f;
  float const source = Chain::kSource ? bolt::op::to_float(static_cast<D const*>(a.source)[source_place]) : 0.f;
  static_cast<D*>(a.d)[place] = bolt::op::To<D>::from(Chain::apply(total, bias, source));
}

template <class Chain, class T, class D>
void gemm(bolt_args const& a, bool row_a, bool row_b) {
  for (int b = 0; b < a.batch; ++b)
    for (int i = 0; i < a.m; ++i)
      for (int j = 0; j < a.n; ++j) {
        T const* const x = static_cast<T const*>(a.a) + b * a.stride_a;
        T const* const w = static_cast<T const*>(a.b) + b * a.stride_b;
        float total = 0.f;
        for (int k = 0; k < a.k; ++k)
          total += bolt::op::to_float(x[row_a ? i * a.lda + k : k * a.lda + i]) *
                   bolt::op::to_float(w[row_b ? k * a.ldb + j : j * a.ldb + k]);
        finish<Chain, T, D>(a, total, b * a.stride_d + i * a.ldd + j, b * a.stride_source + i * a.ldsource + j, j);
      }
}

template <class Chain, class T, class D>
void conv(bolt_args const& a) {
  int const per_group = a.c / a.groups;
  for (int n = 0; n < a.cn; ++n)
    for (int p = 0; p < a.p; ++p)
      for (int q = 0; q < a.q; ++q)
        for (int k = 0; k < a.cout; ++k) {
          float total = 0.f;
          for (int r = 0; r < a.r; ++r)
            for (int s = 0; s < a.s; ++s) {
              int const h = p * a.stride_h - a.pad_top + r * a.dilation_h, w = q * a.stride_w - a.pad_left + s * a.dilation_w;
              if (h < 0 || h >= a.h || w < 0 || w >= a.w) continue;
              T const* const x = static_cast<T const*>(a.a) + ((long(n) * a.h + h) * a.w + w) * a.c + k / (a.cout / a.groups) * per_group;
              T const* const f = static_cast<T const*>(a.b) + ((long(k) * a.r + r) * a.s + s) * per_group;
              for (int c = 0; c < per_group; ++c) total += bolt::op::to_float(x[c]) * bolt::op::to_float(f[c]);
            }
          long const pixel = (long(n) * a.p + p) * a.q + q;
          finish<Chain, T, D>(a, total, pixel * (a.ldd ? a.ldd : a.cout) + k, pixel * a.cout + k, k);
        }
}

// Of one head of one query; kMask as in bolt/attention.cuh, causality from the kernel's name.
template <class T>
void attend(bolt_args const& a, int b, int h, int i, int mask, bool causal) {
  T const* const q = static_cast<T const*>(a.a) + b * a.q_batch + h * a.q_head + i * a.q_row;
  int const shared = h / (a.heads / a.kv_heads);
  T const* const k = static_cast<T const*>(a.b) + b * a.k_batch + shared * a.k_head;
  T const* const v = static_cast<T const*>(a.b1) + b * a.v_batch + shared * a.v_head;
  long const row = b * a.mask_batch + h * a.mask_head + i * a.mask_row;
  double total = 0;
  std::vector<double> sums(a.value_dim, 0.0);
  for (int j = 0; j < (causal ? std::min(i + 1, a.kv_length) : a.kv_length); ++j) {
    double score = 0;
    for (int d = 0; d < a.head_dim; ++d) score += bolt::op::to_float(q[d]) * bolt::op::to_float(k[j * a.k_row + d]);
    score *= a.scale;
    if (mask == 1) score += bolt::op::to_float(static_cast<T const*>(a.source)[row + j]);
    double weight = std::exp(score);
    if (mask > 1 && bool(static_cast<unsigned char const*>(a.source)[row + j]) == (mask % 2 == 1)) {
      weight = mask > 3 ? 1e-100 : 0;
    }
    total += weight;
    for (int d = 0; d < a.value_dim; ++d) sums[d] += weight * bolt::op::to_float(v[j * a.v_row + d]);
  }
  T* const out = static_cast<T*>(a.d) + b * a.out_batch + h * a.out_head + i * a.out_row;
  for (int d = 0; d < a.value_dim; ++d) out[d] = bolt::op::To<T>::from(total == 0 ? 0.f : float(sums[d] / total));
}

template <class T>
int run_attention(bolt_args const& a, int mask, bool causal) {
  if (!a.workspace || a.sm_count != 108) return BOLT_E_UNSUPPORTED;
  bolt_args const copy = a;
  return enqueue([=] {
    for (int b = 0; b < copy.batch; ++b)
      for (int h = 0; h < copy.heads; ++h)
        for (int i = 0; i < copy.q_length; ++i) attend<T>(copy, b, h, i, mask, causal);
  });
}

// A template kernel: checks what the plan hands over, then a convolution or a product.
template <class Chain, class T, class D>
int run_template(bolt_args const& a, bool row_a, bool row_b) {
  if (!a.workspace || a.workspace_bytes < 64 || a.sm_count != 108) return BOLT_E_UNSUPPORTED;
  bolt_args const copy = a;
  return enqueue([=] { copy.cn ? conv<Chain, T, D>(copy) : gemm<Chain, T, D>(copy, row_a, row_b); });
}

}  // namespace emulator

#define EMULATED_KERNEL(NAME, CHAIN, T, D, ROW_A, ROW_B)                                                \
  extern "C" int bolt_check_##NAME(bolt_args const* a) { return a->sm_count == 108 ? 0 : -1; }           \
  extern "C" size_t bolt_workspace_##NAME(bolt_args const*) { return 64; }                              \
  extern "C" int bolt_run_##NAME(bolt_args const* a, cudaStream_t) {                                    \
    return emulator::run_template<CHAIN, T, D>(*a, ROW_A, ROW_B);                                       \
  }

#define EMULATED_ATTENTION(NAME, T, MASK, CAUSAL)                                             \
  extern "C" int bolt_check_##NAME(bolt_args const* a) { return a->sm_count == 108 ? 0 : -1; } \
  extern "C" size_t bolt_workspace_##NAME(bolt_args const*) { return 64; }                     \
  extern "C" int bolt_run_##NAME(bolt_args const* a, cudaStream_t) {                           \
    return emulator::run_attention<T>(*a, MASK, CAUSAL);                                       \
  }
