"""Resize as tables: for every output index of a dimension the input indices that it reads, and their weights.

ONNX's definition of Resize (operator specification, opset 19): coordinate_transformation_mode maps an output index to a
place in the input, the mode to weights of its neighbours; with `antialias` the kernel is widened by 1 / scale.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

COORDINATES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
)  # fmt: skip
MODES = ("nearest", "linear", "cubic")


@dataclass(frozen=True)
class Taps:
    """`places` (int32) and `weights` (float32), each (output extent, taps)."""

    places: np.ndarray
    weights: np.ndarray


def taps_of(size: int, extent: int, scale: float, attrs: Mapping[str, Any]) -> Taps:
    """The tables of a dimension of `size` resized to `extent`; `scale` is what the model gives, or extent / size."""
    where = _coordinates(size, extent, scale, str(attrs.get("coordinate_transformation_mode", "half_pixel")))
    mode = str(attrs.get("mode", "nearest"))
    if mode == "nearest":
        places = _nearest(where, str(attrs.get("nearest_mode", "round_prefer_floor")))
        return Taps(places.clip(0, size - 1).astype(np.int32)[:, None], np.ones((extent, 1), np.float32))
    narrowed = min(scale, 1.0) if attrs.get("antialias", 0) else 1.0
    reach = 1 if mode == "linear" else 2
    first = int(np.floor(-reach / narrowed)) + 1
    offsets = np.arange(first, 2 - first)
    base = np.floor(where)
    distance = (offsets[None, :] - (where - base)[:, None]) * narrowed
    weights = _triangle(distance) if mode == "linear" else _cubic(distance, float(attrs.get("cubic_coeff_a", -0.75)))
    places = base[:, None].astype(np.int64) + offsets
    if attrs.get("exclude_outside", 0):
        weights = np.where((places < 0) | (places >= size), 0.0, weights)
    if attrs.get("exclude_outside", 0) or narrowed < 1:
        weights = weights / weights.sum(1, keepdims=True)
    return Taps(places.clip(0, size - 1).astype(np.int32), weights.astype(np.float32))


def _coordinates(size: int, extent: int, scale: float, mode: str) -> np.ndarray:
    """`extent` is length_resized, a whole number, as the definition, ONNX Runtime and PyTorch have it; ONNX's own tests
    of align_corners take scale * size instead.
    """
    out = np.arange(extent, dtype=np.float64)
    if mode == "asymmetric":
        return out / scale
    if mode == "align_corners":
        return out * (size - 1) / (extent - 1) if extent > 1 else np.zeros(1)
    if mode == "pytorch_half_pixel" and extent == 1:
        return np.zeros(1)
    offset = size / 2 * (1 - extent / (scale * size)) if mode == "half_pixel_symmetric" else 0.0
    return offset + (out + 0.5) / scale - 0.5


def _nearest(where: np.ndarray, mode: str) -> np.ndarray:
    match mode:
        case "round_prefer_floor":
            return np.ceil(where - 0.5)
        case "round_prefer_ceil":
            return np.floor(where + 0.5)
        case "floor":
            return np.floor(where)
    return np.ceil(where)


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.clip(1 - np.abs(x), 0, None)


def _cubic(x: np.ndarray, a: float) -> np.ndarray:
    """Keys' kernel (1981)."""
    x = np.abs(x)
    near = (a + 2) * x**3 - (a + 3) * x**2 + 1
    far = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))
