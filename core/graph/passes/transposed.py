"""ConvTranspose as a Conv whose output channels are interleaved into the image (sub-pixel convolution).

Along one dimension of stride s, y[o] = sum over i of x[i] w[o + pad - s i]. With o + pad = s q + f (phase f), only the
taps s m + f meet an input, i = q - m. So each of the s phases is a convolution of ceil(k / s) taps at stride 1, and the
phases are s times as many output channels of one Conv: nothing is multiplied with inserted zeros (Shi et al. 2016,
arXiv 1609.07009, show the identity). A dilation is spelled out as zeros in the filters.
"""

from math import prod

import numpy as np

from core.graph.passes.writer import Writer


def convolve_transposed(w: Writer) -> bool:
    """Write the ConvTranspose `w.node`. False where its weights are computed at run time, or a pad is negative."""
    weight, x, result = w.value(1), w.input(0), w.result
    if weight is None or (w.input(2) and w.value(2) is None) or min(w.node.attrs["pads"]) < 0:
        return False
    attrs, shape = w.node.attrs, w.shape(x)
    spatial, group, strides, pads = len(shape) - 2, attrs["group"], attrs["strides"], attrs["pads"]
    filters, taps = _phases(_dilated(weight, attrs["dilations"]), group, strides)
    channels = result.shape[1]
    extents = [-(-(pads[i] + e) // s) for i, (e, s) in enumerate(zip(result.shape[2:], strides, strict=True))]
    before = [t - 1 for t in taps]
    after = [max(e - n, 0) for e, n in zip(extents, shape[2:], strict=True)]
    inputs = [x, w.constant(filters)]
    bias = w.value(2)
    if bias is not None:
        inputs.append(w.constant(np.repeat(bias, prod(strides))))
    ones = (1,) * spatial
    y = w.op(
        "Conv", *inputs, kernel_shape=tuple(taps), strides=ones, dilations=ones, pads=(*before, *after), group=group
    )
    made = w.shape(y)[2:]
    y = w.reshape(y, [shape[0], channels, *strides, *made])
    order = [d for i in range(spatial) for d in (2 + spatial + i, 2 + i)]
    y = w.transpose(y, [0, 1, *order])
    y = w.reshape(y, [shape[0], channels, *(e * s for e, s in zip(made, strides, strict=True))])
    begins = list(pads[:spatial])
    ends = [b + e for b, e in zip(begins, result.shape[2:], strict=True)]
    w.finish("Slice", y, w.ints(begins), w.ints(ends), w.ints(range(2, 2 + spatial)), w.ints(ones))
    return True


def _dilated(weight: np.ndarray, dilations: tuple[int, ...]) -> np.ndarray:
    spatial = [(k - 1) * d + 1 for k, d in zip(weight.shape[2:], dilations, strict=True)]
    wide = np.zeros((*weight.shape[:2], *spatial), weight.dtype)
    wide[(slice(None), slice(None), *(slice(None, None, d) for d in dilations))] = weight
    return wide


def _phases(weight: np.ndarray, group: int, strides: tuple[int, ...]) -> tuple[np.ndarray, list[int]]:
    """(filters (M * phases, C / group, taps...) of the Conv, taps along each dimension) from (C, M / group, k...)."""
    c, m, *kernel = weight.shape
    taps = [-(-k // s) for k, s in zip(kernel, strides, strict=True)]
    padded = np.pad(weight, [(0, 0), (0, 0), *((0, t * s - k) for t, s, k in zip(taps, strides, kernel, strict=True))])
    spatial = len(kernel)
    # Tap s m + f of each dimension as (m, f), m turned round; phases become output channels, the last one fastest.
    split = padded.reshape(group, c // group, m, *(e for t, s in zip(taps, strides, strict=True) for e in (t, s)))
    split = np.flip(split, tuple(3 + 2 * i for i in range(spatial)))
    order = [0, 2, *(4 + 2 * i for i in range(spatial)), 1, *(3 + 2 * i for i in range(spatial))]
    return np.ascontiguousarray(split.transpose(order)).reshape(group * m * prod(strides), c // group, *taps), taps
