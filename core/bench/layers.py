"""The distinct convolutions of three networks, from the tables of their papers, as the fusion planner leaves them: bias
and activation fused, BatchNorm folded, three input channels filled up to four.

ResNet-50: He et al. 2016, table 1 (stride in the 3x3, as torchvision has it). RepVGG-A0 in its deployed form: Ding et
al. 2021, table 2. MobileNet-V2: Sandler et al. 2018, table 2.
"""

from collections.abc import Iterator

from templates.epilogue import Epilogue, parse_epilogue
from templates.workload import ConvWorkload, GemmWorkload, Workload

BIAS, RELU = parse_epilogue("bias"), parse_epilogue("bias+relu")
RESIDUAL, RESIDUAL_RELU = parse_epilogue("bias+add"), parse_epilogue("bias+add+relu")
RELU6 = parse_epilogue("bias+clip(0,6)")
IMAGE = 224


def convolution(
    batch: int, size: int, c: int, k: int, taps: int, stride: int, epilogue: Epilogue, groups: int = 1
) -> Workload:
    """A square convolution padded to keep size / stride; a dense 1x1 of stride 1 is the product it is."""
    if taps == 1 and stride == 1 and groups == 1:
        return GemmWorkload(batch * size * size, k, c, epilogue=epilogue)
    pad = (taps // 2,) * 4
    return ConvWorkload(batch, size, size, c, k, taps, taps, pad, (stride, stride), groups=groups, epilogue=epilogue)


def label(workload: Workload, batch: int, size: int) -> str:
    """ "n32 56x56 64->256 1x1 s1", and the epilogue where it is not bias and ReLU."""
    if isinstance(workload, GemmWorkload):
        shape, k, c, taps, stride, groups = f"{size}x{size}", workload.n, workload.k, 1, 1, 1
    else:
        assert isinstance(workload, ConvWorkload)
        shape, k, c, taps = f"{workload.h}x{workload.w}", workload.k, workload.c, workload.r
        stride, groups = workload.stride[0], workload.groups
    chain = "" if str(workload.epilogue) == "bias+relu" else f" {workload.epilogue}"
    return f"n{batch} {shape} {c}->{k} {taps}x{taps} s{stride}{f' g{groups}' if groups > 1 else ''}{chain}"


def distinct(batch: int) -> dict[str, Workload]:
    """Label -> workload of all three networks, each workload once."""
    found: dict[str, Workload] = {}
    for size, workload in (*_resnet50(batch), *_repvgg_a0(batch), *_mobilenet_v2(batch)):
        if workload not in found.values():
            found[label(workload, batch, size)] = workload
    return found


def _resnet50(n: int) -> Iterator[tuple[int, Workload]]:
    yield IMAGE, convolution(n, IMAGE, 4, 64, 7, 2, RELU)
    size, c = IMAGE // 4, 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(min(blocks, 2)):
            step = stride if block == 0 else 1
            if block == 0:
                yield size, convolution(n, size, c, 4 * width, 1, step, BIAS)
            yield size, convolution(n, size, c, width, 1, 1, RELU)
            yield size, convolution(n, size, width, width, 3, step, RELU)
            size, c = size // step, 4 * width
            yield size, convolution(n, size, width, c, 1, 1, RESIDUAL_RELU)


def _repvgg_a0(n: int) -> Iterator[tuple[int, Workload]]:
    size, c = IMAGE, 4
    for width, blocks in ((48, 1), (48, 2), (96, 4), (192, 14), (1280, 1)):
        for block in range(min(blocks, 2)):
            step = 2 if block == 0 else 1
            yield size, convolution(n, size, c, width, 3, step, RELU)
            size, c = size // step, width


def _mobilenet_v2(n: int) -> Iterator[tuple[int, Workload]]:
    yield IMAGE, convolution(n, IMAGE, 4, 32, 3, 2, RELU6)
    size, c = IMAGE // 2, 32
    for expansion, width, blocks, stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for block in range(min(blocks, 2)):
            step, wide = stride if block == 0 else 1, c * expansion
            if expansion > 1:
                yield size, convolution(n, size, c, wide, 1, 1, RELU6)
            yield size, convolution(n, size, wide, wide, 3, step, RELU6, groups=wide)
            size //= step
            yield size, convolution(n, size, wide, width, 1, 1, RESIDUAL if step == 1 and c == width else BIAS)
            c = width
    yield size, convolution(n, size, c, 1280, 1, 1, RELU6)
