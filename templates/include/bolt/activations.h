// Activations of the epilogue set, one device function each, float in and out. ONNX's definitions.
#pragma once
#include <cmath>
#include "cutlass/cutlass.h"

namespace bolt {

CUTLASS_HOST_DEVICE float relu(float x) { return x < 0.f ? 0.f : x; }  // a NaN stays a NaN
CUTLASS_HOST_DEVICE float leaky_relu(float x, float slope) { return x < 0.f ? slope * x : x; }
CUTLASS_HOST_DEVICE float clip(float x, float lo, float hi) { return x < lo ? lo : (x > hi ? hi : x); }
CUTLASS_HOST_DEVICE float gelu_erf(float x) { return 0.5f * x * (1.f + erff(x * 0.70710678118f)); }
CUTLASS_HOST_DEVICE float tanh(float x) { return tanhf(x); }
CUTLASS_HOST_DEVICE float gelu_tanh(float x) {
  return 0.5f * x * (1.f + tanhf(0.79788456080f * (x + 0.044715f * x * x * x)));
}
CUTLASS_HOST_DEVICE float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }
CUTLASS_HOST_DEVICE float silu(float x) { return x / (1.f + expf(-x)); }
CUTLASS_HOST_DEVICE float hard_sigmoid(float x, float alpha, float beta) { return clip(alpha * x + beta, 0.f, 1.f); }
CUTLASS_HOST_DEVICE float hard_swish(float x) { return x * hard_sigmoid(x, 1.f / 6.f, 0.5f); }
CUTLASS_HOST_DEVICE float softplus(float x) { return x > 20.f ? x : log1pf(expf(x)); }
CUTLASS_HOST_DEVICE float elu(float x, float alpha) { return x < 0.f ? alpha * expm1f(x) : x; }

}  // namespace bolt
