"""The weights file: every constant of a program in the safetensors format, as the kernels read them.

Format: https://github.com/huggingface/safetensors#format (8 bytes of header length, a JSON header, the data without
holes). Tensors are named by buffer ("t12"), flat and already packed, so the library copies them to the GPU as they are.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from core.export.memory import ALIGNMENT
from core.export.program import Program
from templates.types import DType

_NAMES = {
    DType.F16: "F16", DType.BF16: "BF16", DType.F32: "F32", DType.F64: "F64", DType.I8: "I8", DType.U8: "U8",
    DType.I32: "I32", DType.I64: "I64", DType.BOOL: "BOOL",
}  # fmt: skip
_OF_OTHERS = 1 << 30


@dataclass(frozen=True)
class StoredConstant:
    """Where a constant lies: `file_offset` from the start of the data, `device_offset` in the block on the GPU."""

    buffer: int
    nbytes: int
    file_offset: int
    device_offset: int


@dataclass(frozen=True)
class WeightsFile:
    """What the library must know of its weights file. `fingerprint` is the FNV-1a 64 hash of the header's bytes.

    The header holds the SHA-256 of the data, so a file with another content has another fingerprint.
    """

    constants: tuple[StoredConstant, ...]
    header_bytes: int
    data_bytes: int
    device_bytes: int
    fingerprint: int


def write_weights(program: Program, path: Path) -> WeightsFile:
    """Write the file of one program. Raises OSError when it can't be written."""
    return write_shared_weights((program,), path)[0]


def write_shared_weights(programs: Sequence[Program], path: Path) -> tuple[WeightsFile, ...]:
    """Write one file for several programs, each content once; what each program must know of it.

    Every result's `constants` begin with the program's own; the first one's go on with what only others read, under
    buffer numbers that no program has, so that whoever reads the whole file by it has them all. Raises OSError.
    """
    owned = [(p, index) for p in range(len(programs)) for index in programs[p].constants]
    owned.sort(key=lambda of: (-programs[of[0]].buffers[of[1]].dtype.itemsize, *of))
    contents: dict[tuple[str, bytes], StoredConstant] = {}
    found: list[list[StoredConstant]] = [[] for _ in programs]
    entries, arrays = {}, []
    file_offset = device_offset = 0
    digest = hashlib.sha256()
    for p, index in owned:
        array, buffer = programs[p].constants[index], programs[p].buffers[index]
        raw = array.view(np.uint8).data
        content = _NAMES[buffer.dtype], hashlib.sha256(raw).digest()
        stored = contents.get(content)
        if stored is None:
            stored = contents[content] = StoredConstant(index, array.nbytes, file_offset, device_offset)
            entries[f"t{index}" if p == 0 else f"part{p}_t{index}"] = {
                "dtype": _NAMES[buffer.dtype],
                "shape": [buffer.elements],
                "data_offsets": [file_offset, file_offset + array.nbytes],
            }
            arrays.append(array)
            digest.update(raw)
            file_offset += array.nbytes
            device_offset += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
            if p > 0:
                found[0].append(replace(stored, buffer=_OF_OTHERS + len(contents)))
        found[p].append(replace(stored, buffer=index))
    header = json.dumps({"__metadata__": {"sha256": digest.hexdigest()}, **entries}).encode()
    header += b" " * (-len(header) % 8)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for array in arrays:
            file.write(array.view(np.uint8).data)
    mark = fnv1a(header)
    return tuple(WeightsFile(tuple(own), len(header), file_offset, device_offset, mark) for own in found)


def fnv1a(data: bytes) -> int:
    """The 64-bit FNV-1a hash; the library computes the same."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value
