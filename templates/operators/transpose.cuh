// Layout conversions: a tiled transposition, and packing channels with padding.
#pragma once
#include "common.cuh"

namespace bolt {
namespace op {

// C: read_extent, read_step (destination stride of the axis contiguous in the source), write_extent, write_step (source
// stride of the axis contiguous in the destination), batch, and source(i), destination(i): offsets of batch i.
// 32x32 tiles through shared memory, so both sides are accessed along their contiguous axis.
template <class C, class T, class U>
__global__ void __launch_bounds__(256) transpose_kernel(T const* x, U* y) {
  constexpr unsigned kAcross = ceil_div(C::read_extent, 32), kDown = ceil_div(C::write_extent, 32);
  __shared__ U tile[32][33];
  unsigned rest = blockIdx.x;
  int const read = int(rest % kAcross) * 32;
  rest /= kAcross;
  int const write = int(rest % kDown) * 32;
  int const batch = int(rest / kDown);
  int const lane = int(threadIdx.x) % 32, group = int(threadIdx.x) / 32;
  wait_for_producers();
  T const* const from = x + C::source(batch);
#pragma unroll
  for (int i = group; i < 32; i += 8) {
    if (read + lane < C::read_extent && write + i < C::write_extent)
      tile[i][lane] = convert<U>(from[size_t(write + i) * C::write_step + read + lane]);
  }
  __syncthreads();
  U* const to = y + C::destination(batch);
#pragma unroll
  for (int i = group; i < 32; i += 8) {
    if (write + lane < C::write_extent && read + i < C::read_extent)
      to[size_t(read + i) * C::read_step + write + lane] = tile[lane][i];
  }
}

template <class C, class T, class U>
int transpose(T const* x, U* y, cudaStream_t stream, bool pdl) {
  constexpr unsigned kBlocks = ceil_div(C::read_extent, 32) * ceil_div(C::write_extent, 32) * C::batch;
  return launch(transpose_kernel<C, T, U>, kBlocks, 256, stream, pdl, x, y);
}

// C: n, pixels, channels, padded, stride_n, stride_pixel, stride_channel, common (divides pixels and the other strides).
// How many pixels a thread makes: with planar input (stride_pixel 1) as many as one 16-byte write holds.
template <class C, class U>
__host__ __device__ constexpr unsigned pixels_a_thread() {
  bool const whole = C::stride_pixel == 1 && width<U>(C::padded) == C::padded;
  return whole ? unsigned(width<U>(C::padded * C::common) / C::padded) : 1u;
}

template <class C, class T, class U>
__global__ void __launch_bounds__(256) pack_channels_kernel(T const* x, U* y) {
  constexpr int kPixels = int(pixels_a_thread<C, U>()), kWidth = width<U>(C::padded);
  unsigned const pixel = (blockIdx.x * 256u + threadIdx.x) * kPixels;
  wait_for_producers();
  if (pixel >= unsigned(C::n) * C::pixels) return;
  T const* const from =
      x + size_t(pixel / unsigned(C::pixels)) * C::stride_n + size_t(pixel % unsigned(C::pixels)) * C::stride_pixel;
#pragma unroll
  for (int first = 0; first < C::padded; first += kWidth) {
    Vec<U, kPixels * kWidth> out;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      int const c = first + j;
      Vec<T, kPixels> in{};
      if (c < C::channels) in = load<kPixels>(from + size_t(c) * C::stride_channel);
#pragma unroll
      for (int i = 0; i < kPixels; ++i) out.v[i * kWidth + j] = c < C::channels ? convert<U>(in.v[i]) : To<U>::from(0.f);
    }
    store(y + size_t(pixel) * C::padded + first, out);
  }
}

template <class C, class T, class U>
int pack_channels(T const* x, U* y, cudaStream_t stream, bool pdl) {
  constexpr unsigned kThreads = unsigned(C::n) * C::pixels / pixels_a_thread<C, U>();
  return launch(pack_channels_kernel<C, T, U>, ceil_div(kThreads, 256), 256, stream, pdl, x, y);
}

}  // namespace op
}  // namespace bolt
