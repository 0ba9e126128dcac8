"""VGG-16 and VGG-19 (Simonyan and Zisserman 2014, table 1), RepVGG-A0 and -B0 (Ding et al. 2021, tables 2 and 3)."""

from typing import TYPE_CHECKING

from core.importer.samples.builder import Builder

if TYPE_CHECKING:
    from onnx import ModelProto

# Widths and counts of 3x3 convolutions, a 2x2 max pool behind each stage: configurations D and E.
_VGG = {
    16: ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)),
    19: ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)),
}
# Widths 64a, 64a, 128a, 256a, 512b with a = 0.75, b = 2.5 (A0) and a = 1, b = 2.5 (B0), and the layers of each stage,
# the first of which halves the image.
_REPVGG = {
    "a0": ((48, 1), (48, 2), (96, 4), (192, 14), (1280, 1)),
    "b0": ((64, 1), (64, 4), (128, 6), (256, 16), (1280, 1)),
}


def vgg(depth: int) -> "ModelProto":
    """Input (N, 3, 224, 224), output (N, 1000) logits; Dropout between the fully connected layers, as published."""
    b = Builder(f"vgg{depth}")
    x = b.input("input", 3, 224, 224)
    channels = 3
    for stage, (width, count) in enumerate(_VGG[depth], 1):
        for i in range(1, count + 1):
            x = b.relu(f"relu{stage}_{i}", b.conv(f"conv{stage}_{i}", x, channels, width, 3, bias=True))
            channels = width
        x = b.node("MaxPool", f"pool{stage}", x, kernel_shape=[2, 2], strides=[2, 2])
    x = b.node("Flatten", "flatten", x, axis=1)
    for i, features in ((6, channels * 49), (7, 4096)):
        x = b.node("Dropout", f"drop{i}", b.relu(f"relu{i}", b.linear(f"fc{i}", x, features, 4096)))
    b.linear("fc8", x, 4096, 1000, gain=1.0)
    return b.model({"fc8": [1000]})


def repvgg(size: str, augmented: bool = False) -> "ModelProto":
    """RepVGG as deployed: one 3x3 with bias and ReLU per layer. Input (N, 3, 224, 224), output (N, 1000) logits.

    `augmented` puts a 1x1 of the same width, with bias and ReLU, behind each 3x3 (Bolt's RepVGGAug).
    """
    b = Builder(f"repvgg-{size}-aug" if augmented else f"repvgg-{size}")
    x = b.input("input", 3, 224, 224)
    channels = 3
    for stage, (width, count) in enumerate(_REPVGG[size]):
        for i in range(count):
            name = f"stage{stage}.{i}"
            x = b.conv(f"{name}.conv", x, channels, width, 3, stride=1 if i else 2, bias=True)
            x = b.relu(f"{name}.relu", x)
            if augmented:
                x = b.relu(f"{name}.relu1x1", b.conv(f"{name}.conv1x1", x, width, width, 1, bias=True))
            channels = width
    x = b.node("Flatten", "flatten", b.node("GlobalAveragePool", "gap", x), axis=1)
    b.linear("linear", x, channels, 1000, gain=1.0)
    return b.model({"linear": [1000]})
