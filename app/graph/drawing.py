"""A placement as the painter needs it: rectangles, lines and their bounds. It is made beside the window."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from PySide6.QtCore import QLineF, QRectF

from app.graph.placement import Placement


@dataclass(frozen=True)
class Drawing:
    """`edge_boxes` and `line_boxes` are (left, top, right, bottom) of each edge and of each straight piece of one."""

    rects: list[QRectF]
    edge_boxes: np.ndarray
    line_boxes: np.ndarray
    lines: list[QLineF]


def draw(p: Placement) -> Drawing:
    left, top = p.x - p.widths / 2, p.y - p.height / 2
    rects = [QRectF(a, t, w, p.height) for a, t, w in zip(left.tolist(), top.tolist(), p.widths.tolist(), strict=True)]
    boxes = [(min(x for x, _ in q), min(y for _, y in q), max(x for x, _ in q), max(y for _, y in q)) for q in p.paths]
    table = np.asarray([(*a, *b) for q in p.paths for a, b in pairwise(q)], dtype=float).reshape(-1, 4)
    ends = table.reshape(-1, 2, 2)
    line_boxes = np.concatenate([ends.min(axis=1), ends.max(axis=1)], axis=1)
    lines = [QLineF(a, b, c, d) for a, b, c, d in table.tolist()]
    return Drawing(rects, np.asarray(boxes, dtype=float).reshape(-1, 4), line_boxes, lines)
