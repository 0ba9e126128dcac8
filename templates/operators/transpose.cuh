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

// C: n, pixels, channels, padded, stride_n, stride_pixel, stride_channel. One thread makes one pixel; with planar input
// (stride_pixel 1) a warp reads each channel's plane contiguously, and writes are contiguous in any case.
template <class C, class T, class U>
__global__ void __launch_bounds__(256) pack_channels_kernel(T const* x, U* y) {
  constexpr int kWidth = width<U>(C::padded);
  unsigned const thread = blockIdx.x * 256u + threadIdx.x;
  wait_for_producers();
  if (thread >= unsigned(C::n) * C::pixels) return;
  T const* const from =
      x + size_t(thread / unsigned(C::pixels)) * C::stride_n + size_t(thread % unsigned(C::pixels)) * C::stride_pixel;
#pragma unroll
  for (int first = 0; first < C::padded; first += kWidth) {
    Vec<U, kWidth> out;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      int const c = first + j;
      out.v[j] = c < C::channels ? convert<U>(from[size_t(c) * C::stride_channel]) : To<U>::from(0.f);
    }
    store(y + size_t(thread) * C::padded + first, out);
  }
}

template <class C, class T, class U>
int pack_channels(T const* x, U* y, cudaStream_t stream, bool pdl) {
  return launch(pack_channels_kernel<C, T, U>, ceil_div(unsigned(C::n) * C::pixels, 256), 256, stream, pdl, x, y);
}

}  // namespace op
}  // namespace bolt
