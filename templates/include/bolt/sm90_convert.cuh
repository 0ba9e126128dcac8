// Conversion of two fp32 results to a packed pair of 16-bit values, with a free ReLU.
#pragma once
#include <cstdint>
#include "cutlass/bfloat16.h"
#include "cutlass/half.h"

namespace bolt {

// True where pack_pair has a packed conversion: fp16 and bf16.
template <class Element>
inline constexpr bool kPackable = false;
template <>
inline constexpr bool kPackable<cutlass::half_t> = true;
template <>
inline constexpr bool kPackable<cutlass::bfloat16_t> = true;

// Rounds to nearest even; `low` becomes the element at the lower address. The ReLU costs nothing: it is a modifier of
// the conversion instruction (PTX ISA, cvt.relu). A NaN stays a NaN.
template <class Element, bool kRelu>
CUTLASS_DEVICE uint32_t pack_pair(float low, float high) {
  static_assert(kPackable<Element>, "packed conversion exists for fp16 and bf16");
  uint32_t packed;
  if constexpr (cutlass::platform::is_same<Element, cutlass::half_t>::value) {
    if constexpr (kRelu) {
      asm("cvt.rn.relu.f16x2.f32 %0, %2, %1;" : "=r"(packed) : "f"(low), "f"(high));
    } else {
      asm("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(packed) : "f"(low), "f"(high));
    }
  } else {
    if constexpr (kRelu) {
      asm("cvt.rn.relu.bf16x2.f32 %0, %2, %1;" : "=r"(packed) : "f"(low), "f"(high));
    } else {
      asm("cvt.rn.bf16x2.f32 %0, %2, %1;" : "=r"(packed) : "f"(low), "f"(high));
    }
  }
  return packed;
}

// The pair as fp32; the element at the lower address comes first.
template <class Element>
CUTLASS_DEVICE float2 unpack_pair(uint32_t packed) {
  static_assert(kPackable<Element>, "packed conversion exists for fp16 and bf16");
  if constexpr (cutlass::platform::is_same<Element, cutlass::half_t>::value) {
    return __half22float2(reinterpret_cast<__half2 const&>(packed));
  } else {
    return make_float2(__uint_as_float(packed << 16), __uint_as_float(packed & 0xffff0000u));
  }
}

}  // namespace bolt
