// The epilogue as data: a list of op codes that is interpreted at run time. Written from the definitions of ONNX, not
// from the generated functors, so that the two check each other. Plain C++ and CUDA.
#pragma once
#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define BOLT_REF_HD __host__ __device__ __forceinline__
#else
#define BOLT_REF_HD inline
#endif

#define BOLT_REF_MAX_OPS 24

// Keep in step with OP_CODES in reference.py.
enum {
  BOLT_REF_BIAS = 0,
  BOLT_REF_ADD = 1,
  BOLT_REF_MUL = 2,
  BOLT_REF_SCALE = 3,
  BOLT_REF_SHIFT = 4,
  BOLT_REF_RELU = 5,
  BOLT_REF_LEAKY_RELU = 6,
  BOLT_REF_CLIP = 7,
  BOLT_REF_GELU_ERF = 8,
  BOLT_REF_GELU_TANH = 9,
  BOLT_REF_SILU = 10,
  BOLT_REF_SIGMOID = 11,
  BOLT_REF_HARD_SWISH = 12,
  BOLT_REF_HARD_SIGMOID = 13,
  BOLT_REF_SOFTPLUS = 14,
  BOLT_REF_TANH = 15,
  BOLT_REF_ELU = 16,
};

struct bolt_ref_op {
  int32_t code;
  float p0, p1;
};

struct bolt_ref_ops {
  int32_t count;
  bolt_ref_op op[BOLT_REF_MAX_OPS];
};

namespace bolt_ref {

BOLT_REF_HD float logistic(float x) {
  // The exponential of a negative argument only, so that neither end overflows.
  float const e = expf(-fabsf(x));
  return (x >= 0.f ? 1.f : e) / (1.f + e);
}

BOLT_REF_HD float one(bolt_ref_op const& op, float x, float bias, float source) {
  switch (op.code) {
    case BOLT_REF_BIAS: return x + bias;
    case BOLT_REF_ADD: return x + source;
    case BOLT_REF_MUL: return x * source;
    case BOLT_REF_SCALE: return x * op.p0;
    case BOLT_REF_SHIFT: return x + op.p0;
    case BOLT_REF_RELU: return x > 0.f ? x : 0.f;
    case BOLT_REF_LEAKY_RELU: return x >= 0.f ? x : op.p0 * x;
    case BOLT_REF_CLIP: return fminf(fmaxf(x, op.p0), op.p1);
    case BOLT_REF_GELU_ERF: return x * 0.5f * erfcf(-x * 0.707106781186547524f);
    case BOLT_REF_GELU_TANH: {
      // 0.5 (1 + tanh u) is the logistic function of 2u.
      float const u = 0.797884560802865356f * (x + 0.044715f * x * x * x);
      return x * logistic(2.f * u);
    }
    case BOLT_REF_SILU: return x * logistic(x);
    case BOLT_REF_SIGMOID: return logistic(x);
    case BOLT_REF_HARD_SWISH: return x * fminf(fmaxf(x / 6.f + 0.5f, 0.f), 1.f);
    case BOLT_REF_HARD_SIGMOID: return fminf(fmaxf(op.p0 * x + op.p1, 0.f), 1.f);
    case BOLT_REF_SOFTPLUS: return fmaxf(x, 0.f) + log1pf(expf(-fabsf(x)));
    case BOLT_REF_TANH: return tanhf(x);
    case BOLT_REF_ELU: return x >= 0.f ? x : op.p0 * expm1f(x);
  }
  return NAN;  // an unknown code can't pass verification
}

BOLT_REF_HD float all(bolt_ref_ops const& ops, float x, float bias, float source) {
  for (int i = 0; i < ops.count; ++i) x = one(ops.op[i], x, bias, source);
  return x;
}

}  // namespace bolt_ref
