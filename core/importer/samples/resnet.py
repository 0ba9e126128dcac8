"""ResNet (He et al. 2015, table 1), with the stride in the 3x3 of a bottleneck (v1.5, as torchvision)."""

from typing import TYPE_CHECKING

from core.importer.samples.builder import Builder

if TYPE_CHECKING:
    from onnx import ModelProto

_BLOCKS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}
_WIDTHS = (64, 128, 256, 512)
# Gamma of a block's last BatchNorm: small, so that the sum over the blocks does not grow with depth.
_RESIDUAL = 0.3


def resnet(depth: int) -> "ModelProto":
    """Input (N, 3, 224, 224), output (N, 1000) logits. `depth` is 18 (basic blocks) or 50 (bottlenecks)."""
    b = Builder(f"resnet{depth}")
    x = b.input("input", 3, 224, 224)
    x = b.relu("relu", b.batch_norm("bn1", b.conv("conv1", x, 3, 64, 7, stride=2), 64))
    x = b.node("MaxPool", "maxpool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    block = _bottleneck if depth == 50 else _basic
    channels = 64
    for stage, (width, count) in enumerate(zip(_WIDTHS, _BLOCKS[depth], strict=True), 1):
        for i in range(count):
            x, channels = block(b, f"layer{stage}.{i}", x, channels, width, 2 if i == 0 and stage > 1 else 1)
    x = b.node("GlobalAveragePool", "avgpool", x)
    x = b.node("Flatten", "flatten", x, axis=1)
    b.linear("fc", x, channels, 1000, gain=1.0)
    return b.model({"fc": [1000]})


def _basic(b: Builder, name: str, x: str, channels: int, width: int, stride: int) -> tuple[str, int]:
    y = b.conv(f"{name}.conv1", x, channels, width, 3, stride=stride)
    y = b.relu(f"{name}.relu1", b.batch_norm(f"{name}.bn1", y, width))
    y = b.batch_norm(f"{name}.bn2", b.conv(f"{name}.conv2", y, width, width, 3), width, _RESIDUAL)
    return _joined(b, name, y, _shortcut(b, name, x, channels, width, stride)), width


def _bottleneck(b: Builder, name: str, x: str, channels: int, width: int, stride: int) -> tuple[str, int]:
    out = 4 * width
    y = b.relu(f"{name}.relu1", b.batch_norm(f"{name}.bn1", b.conv(f"{name}.conv1", x, channels, width, 1), width))
    y = b.conv(f"{name}.conv2", y, width, width, 3, stride=stride)
    y = b.relu(f"{name}.relu2", b.batch_norm(f"{name}.bn2", y, width))
    y = b.batch_norm(f"{name}.bn3", b.conv(f"{name}.conv3", y, width, out, 1), out, _RESIDUAL)
    return _joined(b, name, y, _shortcut(b, name, x, channels, out, stride)), out


def _shortcut(b: Builder, name: str, x: str, channels: int, out: int, stride: int) -> str:
    if channels == out and stride == 1:
        return x
    y = b.conv(f"{name}.downsample.0", x, channels, out, 1, stride=stride, gain=1.0)
    return b.batch_norm(f"{name}.downsample.1", y, out)


def _joined(b: Builder, name: str, y: str, shortcut: str) -> str:
    return b.relu(f"{name}.relu", b.node("Add", f"{name}.add", y, shortcut))
