// Host side of the Hopper attention (bolt/sm90_attention_kernel.cuh): check, descriptors, launch.
#pragma once
#include "bolt/launch.h"
#include "bolt/sm90_attention_kernel.cuh"

namespace bolt::attention {

constexpr int kTmaBytes = 16;  // what a TMA stride and address are multiples of

// A four-dimensional map of an operand: element, row, head, batch entry. A dimension of one has any stride.
template <class Element>
bool map_operand(CUtensorMap& map, void const* pointer, Strides const& s, int width, int rows, int heads, int batch,
                 int box_rows) {
  auto const bytes = [](int64_t stride) { return cuuint64_t(stride ? stride * int64_t(sizeof(Element)) : kTmaBytes); };
  using Extent = cuuint64_t;
  return ptx::encode<Element, 4>(map, pointer, {Extent(width), Extent(rows), Extent(heads), Extent(batch)},
                                 {bytes(s.row), bytes(s.head), bytes(s.batch)}, {kBox, cuuint32_t(box_rows), 1, 1});
}

// Whether TMA can address the operand.
template <class Element>
bool addressable(void const* pointer, Strides const& s) {
  constexpr int kStep = kTmaBytes / int(sizeof(Element));
  bool const strides = s.batch % kStep == 0 && s.head % kStep == 0 && s.row % kStep == 0;
  return strides && reinterpret_cast<uintptr_t>(pointer) % kTmaBytes == 0;
}

template <class Config>
int hopper_check(bolt_args const& a) {
  using I = HopperInstance<Config>;
  using Element = typename Config::Element;
  if (!sensible(a, Mask(Config::kMask)) || a.sm_count <= 0) return BOLT_E_UNSUPPORTED;
  bool const widths = a.head_dim <= I::kHead && a.value_dim <= I::kValue;
  Problem const p(a);
  bool const reachable = addressable<Element>(a.a, p.q) && addressable<Element>(a.b, p.k) &&
                         addressable<Element>(a.b1, p.v) && addressable<Element>(a.d, p.out);
  int64_t const tiles = int64_t(p.batch) * p.heads * ((p.q_length + I::kRows - 1) / I::kRows);
  return widths && reachable && tiles <= 0x7FFFFFFF ? BOLT_OK : BOLT_E_UNSUPPORTED;
}

template <class Config>
int hopper_run(bolt_args const& a, cudaStream_t stream) {
  using I = HopperInstance<Config>;
  using Element = typename Config::Element;
  if (int const refused = hopper_check<Config>(a)) return refused;
  Problem const p(a);
  int const head_tiles = (p.q_length + I::kRows - 1) / I::kRows, tiles = p.batch * p.heads * head_tiles;
  HopperParams params{{}, {}, {}, {}, p, a.source, tiles, head_tiles};
  bool const mapped =
      map_operand<Element>(params.q, a.a, p.q, p.head_dim, p.q_length, p.heads, p.batch, I::kRows) &&
      map_operand<Element>(params.k, a.b, p.k, p.head_dim, p.kv_length, p.kv_heads, p.batch, I::kColumns) &&
      map_operand<Element>(params.v, a.b1, p.v, p.value_dim, p.kv_length, p.kv_heads, p.batch, I::kColumns) &&
      map_operand<Element>(params.out, a.d, p.out, p.value_dim, p.q_length, p.heads, p.batch, kGroupRows);
  if (!mapped) return BOLT_E_UNSUPPORTED;
  unsigned const blocks = tiles < a.sm_count ? tiles : a.sm_count;
  return launch(hopper_attention<Config>, dim3(blocks), I::kThreads, I::kSharedBytes, a.pdl != 0, stream, params);
}

}  // namespace bolt::attention
