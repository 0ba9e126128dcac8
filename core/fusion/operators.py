"""What each ONNX operator is to the planner: an anchor of a tuned region, or the kind of region it makes."""

from core.fusion.plan import Kind


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


ANCHORS = frozenset({"Conv", "Gemm", "MatMul"})
POINTWISE = _names(
    "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast Ceil "
    "CastLike Celu Clip Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish "
    "Identity IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal "
    "Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu "
    "Where Xor"
)
REDUCTION = _names(
    "ArgMax ArgMin GroupNormalization Hardmax InstanceNormalization LayerNormalization LogSoftmax "
    "LpNormalization MeanVarianceNormalization RMSNormalization ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp "
    "ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare SimplifiedLayerNormalization "
    "Softmax"
)
POOL = _names("AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool")
LAYOUT = _names(
    "Concat DepthToSpace Expand Flatten Gather GatherElements GatherND Pad Reshape Slice SpaceToDepth Split Squeeze "
    "Tile Transpose Unsqueeze"
)
_KINDS = ((POINTWISE, Kind.POINTWISE), (REDUCTION, Kind.REDUCTION), (POOL, Kind.POOL), (LAYOUT, Kind.LAYOUT))


def kind_of(op: str) -> Kind:
    """The kind of a region that holds only this operator, which is no anchor."""
    return next((kind for ops, kind in _KINDS if op in ops), Kind.OTHER)


_WHY_NO_EPILOGUE = {
    Kind.REDUCTION: "it needs whole rows of the result, which no one thread block holds",
    Kind.POOL: "it reads neighbours, which other thread blocks compute",
    Kind.LAYOUT: "it moves elements, an epilogue only changes their values",
}


def no_epilogue_form(op: str) -> str:
    """Why the operator can't be an epilogue step whatever its operands are."""
    why = _WHY_NO_EPILOGUE.get(kind_of(op))
    return f"{op} has no epilogue form" + (f": {why}" if why else "")
