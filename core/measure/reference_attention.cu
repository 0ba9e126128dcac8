// The reference of fused attention; see reference.h. One block a query: two passes over the keys, float32 throughout, the
// scores computed twice and never rounded. Nothing of CUTLASS and nothing of templates/ is used here.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "reference.h"

namespace {

constexpr int kThreads = 128;
enum Mask { kNone = 0, kAdd = 1, kKeep = 2, kDrop = 3, kKeepLow = 4, kDropLow = 5 };
constexpr float kLow = -1e30f;

__device__ __forceinline__ float as_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float as_float(__nv_bfloat16 x) { return __bfloat162float(x); }

struct Place {  // of the query that a block computes
  int64_t batch, head, row;
  __device__ int64_t in(int64_t const (&strides)[3]) const {
    return batch * strides[0] + head * strides[1] + row * strides[2];
  }
};

// The score of one key; -infinity where the mask or the diagonal drops it. `q` and `k` begin at the row's elements.
template <class T>
__device__ float score(bolt_ref_attention const& p, float const* q, T const* k, void const* mask, Place const& at,
                       int column) {
  float const dropped = -INFINITY;
  if (p.causal && column > at.row) return dropped;
  float sum = 0.f;
  for (int d = 0; d < p.head_dim; ++d) sum = fmaf(q[d], as_float(k[d]), sum);
  sum *= p.scale;
  if (p.mask_kind == kNone) return sum;
  int64_t const place = at.in(p.mask) + column;
  if (p.mask_kind == kAdd) return sum + as_float(static_cast<T const*>(mask)[place]);
  bool const set = static_cast<unsigned char const*>(mask)[place] != 0;
  bool const keeps = p.mask_kind == kKeep || p.mask_kind == kKeepLow;
  return set == keeps ? sum : p.mask_kind >= kKeepLow ? kLow : dropped;
}

// Of the whole block; every thread gets the result.
template <class Combine>
__device__ float reduced(float mine, Combine combine) {
  __shared__ float values[kThreads];
  __syncthreads();
  values[threadIdx.x] = mine;
  for (int step = kThreads / 2; step > 0; step /= 2) {
    __syncthreads();
    if (threadIdx.x < step) values[threadIdx.x] = combine(values[threadIdx.x], values[threadIdx.x + step]);
  }
  __syncthreads();
  return values[0];
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    attend(bolt_ref_attention p, T const* q, T const* k, T const* v, void const* mask, float* out) {
  extern __shared__ float query[];  // head_dim elements
  __shared__ float weights[kThreads];
  int64_t const number = blockIdx.x;
  Place const at{number / p.q_length / p.heads, number / p.q_length % p.heads, number % p.q_length};
  Place const keys{at.batch, at.head / (p.heads / p.kv_heads), 0};
  k += keys.in(p.k), v += keys.in(p.v), q += at.in(p.q), out += at.in(p.out);
  for (int d = threadIdx.x; d < p.head_dim; d += kThreads) query[d] = as_float(q[d]);
  __syncthreads();

  float largest = -INFINITY;
  for (int j = threadIdx.x; j < p.kv_length; j += kThreads) {
    largest = fmaxf(largest, score(p, query, k + j * p.k[2], mask, at, j));
  }
  largest = reduced(largest, [](float a, float b) { return fmaxf(a, b); });
  float const subtracted = largest == -INFINITY ? 0.f : largest;

  float total = 0.f;
  for (int d0 = 0; d0 < p.value_dim; d0 += kThreads) {  // each thread one element of the result
    int const d = d0 + threadIdx.x;
    float sum = 0.f;
    for (int j0 = 0; j0 < p.kv_length; j0 += kThreads) {
      int const j = j0 + threadIdx.x;
      float weight = 0.f;
      if (j < p.kv_length) weight = expf(score(p, query, k + j * p.k[2], mask, at, j) - subtracted);
      if (d0 == 0) total += weight;
      __syncthreads();
      weights[threadIdx.x] = weight;
      __syncthreads();
      if (d >= p.value_dim) continue;
      for (int i = 0; i < kThreads && j0 + i < p.kv_length; ++i) {
        sum = fmaf(weights[i], as_float(v[(j0 + i) * p.v[2] + d]), sum);
      }
    }
    if (d0 == 0) total = reduced(total, [](float a, float b) { return a + b; });
    if (d < p.value_dim) out[d] = total == 0.f ? 0.f : sum / total;
  }
}

template <class T>
int run(bolt_ref_attention const& p, void const* q, void const* k, void const* v, void const* mask, float* out,
        cudaStream_t stream) {
  unsigned const queries = static_cast<unsigned>(int64_t(p.batch) * p.heads * p.q_length);
  attend<T><<<queries, kThreads, p.head_dim * sizeof(float), stream>>>(
      p, static_cast<T const*>(q), static_cast<T const*>(k), static_cast<T const*>(v), mask, out);
  return static_cast<int>(cudaGetLastError());
}

}  // namespace

extern "C" int bolt_ref_attend(bolt_ref_attention const* problem, void const* q, void const* k, void const* v,
                               void const* mask, float* out, cudaStream_t stream) {
  return problem->dtype == 0 ? run<__half>(*problem, q, k, v, mask, out, stream)
                             : run<__nv_bfloat16>(*problem, q, k, v, mask, out, stream);
}
