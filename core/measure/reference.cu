// See reference.h. Nothing of CUTLASS and nothing of templates/ is used here.
#include "reference.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace {

enum { F16 = 0, BF16 = 1, F32 = 2, TF32 = 3, BOOL = 4 };

__device__ __forceinline__ float as_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float as_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float as_float(float x) { return x; }
__device__ __forceinline__ void assign(__half& to, float x) { to = __float2half_rn(x); }
__device__ __forceinline__ void assign(__nv_bfloat16& to, float x) { to = __float2bfloat16_rn(x); }
__device__ __forceinline__ void assign(float& to, float x) { to = x; }

__device__ __forceinline__ float load(void const* p, int dtype, int64_t i) {
  if (dtype == F16) return as_float(static_cast<__half const*>(p)[i]);
  if (dtype == BF16) return as_float(static_cast<__nv_bfloat16 const*>(p)[i]);
  return static_cast<float const*>(p)[i];
}

int blocks_for(int64_t n) {
  int64_t const wanted = (n + 255) / 256;
  return static_cast<int>(wanted < 8192 ? (wanted > 0 ? wanted : 1) : 8192);
}

int launched() { return static_cast<int>(cudaGetLastError()); }

// SplitMix64: a bijective mix of the counter, so equal (seed, index) give equal values on every GPU.
__device__ __forceinline__ float uniform(uint64_t seed, int64_t index) {
  uint64_t z = seed + 0x9E3779B97F4A7C15ull * (static_cast<uint64_t>(index) + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  z ^= z >> 31;
  return static_cast<float>(z >> 40) * (2.f / 16777215.f) - 1.f;
}

__global__ void fill_bools(unsigned char* p, int64_t n, uint64_t seed) {
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < n; i += int64_t(gridDim.x) * blockDim.x) {
    p[i] = uniform(seed, i) < 0.75f;
  }
}

template <class T>
__global__ void fill(T* p, int64_t n, uint64_t seed, float scale, bool tf32) {
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < n; i += int64_t(gridDim.x) * blockDim.x) {
    float x = uniform(seed, i) * scale;
    if (tf32) x = __uint_as_float(__float_as_uint(x) & 0xFFFFE000u);  // exact in tf32: no doubt about its rounding
    assign(p[i], x);
  }
}

// ---- product: one 64x64 tile of the output per block, 16 of the reduction at a time, 4x4 outputs per thread ----

constexpr int kTile = 64, kDepth = 16, kThreads = 256;

struct Shape {
  bolt_ref_problem p;
  int out_h, out_w;   // conv: output height and width
  int rows, columns;  // of one GEMM, or of one group of the conv
  int depth;          // reduction length
  int count;          // GEMMs in the batch, or groups
};

struct Row {  // where a row of A begins: GEMM row index, or the pixel of an output position
  int64_t base;
  int y, x;
  bool inside;
};

__device__ __forceinline__ Row row_of(Shape const& s, int row) {
  Row at{0, 0, 0, row < s.rows};
  if (!at.inside) return at;
  if (!s.p.is_conv) {
    at.base = row;
    return at;
  }
  int const per_image = s.out_h * s.out_w;
  int const image = row / per_image, position = row - image * per_image;
  int const oy = position / s.out_w, ox = position - oy * s.out_w;
  at.base = int64_t(image) * s.p.h * s.p.w;
  at.y = oy * s.p.stride_h - s.p.pad_top;
  at.x = ox * s.p.stride_w - s.p.pad_left;
  return at;
}

template <class T>
__device__ __forceinline__ float load_a(Shape const& s, T const* a, int z, Row const& at, int k) {
  if (!at.inside || k >= s.depth) return 0.f;
  if (!s.p.is_conv) {
    int64_t const base = int64_t(z) * s.rows * s.depth;
    return as_float(a[base + (s.p.a_col ? int64_t(k) * s.rows + at.base : at.base * s.depth + k)]);
  }
  int const channels = s.p.c / s.p.groups;
  int const tap = k / channels, channel = k - tap * channels;
  int const fy = tap / s.p.s, fx = tap - fy * s.p.s;
  int const y = at.y + fy * s.p.dilation_h, x = at.x + fx * s.p.dilation_w;
  if (y < 0 || y >= s.p.h || x < 0 || x >= s.p.w) return 0.f;
  return as_float(a[(at.base + int64_t(y) * s.p.w + x) * s.p.c + z * channels + channel]);
}

template <class T>
__device__ __forceinline__ float load_b(Shape const& s, T const* b, int z, int column, int k) {
  if (column >= s.columns || k >= s.depth) return 0.f;
  if (s.p.is_conv) return as_float(b[(int64_t(z) * s.columns + column) * s.depth + k]);
  int64_t const base = s.p.shared_b ? 0 : int64_t(z) * s.columns * s.depth;
  return as_float(b[base + (s.p.b_col ? int64_t(column) * s.depth + k : int64_t(k) * s.columns + column)]);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    product(Shape s, bolt_ref_ops ops, T const* a, T const* b, T const* bias, void const* source, float* out) {
  __shared__ float tile_a[kDepth][kTile + 4], tile_b[kDepth][kTile + 4];
  int const thread = threadIdx.x;
  int const lane_k = thread % kDepth, lane_row = thread / kDepth;  // loading: 16 x 16, four rows each
  int const ty = thread / 16, tx = thread % 16;                    // computing: rows 4 ty.., columns 4 tx..
  int const row0 = blockIdx.x * kTile, column0 = blockIdx.y * kTile;
  Row at[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) at[i] = row_of(s, row0 + lane_row + 16 * i);

  for (int z = blockIdx.z; z < s.count; z += gridDim.z) {
    float sum[4][4] = {};
    for (int k0 = 0; k0 < s.depth; k0 += kDepth) {
      __syncthreads();
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        tile_a[lane_k][lane_row + 16 * i] = load_a(s, a, z, at[i], k0 + lane_k);
        tile_b[lane_k][lane_row + 16 * i] = load_b(s, b, z, column0 + lane_row + 16 * i, k0 + lane_k);
      }
      __syncthreads();
#pragma unroll
      for (int k = 0; k < kDepth; ++k) {
        float4 const x = *reinterpret_cast<float4 const*>(&tile_a[k][4 * ty]);
        float4 const y = *reinterpret_cast<float4 const*>(&tile_b[k][4 * tx]);
        float const xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j) sum[i][j] = fmaf(xs[i], ys[j], sum[i][j]);
      }
    }
    int const all_columns = s.p.is_conv ? s.p.cout : s.columns;
    for (int i = 0; i < 4; ++i) {
      for (int j = 0; j < 4; ++j) {
        int const row = row0 + 4 * ty + i, column = column0 + 4 * tx + j;
        if (row >= s.rows || column >= s.columns) continue;
        int64_t const out_row = s.p.is_conv ? row : int64_t(z) * s.rows + row;
        int const out_column = s.p.is_conv ? z * s.columns + column : column;
        int64_t const index = out_row * all_columns + out_column;
        float const beta = bias ? as_float(bias[out_column]) : 0.f;
        float const rest = source ? load(source, s.p.out_dtype, index) : 0.f;
        out[index] = bolt_ref::all(ops, sum[i][j], beta, rest);
      }
    }
  }
}

template <class T>
__global__ void round_to(float const* in, T* out, int64_t n, bool tf32) {
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < n; i += int64_t(gridDim.x) * blockDim.x) {
    float x = in[i];
    if (tf32) x = __uint_as_float((__float_as_uint(x) + 0x1000u) & 0xFFFFE000u);  // half away from zero, as cvt.rna
    assign(out[i], x);
  }
}

// ---- comparison ----

__global__ void compare(void const* d, int dtype, float const* reference, int64_t n, bolt_ref_result* result) {
  double difference2 = 0, reference2 = 0;
  float worst = 0;
  unsigned long long bad = 0;
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < n; i += int64_t(gridDim.x) * blockDim.x) {
    float const x = load(d, dtype, i), y = reference[i];
    reference2 += double(y) * y;
    if (!isfinite(x)) {
      ++bad;
      continue;
    }
    float const difference = x - y;
    difference2 += double(difference) * difference;
    worst = fmaxf(worst, fabsf(difference));
  }
  for (int step = 16; step > 0; step /= 2) {
    difference2 += __shfl_down_sync(~0u, difference2, step);
    reference2 += __shfl_down_sync(~0u, reference2, step);
    worst = fmaxf(worst, __shfl_down_sync(~0u, worst, step));
    bad += __shfl_down_sync(~0u, bad, step);
  }
  if (threadIdx.x % 32 == 0) {
    atomicAdd(&result->difference2, difference2);
    atomicAdd(&result->reference2, reference2);
    atomicMax(&result->max_abs_bits, __float_as_uint(worst));
    if (bad) atomicAdd(&result->non_finite, bad);
  }
}

__global__ void guard(unsigned char const* base, int64_t count, int64_t stride, int64_t begin, int64_t end, int value,
                      unsigned long long* changed) {
  int64_t const per_block = begin + (stride - end);
  unsigned long long found = 0;
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < count * per_block;
       i += int64_t(gridDim.x) * blockDim.x) {
    int64_t const block = i / per_block, at = i - block * per_block;
    found += base[block * stride + (at < begin ? at : end + (at - begin))] != value;
  }
  if (found) atomicAdd(changed, found);
}

__global__ void digest(unsigned const* words, int64_t count, unsigned long long* sum) {
  unsigned long long mine = 0;
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < count; i += int64_t(gridDim.x) * blockDim.x)
    mine += bolt_ref_mixed(words[i], i);
  for (int step = 16; step; step /= 2) mine += __shfl_down_sync(0xFFFFFFFFu, mine, step);
  if (threadIdx.x % 32 == 0) atomicAdd(sum, mine);
}

// ---- elementwise: 16 bytes of the output per thread and step where the columns allow it ----

template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth) Vector {
  T x[kWidth];
};

template <class T, class B, int kWidth>
__global__ void elementwise(T* d, B const* bias, T const* source, int64_t vectors, int columns, bolt_ref_ops ops) {
  using V = Vector<T, kWidth>;
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < vectors; i += int64_t(gridDim.x) * blockDim.x) {
    V value = reinterpret_cast<V*>(d)[i], rest{};
    Vector<B, kWidth> shift{};
    if (source) rest = reinterpret_cast<V const*>(source)[i];
    if (bias) shift = reinterpret_cast<Vector<B, kWidth> const*>(bias)[i % (columns / kWidth)];
    float x[kWidth];
#pragma unroll
    for (int j = 0; j < kWidth; ++j) x[j] = as_float(value.x[j]);
    for (int step = 0; step < ops.count; ++step) {
#pragma unroll
      for (int j = 0; j < kWidth; ++j)
        x[j] = bolt_ref::one(ops.op[step], x[j], bias ? as_float(shift.x[j]) : 0.f, source ? as_float(rest.x[j]) : 0.f);
    }
#pragma unroll
    for (int j = 0; j < kWidth; ++j) assign(value.x[j], x[j]);
    reinterpret_cast<V*>(d)[i] = value;
  }
}

template <class T, class B>
int run_elementwise(void* d, void const* bias, void const* source, int64_t rows, int64_t columns,
                    bolt_ref_ops const& ops, cudaStream_t stream) {
  constexpr int kWidth = 16 / (sizeof(T) > sizeof(B) ? sizeof(T) : sizeof(B));
  auto* out = static_cast<T*>(d);
  auto* shift = static_cast<B const*>(bias);
  auto* rest = static_cast<T const*>(source);
  int64_t const n = rows * columns;
  if (columns % kWidth == 0) {
    int const blocks = blocks_for(n / kWidth);
    elementwise<T, B, kWidth><<<blocks, 256, 0, stream>>>(out, shift, rest, n / kWidth, int(columns), ops);
  } else {
    elementwise<T, B, 1><<<blocks_for(n), 256, 0, stream>>>(out, shift, rest, n, int(columns), ops);
  }
  return launched();
}

template <class T>
int run_product(Shape const& s, bolt_ref_ops const& ops, void const* a, void const* b, void const* bias,
                void const* source, float* out, cudaStream_t stream) {
  dim3 const grid((s.rows + kTile - 1) / kTile, (s.columns + kTile - 1) / kTile, s.count < 65535 ? s.count : 65535);
  product<T><<<grid, kThreads, 0, stream>>>(s, ops, static_cast<T const*>(a), static_cast<T const*>(b),
                                            static_cast<T const*>(bias), source, out);
  return launched();
}

}  // namespace

extern "C" int bolt_ref_fill(void* p, int dtype, int64_t n, uint64_t seed, float scale, cudaStream_t stream) {
  int const blocks = blocks_for(n);
  if (dtype == BOOL) {
    fill_bools<<<blocks, 256, 0, stream>>>(static_cast<unsigned char*>(p), n, seed);
  } else if (dtype == F16) {
    fill<<<blocks, 256, 0, stream>>>(static_cast<__half*>(p), n, seed, scale, false);
  } else if (dtype == BF16) {
    fill<<<blocks, 256, 0, stream>>>(static_cast<__nv_bfloat16*>(p), n, seed, scale, false);
  } else {
    fill<<<blocks, 256, 0, stream>>>(static_cast<float*>(p), n, seed, scale, dtype == TF32);
  }
  return launched();
}

extern "C" int bolt_ref_run(bolt_ref_problem const* problem, bolt_ref_ops const* ops, void const* a, void const* b,
                            void const* bias, void const* source, float* out, cudaStream_t stream) {
  bolt_ref_problem const& p = *problem;
  Shape s{};
  s.p = p;
  if (p.is_conv) {
    s.out_h = (p.h + p.pad_top + p.pad_bottom - (p.r - 1) * p.dilation_h - 1) / p.stride_h + 1;
    s.out_w = (p.w + p.pad_left + p.pad_right - (p.s - 1) * p.dilation_w - 1) / p.stride_w + 1;
    s.rows = p.cn * s.out_h * s.out_w;
    s.columns = p.cout / p.groups;
    s.depth = p.r * p.s * (p.c / p.groups);
    s.count = p.groups;
  } else {
    s.rows = p.m, s.columns = p.n, s.depth = p.k, s.count = p.batch;
  }
  if (p.dtype == F16) return run_product<__half>(s, *ops, a, b, bias, source, out, stream);
  if (p.dtype == BF16) return run_product<__nv_bfloat16>(s, *ops, a, b, bias, source, out, stream);
  return run_product<float>(s, *ops, a, b, bias, source, out, stream);
}

extern "C" int bolt_ref_round(float const* in, void* out, int dtype, int64_t n, cudaStream_t stream) {
  int const blocks = blocks_for(n);
  if (dtype == F16) {
    round_to<<<blocks, 256, 0, stream>>>(in, static_cast<__half*>(out), n, false);
  } else if (dtype == BF16) {
    round_to<<<blocks, 256, 0, stream>>>(in, static_cast<__nv_bfloat16*>(out), n, false);
  } else {
    round_to<<<blocks, 256, 0, stream>>>(in, static_cast<float*>(out), n, dtype == TF32);
  }
  return launched();
}

extern "C" int bolt_ref_compare(void const* d, int dtype, float const* reference, int64_t n, bolt_ref_result* result,
                                cudaStream_t stream) {
  cudaError_t const cleared = cudaMemsetAsync(result, 0, sizeof(*result), stream);
  if (cleared != cudaSuccess) return static_cast<int>(cleared);
  compare<<<blocks_for(n), 256, 0, stream>>>(d, dtype, reference, n, result);
  return launched();
}

extern "C" int bolt_ref_guard(void const* base, int64_t count, int64_t stride, int64_t begin, int64_t end, int value,
                              unsigned long long* changed, cudaStream_t stream) {
  cudaError_t const cleared = cudaMemsetAsync(changed, 0, sizeof(*changed), stream);
  if (cleared != cudaSuccess) return static_cast<int>(cleared);
  int64_t const bytes = count * (begin + stride - end);
  guard<<<blocks_for(bytes), 256, 0, stream>>>(static_cast<unsigned char const*>(base), count, stride, begin, end,
                                               value, changed);
  return launched();
}

extern "C" int bolt_ref_digest(void const* base, int64_t bytes, unsigned long long* sum, cudaStream_t stream) {
  cudaError_t const cleared = cudaMemsetAsync(sum, 0, sizeof(*sum), stream);
  if (cleared != cudaSuccess) return static_cast<int>(cleared);
  digest<<<blocks_for(bytes / 4), 256, 0, stream>>>(static_cast<unsigned const*>(base), bytes / 4, sum);
  return launched();
}

extern "C" int bolt_ref_elementwise(void* d, int out_dtype, void const* bias, int bias_dtype, void const* source,
                                    int64_t rows, int64_t columns, bolt_ref_ops const* ops, cudaStream_t stream) {
  auto const pick = [&](auto out) {
    using T = decltype(out);
    if (bias_dtype == F16) return run_elementwise<T, __half>(d, bias, source, rows, columns, *ops, stream);
    if (bias_dtype == BF16) return run_elementwise<T, __nv_bfloat16>(d, bias, source, rows, columns, *ops, stream);
    return run_elementwise<T, float>(d, bias, source, rows, columns, *ops, stream);
  };
  if (out_dtype == F16) return pick(__half{});
  if (out_dtype == BF16) return pick(__nv_bfloat16{});
  return pick(0.f);
}
