"""The epilogue: what a kernel does to the accumulator before it is stored (paper section 3.1, epilogue fusion).

One chain serves every family. It is emitted as one C++ functor ``float apply(float x, float bias, float source)``
that CUTLASS 2.x output operators, CUTLASS 3.x visitor trees and our own kernels all call, so a chain the planner can
make is a chain every family can run.
"""

from dataclasses import dataclass
from hashlib import sha256

from templates.types import DType

# name -> number of parameters. The C++ of each is a function of the same name in include/bolt/activations.h.
ACTIVATIONS = {
    "relu": 0, "leaky_relu": 1, "clip": 2, "gelu_erf": 0, "gelu_tanh": 0, "silu": 0, "sigmoid": 0, "hard_swish": 0,
    "hard_sigmoid": 2, "softplus": 0, "tanh": 0, "elu": 1,
}  # fmt: skip
# "bias": + bias[n]. "add"/"mul": with the source tensor, same shape as the output. "scale"/"shift": by a constant.
COMBINERS = {"bias": 0, "add": 0, "mul": 0, "scale": 1, "shift": 1}


@dataclass(frozen=True)
class EpilogueOp:
    """One step of the chain: a name from ACTIVATIONS or COMBINERS and its constant parameters."""

    op: str
    params: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        wanted = ACTIVATIONS.get(self.op, COMBINERS.get(self.op))
        if wanted is None:
            raise ValueError(f"unknown epilogue step {self.op!r}")
        if len(self.params) != wanted:
            raise ValueError(f"epilogue step {self.op} takes {wanted} parameters, not {len(self.params)}")
        object.__setattr__(self, "params", tuple(float(p) for p in self.params))

    def __str__(self) -> str:
        return self.op + (f"({','.join(format(p, '.9g') for p in self.params)})" if self.params else "")


@dataclass(frozen=True)
class Epilogue:
    """A chain of steps in order. At most one bias (a vector along N) and one source (a tensor shaped as the output).

    `output` is the type the result is converted to; arithmetic is float32 throughout.
    """

    ops: tuple[EpilogueOp, ...] = ()
    output: DType = DType.F16

    def __post_init__(self) -> None:
        names = [o.op for o in self.ops]
        if names.count("bias") > 1:
            raise ValueError("an epilogue takes one bias")
        if names.count("add") + names.count("mul") > 1:
            raise ValueError("an epilogue takes one source tensor")

    @property
    def has_bias(self) -> bool:
        return any(o.op == "bias" for o in self.ops)

    @property
    def has_source(self) -> bool:
        return any(o.op in ("add", "mul") for o in self.ops)

    def __str__(self) -> str:
        chain = "+".join(map(str, self.ops)) or "identity"
        return chain if self.output == DType.F16 else f"{chain}->{self.output}"

    @property
    def ident(self) -> str:
        """A C identifier that names the chain; chains that differ only in parameters differ in a short hash."""
        name = "_".join(o.op for o in self.ops) or "identity"
        if any(o.params for o in self.ops):
            name += "_" + sha256(str(self).encode()).hexdigest()[:6]
        return name if self.output == DType.F16 else f"{name}_{self.output}"

    def functor(self, name: str = "Chain") -> str:
        """C++ source of the functor; include bolt/activations.h before it."""
        body = "".join(f"    x = {_statement(o)};\n" for o in self.ops)
        return (
            f"struct {name} {{  // {self}\n"
            f"  static constexpr bool kBias = {str(self.has_bias).lower()};\n"
            f"  static constexpr bool kSource = {str(self.has_source).lower()};\n"
            f"  CUTLASS_HOST_DEVICE static float apply(float x, float bias, float source) {{\n"
            f"{body}    return x;\n  }}\n}};\n"
        )


def parse_epilogue(text: str) -> Epilogue:
    """The inverse of ``str(epilogue)``. Raises ValueError on anything else."""
    chain, _, output = text.partition("->")
    ops = []
    for part in [] if chain == "identity" else chain.split("+"):
        op, paren, params = part.partition("(")
        if paren and not params.endswith(")"):
            raise ValueError(f"epilogue {text!r} is not closed")
        ops.append(EpilogueOp(op, tuple(float(p) for p in params[:-1].split(",")) if paren else ()))
    return Epilogue(tuple(ops), DType(output) if output else DType.F16)


def _literal(value: float) -> str:
    if value != value:
        raise ValueError("an epilogue parameter is not a number")
    if value in (float("inf"), float("-inf")):
        return f"({'-' if value < 0 else ''}INFINITY)"
    text = format(value, ".9g")
    return (text if any(c in text for c in ".e") else text + ".0") + "f"


def _statement(step: EpilogueOp) -> str:
    simple = {"bias": "x + bias", "add": "x + source", "mul": "x * source"}
    if step.op in simple:
        return simple[step.op]
    if step.op in ("scale", "shift"):
        return f"x {'*' if step.op == 'scale' else '+'} {_literal(step.params[0])}"
    return f"bolt::{step.op}({', '.join(['x', *map(_literal, step.params)])})"
