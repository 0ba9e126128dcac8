import json
from itertools import pairwise

import numpy as np

from core.export.memory import ALIGNMENT
from core.export.weights import fnv1a, write_weights
from tests.core.export.models import Model, lowered


def test_the_file_is_safetensors_without_holes(tmp_path):
    m = Model()
    y = m.conv(m.input(1, 3, 6, 6), 3, 8)
    program = lowered(m.build(m.op("Mul", y, m.weight(8, 1, 1)), m.op("Gather", y, m.const(np.array([1, 2])), axis=2)))
    weights = write_weights(program, tmp_path / "w.safetensors")
    data = (tmp_path / "w.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert weights.fingerprint == fnv1a(data[8 : 8 + length]) and length == weights.header_bytes
    assert len(data) == 8 + length + weights.data_bytes
    header.pop("__metadata__")
    spans = sorted(e["data_offsets"] for e in header.values())
    assert spans[0][0] == 0 and spans[-1][1] == weights.data_bytes
    assert all(a[1] == b[0] for a, b in pairwise(spans))
    for constant in weights.constants:
        assert constant.device_offset % ALIGNMENT == 0
        start = 8 + length + constant.file_offset
        assert data[start : start + constant.nbytes] == program.constants[constant.buffer].tobytes()


def test_the_fingerprint_tells_contents_apart(tmp_path):
    found = []
    for seed in (0, 1):
        m = Model(seed)
        program = lowered(m.build(m.conv(m.input(1, 4, 4, 4), 4, 8)))
        found.append(write_weights(program, tmp_path / "w").fingerprint)
    assert found[0] != found[1]
