// Activations of the epilogue set, one device function each, float in and out. ONNX's definitions.
//
// The exponential of sigmoid, SiLU and tanh-GELU is the hardware's on the device: its relative error stays below 1e-5
// (CUDA programming guide, intrinsic functions), far under a half's 5e-4, and the epilogue stays out of the way.
#pragma once
#include <cmath>
#include "cutlass/cutlass.h"

namespace bolt {

// x / (1 + exp(-t))
CUTLASS_HOST_DEVICE float logistic(float x, float t) {
#ifdef __CUDA_ARCH__
  return __fdividef(x, 1.f + __expf(-t));
#else
  return x / (1.f + expf(-t));
#endif
}

CUTLASS_HOST_DEVICE float relu(float x) { return x < 0.f ? 0.f : x; }  // a NaN stays a NaN
CUTLASS_HOST_DEVICE float leaky_relu(float x, float slope) { return x < 0.f ? slope * x : x; }
CUTLASS_HOST_DEVICE float clip(float x, float lo, float hi) { return x < lo ? lo : (x > hi ? hi : x); }
CUTLASS_HOST_DEVICE float gelu_erf(float x) { return 0.5f * x * (1.f + erff(x * 0.70710678118f)); }
CUTLASS_HOST_DEVICE float tanh(float x) { return tanhf(x); }
CUTLASS_HOST_DEVICE float gelu_tanh(float x) {  // 0.5 x (1 + tanh u) = x / (1 + exp(-2u))
  return logistic(x, 1.59576912161f * (x + 0.044715f * x * x * x));
}
CUTLASS_HOST_DEVICE float sigmoid(float x) { return logistic(1.f, x); }
CUTLASS_HOST_DEVICE float silu(float x) { return logistic(x, x); }
CUTLASS_HOST_DEVICE float hard_sigmoid(float x, float alpha, float beta) { return clip(alpha * x + beta, 0.f, 1.f); }
CUTLASS_HOST_DEVICE float hard_swish(float x) { return x * hard_sigmoid(x, 1.f / 6.f, 0.5f); }
CUTLASS_HOST_DEVICE float softplus(float x) { return x > 20.f ? x : log1pf(expf(x)); }
CUTLASS_HOST_DEVICE float elu(float x, float alpha) { return x < 0.f ? alpha * expm1f(x) : x; }

}  // namespace bolt
