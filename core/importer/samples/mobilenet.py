"""MobileNet-V2 at width 1.0 (Sandler et al. 2018, table 2): inverted residuals around depthwise 3x3 convolutions."""

from typing import TYPE_CHECKING

from core.importer.samples.builder import Builder

if TYPE_CHECKING:
    from onnx import ModelProto

# expansion t, channels c, repeats n, stride s of the first
_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
# Gamma of a block's last BatchNorm: small, so that the sum over the blocks does not grow with depth.
_RESIDUAL = 0.3


def mobilenet_v2() -> "ModelProto":
    """Input (N, 3, 224, 224), output (N, 1000) logits. ReLU6 is a Clip, as exporters write it."""
    b = Builder("mobilenet-v2", opset=17)
    b.scalar("zero", 0.0)
    b.scalar("six", 6.0)
    x = _relu6(b, "stem", b.conv("stem.conv", b.input("input", 3, 224, 224), 3, 32, 3, stride=2), 32)
    channels, number = 32, 0
    for expansion, width, repeats, stride in _STAGES:
        for i in range(repeats):
            number += 1
            x = _block(b, f"block{number}", x, channels, width, expansion, stride if i == 0 else 1)
            channels = width
    x = _relu6(b, "last", b.conv("last.conv", x, channels, 1280, 1), 1280)
    x = b.node("Flatten", "flatten", b.node("GlobalAveragePool", "pool", x), axis=1)
    b.linear("classifier", x, 1280, 1000, gain=1.0)
    return b.model({"classifier": [1000]})


def _block(b: Builder, name: str, x: str, channels: int, width: int, expansion: int, stride: int) -> str:
    inner = channels * expansion
    y = x
    if expansion > 1:
        y = _relu6(b, f"{name}.expand", b.conv(f"{name}.expand.conv", y, channels, inner, 1), inner)
    depthwise = b.conv(f"{name}.depthwise.conv", y, inner, inner, 3, stride=stride, group=inner)
    y = _relu6(b, f"{name}.depthwise", depthwise, inner)
    joins = channels == width and stride == 1
    y = b.conv(f"{name}.project.conv", y, inner, width, 1, gain=1.0)
    y = b.batch_norm(f"{name}.project.bn", y, width, _RESIDUAL if joins else 1.0)
    return b.node("Add", f"{name}.add", x, y) if joins else y


def _relu6(b: Builder, name: str, x: str, channels: int) -> str:
    return b.node("Clip", f"{name}.relu6", b.batch_norm(f"{name}.bn", x, channels), "zero", "six")
