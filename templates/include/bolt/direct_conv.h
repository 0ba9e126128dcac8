// Direct NHWC convolution on the ordinary (fp32 FMA) units: depthwise and grouped ones, and any shape or alignment that
// the tensor core families refuse. Activations NHWC, filters KRSC with C/groups channels, fp32 accumulation.
#pragma once
#include "bolt/activations.h"
#include "bolt/launch_2x.h"
#include "cutlass/array.h"
#include "cutlass/numeric_conversion.h"
#include "cutlass/numeric_types.h"

namespace bolt {

struct DirectParams {
  void const *x, *weight, *bias, *source;
  void* y;
  int n, h, w, c, k, p, q, r, s;
  int pad_top, pad_left, stride_h, stride_w, dilation_h, dilation_w, groups;
};

template <class T, int kCount>
CUTLASS_DEVICE void load_as_float(float (&to)[kCount], T const* from) {
  auto raw = *reinterpret_cast<cutlass::AlignedArray<T, kCount> const*>(from);
  CUTLASS_PRAGMA_UNROLL
  for (int i = 0; i < kCount; ++i) to[i] = float(raw[i]);
}

// Reads kCount floats at an address that is a multiple of kCount floats, 16 bytes at a time.
template <int kCount>
CUTLASS_DEVICE void load_shared(float (&to)[kCount], float const* from) {
  constexpr int kWide = kCount % 4 == 0 ? 4 : kCount % 2 == 0 ? 2 : 1;
  CUTLASS_PRAGMA_UNROLL
  for (int i = 0; i < kCount; i += kWide) {
    auto part = *reinterpret_cast<cutlass::AlignedArray<float, kWide> const*>(from + i);
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kWide; ++j) to[i + j] = part[j];
  }
}

// y[0..kCount) = chain(accumulator) for channels k.. of one pixel; `offset` is the element's place in y.
template <class Chain, class T, class D, int kCount>
CUTLASS_DEVICE void store_chain(DirectParams const& a, float const (&accumulator)[kCount], int64_t offset, int k) {
  float bias[kCount] = {}, source[kCount] = {};
  if constexpr (Chain::kBias) load_as_float(bias, static_cast<T const*>(a.bias) + k);
  if constexpr (Chain::kSource) load_as_float(source, static_cast<D const*>(a.source) + offset);
  cutlass::AlignedArray<D, kCount> result;
  CUTLASS_PRAGMA_UNROLL
  for (int i = 0; i < kCount; ++i) result[i] = D(Chain::apply(accumulator[i], bias[i], source[i]));
  *reinterpret_cast<cutlass::AlignedArray<D, kCount>*>(static_cast<D*>(a.y) + offset) = result;
}

// Depthwise, channel multiplier 1. A thread owns kVec channels of kPixels neighbouring outputs of one row; the block's
// filters lie in shared memory, tap by tap. With kS > 0 the width and stride of the window are known, dilation along W
// is 1, and a row of inputs is read once for all outputs of the thread.
template <class Chain, class T, class D, int kVec, int kPixels, int kBlockC, int kBlockP, int kS, int kStrideW>
struct Depthwise {
  static constexpr int kThreads = kBlockC * kBlockP;
  static constexpr int kChannels = kBlockC * kVec;
  static constexpr int kInputs = kS ? (kPixels - 1) * kStrideW + kS : 1;

  static size_t shared_bytes(bolt_args const& a) { return size_t(a.r) * a.s * kChannels * sizeof(T); }
  static dim3 grid(bolt_args const& a) {
    int64_t strips = int64_t(a.cn) * a.p * ((a.q + kPixels - 1) / kPixels);
    return dim3(unsigned((strips + kBlockP - 1) / kBlockP), (a.c + kChannels - 1) / kChannels);
  }
  static bool serves(bolt_args const& a) {
    if (a.groups != a.c || a.cout != a.c || a.c % kVec) return false;
    return !kS || (a.s == kS && a.stride_w == kStrideW && a.dilation_w == 1);
  }

  CUTLASS_DEVICE static void run(DirectParams const& a) {
    extern __shared__ __align__(16) int shared_storage[];
    T* filters = reinterpret_cast<T*>(shared_storage);
    int const taps = a.r * a.s, first = blockIdx.y * kChannels;
    for (int i = threadIdx.x; i < kChannels * taps; i += kThreads) {
      int channel = i / taps, tap = i % taps;
      filters[tap * kChannels + channel] =
          first + channel < a.k ? static_cast<T const*>(a.weight)[int64_t(first + channel) * taps + tap] : T(0);
    }
    __syncthreads();

    int const lane = threadIdx.x % kBlockC, channel = first + lane * kVec;
    int const strips_q = (a.q + kPixels - 1) / kPixels;
    int const strip = blockIdx.x * kBlockP + threadIdx.x / kBlockC;
    int const q0 = strip % strips_q * kPixels, row = strip / strips_q, p = row % a.p, n = row / a.p;
    if (n >= a.n || channel >= a.c) return;
    T const* x = static_cast<T const*>(a.x) + int64_t(n) * a.h * a.w * a.c + channel;

    float sum[kPixels][kVec] = {};
    for (int r = 0; r < a.r; ++r) {
      int const h = p * a.stride_h - a.pad_top + r * a.dilation_h;
      if (h < 0 || h >= a.h) continue;
      T const* line = x + int64_t(h) * a.w * a.c;
      T const* taps_of_row = filters + r * a.s * kChannels + lane * kVec;
      if constexpr (kS > 0) {
        float window[kInputs][kVec];
        int const w0 = q0 * kStrideW - a.pad_left;
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kInputs; ++i) load_or_zero(window[i], line, w0 + i, a);
        CUTLASS_PRAGMA_UNROLL
        for (int s = 0; s < kS; ++s) {
          float weight[kVec];
          load_as_float(weight, taps_of_row + s * kChannels);
          CUTLASS_PRAGMA_UNROLL
          for (int j = 0; j < kPixels; ++j) multiply_add(sum[j], window[j * kStrideW + s], weight);
        }
      } else {
        for (int s = 0; s < a.s; ++s) {
          float weight[kVec];
          load_as_float(weight, taps_of_row + s * kChannels);
          CUTLASS_PRAGMA_UNROLL
          for (int j = 0; j < kPixels; ++j) {
            float value[kVec];
            load_or_zero(value, line, (q0 + j) * a.stride_w - a.pad_left + s * a.dilation_w, a);
            multiply_add(sum[j], value, weight);
          }
        }
      }
    }
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kPixels; ++j)
      if (q0 + j < a.q)
        store_chain<Chain, T, D>(a, sum[j], ((int64_t(n) * a.p + p) * a.q + q0 + j) * a.k + channel, channel);
  }

 private:
  CUTLASS_DEVICE static void load_or_zero(float (&to)[kVec], T const* line, int w, DirectParams const& a) {
    if (w >= 0 && w < a.w) {
      load_as_float(to, line + int64_t(w) * a.c);
    } else {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kVec; ++i) to[i] = 0.f;
    }
  }
  CUTLASS_DEVICE static void multiply_add(float (&sum)[kVec], float const (&a)[kVec], float const (&b)[kVec]) {
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kVec; ++i) sum[i] += a[i] * b[i];
  }
};

// Any groups: an implicit GEMM on FMA units. A block computes kTileP pixels x kTileK filters of one group, stepping
// through R*S*C/groups by kDepth; a thread holds kMicroP x kMicroK accumulators. kVec elements of a channel run are read
// at a time (kVec divides C/groups), kVecOut stored (kVecOut divides K/groups).
template <class Chain, class T, class D, int kVec, int kVecOut, int kTileP, int kTileK, int kMicroP, int kMicroK>
struct Grouped {
  static constexpr int kDepth = 16;
  static constexpr int kThreads = (kTileP / kMicroP) * (kTileK / kMicroK);
  static constexpr int kPad = 4;  // keeps rows 16-byte aligned and spreads the transposing stores over banks
  static_assert(kMicroK % kVecOut == 0 && kDepth % kVec == 0, "vectors must tile the block");

  struct alignas(16) Shared {
    float x[kDepth][kTileP + kPad];
    float weight[kDepth][kTileK + kPad];
    int64_t image[kTileP];
    int h0[kTileP], w0[kTileP];
  };

  static size_t shared_bytes(bolt_args const&) { return sizeof(Shared); }
  static dim3 grid(bolt_args const& a) {
    int64_t pixels = int64_t(a.cn) * a.p * a.q;
    return dim3(unsigned((pixels + kTileP - 1) / kTileP), (a.cout / a.groups + kTileK - 1) / kTileK, a.groups);
  }
  static bool serves(bolt_args const& a) {
    return a.c % a.groups == 0 && a.cout % a.groups == 0 && a.c / a.groups % kVec == 0 &&
           a.cout / a.groups % kVecOut == 0;
  }

  CUTLASS_DEVICE static void run(DirectParams const& a) {
    extern __shared__ __align__(16) int shared_storage[];
    Shared& shared = *reinterpret_cast<Shared*>(shared_storage);
    int const channels = a.c / a.groups, filters = a.k / a.groups, group = blockIdx.z;
    int const depth = a.r * a.s * channels, pixels = a.n * a.p * a.q;
    int const pixel0 = blockIdx.x * kTileP, filter0 = blockIdx.y * kTileK;
    for (int i = threadIdx.x; i < kTileP; i += kThreads) {
      int const pixel = pixel0 + i, q = pixel % a.q, p = pixel / a.q % a.p, n = pixel / a.q / a.p;
      shared.image[i] = int64_t(n) * a.h * a.w * a.c + group * channels;
      // A pixel past the end gets a row that no input has.
      shared.h0[i] = pixel < pixels ? p * a.stride_h - a.pad_top : -(1 << 30);
      shared.w0[i] = q * a.stride_w - a.pad_left;
    }
    __syncthreads();

    int const column = threadIdx.x % (kTileK / kMicroK) * kMicroK, line = threadIdx.x / (kTileK / kMicroK) * kMicroP;
    float sum[kMicroP][kMicroK] = {};
    for (int step = 0; step < depth; step += kDepth) {
      load_x(shared, a, step, depth, channels);
      load_weight(shared, a, step, depth, int64_t(group) * filters + filter0, filters - filter0);
      __syncthreads();
      CUTLASS_PRAGMA_UNROLL
      for (int d = 0; d < kDepth; ++d) {
        float x[kMicroP], weight[kMicroK];
        load_shared(x, shared.x[d] + line);
        load_shared(weight, shared.weight[d] + column);
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kMicroP; ++i)
          CUTLASS_PRAGMA_UNROLL
          for (int j = 0; j < kMicroK; ++j) sum[i][j] += x[i] * weight[j];
      }
      __syncthreads();
    }

    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kMicroP; ++i) {
      int const pixel = pixel0 + line + i;
      CUTLASS_PRAGMA_UNROLL
      for (int j = 0; j < kMicroK; j += kVecOut) {
        if (pixel >= pixels || filter0 + column + j >= filters) continue;
        float part[kVecOut];
        CUTLASS_PRAGMA_UNROLL
        for (int v = 0; v < kVecOut; ++v) part[v] = sum[i][j + v];
        int const k = group * filters + filter0 + column + j;
        store_chain<Chain, T, D>(a, part, int64_t(pixel) * a.k + k, k);
      }
    }
  }

 private:
  CUTLASS_DEVICE static void load_x(Shared& shared, DirectParams const& a, int step, int depth, int channels) {
    for (int i = threadIdx.x; i < kTileP * kDepth / kVec; i += kThreads) {
      int const pixel = i / (kDepth / kVec), d = i % (kDepth / kVec) * kVec, place = step + d;
      int const tap = place / channels, channel = place % channels;
      int const h = shared.h0[pixel] + tap / a.s * a.dilation_h, w = shared.w0[pixel] + tap % a.s * a.dilation_w;
      float value[kVec] = {};
      if (place < depth && h >= 0 && h < a.h && w >= 0 && w < a.w)
        load_as_float(value, static_cast<T const*>(a.x) + shared.image[pixel] + (int64_t(h) * a.w + w) * a.c + channel);
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < kVec; ++v) shared.x[d + v][pixel] = value[v];
    }
  }
  CUTLASS_DEVICE static void load_weight(Shared& shared, DirectParams const& a, int step, int depth, int64_t filter,
                                         int filters_left) {
    for (int i = threadIdx.x; i < kTileK * kDepth / kVec; i += kThreads) {
      int const f = i / (kDepth / kVec), d = i % (kDepth / kVec) * kVec;
      float value[kVec] = {};
      if (step + d < depth && f < filters_left)
        load_as_float(value, static_cast<T const*>(a.weight) + (filter + f) * depth + step + d);
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < kVec; ++v) shared.weight[d + v][f] = value[v];
    }
  }
};

template <class Method>
static __global__ void __launch_bounds__(Method::kThreads) direct_entry(DirectParams params) {
  grid_dependency();
  Method::run(params);
}

template <class Method, class Chain, class T, class D, int kIn, int kOut>
struct DirectConv {
  static int check(bolt_args const& a) {
    if (a.cn <= 0 || a.h <= 0 || a.w <= 0 || a.c <= 0 || a.cout <= 0 || a.r <= 0 || a.s <= 0 || a.p <= 0 || a.q <= 0 ||
        a.groups <= 0 || a.groups > 65535 || a.splits > 1 || a.stride_h <= 0 || a.stride_w <= 0 || a.dilation_h <= 0 ||
        a.dilation_w <= 0 || a.pad_top < 0 || a.pad_left < 0 || a.pad_bottom < 0 || a.pad_right < 0)
      return BOLT_E_UNSUPPORTED;
    if (a.p != extent(a.h, a.pad_top + a.pad_bottom, a.r, a.dilation_h, a.stride_h) ||
        a.q != extent(a.w, a.pad_left + a.pad_right, a.s, a.dilation_w, a.stride_w))
      return BOLT_E_UNSUPPORTED;
    if (int64_t(a.cn) * a.p * a.q >= (int64_t(1) << 30) || !Method::serves(a)) return BOLT_E_UNSUPPORTED;
    if (Method::shared_bytes(a) > kSharedLimit || Method::grid(a).y > 65535) return BOLT_E_UNSUPPORTED;
    if (!aligned(a.a, kIn * sizeof(T)) || !aligned(a.b, kIn * sizeof(T)) || !aligned(a.d, kOut * sizeof(D)) ||
        (Chain::kBias && !aligned(a.bias, kOut * sizeof(T))) ||
        (Chain::kSource && !aligned(a.source, kOut * sizeof(D))))
      return BOLT_E_UNSUPPORTED;
    return BOLT_OK;
  }

  static int run(bolt_args const& a, cudaStream_t stream) {
    if (int error = check(a)) return error;
    if ((Chain::kBias && !a.bias) || (Chain::kSource && !a.source)) return BOLT_E_UNSUPPORTED;
    DirectParams params = {a.a, a.b, a.bias, a.source, a.d, a.cn, a.h, a.w, a.c, a.cout, a.p, a.q, a.r, a.s,
                           a.pad_top, a.pad_left, a.stride_h, a.stride_w, a.dilation_h, a.dilation_w, a.groups};
    return launch(direct_entry<Method>, Method::grid(a), Method::kThreads, Method::shared_bytes(a), a.pdl != 0, stream,
                  params);
  }

 private:
  static constexpr size_t kSharedLimit = 48 << 10;  // what a block has on every GPU without asking

  static int extent(int size, int pads, int taps, int dilation, int stride) {
    int span = size + pads - (taps - 1) * dilation - 1;
    return span < 0 ? 0 : span / stride + 1;
  }
};

}  // namespace bolt
