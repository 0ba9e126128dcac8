"""From a file to a protobuf message, and from its tensors to arrays; everything a hostile file can do ends here."""

from graphlib import CycleError, TopologicalSorter
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from core.errors import ModelError
from core.graph.proto import declared_shape, held_tensor

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

OLDEST_OPSET, NEWEST_OPSET = 7, 23
MAX_NODES = 30_000  # several times the largest published models; every pass is done with as many in 10 s
_MOST_BYTES = 2**31 - 1  # protobuf's limit for a message


def read_model(model: str | Path | bytes) -> tuple["ModelProto", Path | None]:
    """The message, and the folder that external data may lie in (None for bytes). Raises ModelError."""
    if isinstance(model, bytes):
        return parse_model(model, "the given bytes"), None
    path = Path(model)
    what = repr(str(model))
    try:
        if path.is_dir():
            raise ModelError(f"{what} is a folder, not a model", "name the .onnx file inside it")
        if not path.is_file():
            raise ModelError(f"there is no file {what}", "give the path of an ONNX model or a built-in name")
        if path.stat().st_size > _MOST_BYTES:
            raise ModelError(f"{what} is larger than 2 GiB, which no ONNX file can be", "save it with external data")
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{what} can't be read: {error.strerror}") from None
    return parse_model(data, what), path.parent


def parse_model(data: bytes, what: str) -> "ModelProto":
    """Raises ModelError if the bytes are no ONNX model of a supported opset."""
    import onnx
    from google.protobuf.message import DecodeError

    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except (DecodeError, RuntimeError, ValueError):
        raise ModelError(f"{what} is not an ONNX model, or the file is cut short", "export or copy it again") from None
    if not data or not proto.ir_version or not proto.HasField("graph"):
        raise ModelError(f"{what} is not an ONNX model: it holds no graph", "export or copy it again")
    if not proto.graph.node:
        raise ModelError(f"{what} holds a graph without nodes", "export or copy it again")
    check_count(len(proto.graph.node), what)
    if proto.functions:
        proto = _inlined(proto, what)
    opset_of(proto)
    return proto


def _inlined(proto: "ModelProto", what: str) -> "ModelProto":
    from onnx import checker, inliner

    _check_calls(proto, what)
    try:
        return inliner.inline_local_functions(proto)
    except (checker.ValidationError, RuntimeError, ValueError) as error:
        reason = str(error).rsplit("failed: ", 1)[-1]
        raise ModelError(f"{what} has local functions that can't be inlined: {reason}", "export it without") from None


def _check_calls(proto: "ModelProto", what: str) -> None:
    """Counts the nodes that calls make, before they are made: functions that call functions double them each time."""
    bodies = {(f.domain, f.name): [(n.domain, n.op_type) for n in f.node] for f in proto.functions}
    order = TopologicalSorter({name: [c for c in called if c in bodies] for name, called in bodies.items()})
    counts: dict[tuple[str, str], int] = {}
    try:
        for name in order.static_order():
            counts[name] = sum(counts.get(c, 1) for c in bodies[name])
    except CycleError as error:
        raise ModelError(
            f"{what} has a local function {error.args[1][0][1]!r} that calls itself", "export it again"
        ) from None
    check_count(sum(counts.get((n.domain, n.op_type), 1) for n in proto.graph.node), what)


def check_count(nodes: int, what: str) -> None:
    """Raises ModelError for more nodes than the passes get through in seconds."""
    if nodes > MAX_NODES:
        raise ModelError(f"{what} has {nodes} nodes: more than the {MAX_NODES} supported", "split the model")


def opset_of(proto: "ModelProto") -> int:
    """The version of the standard operators. Raises ModelError outside 7..23."""
    versions = [i.version for i in proto.opset_import if i.domain in ("", "ai.onnx")]
    if not versions:
        raise ModelError("the model does not say which ONNX opset it uses", "export it again")
    if not OLDEST_OPSET <= versions[0] <= NEWEST_OPSET:
        raise ModelError(
            f"the model uses ONNX opset {versions[0]}; {OLDEST_OPSET} to {NEWEST_OPSET} are supported",
            "export it with another opset",
        )
    return versions[0]


def read_tensor(tensor: "TensorProto", folder: Path | None) -> np.ndarray:
    """The value of an initializer. Nothing is allocated before the declared size is known to be there.

    Raises ModelError for sizes or types that no graph holds, and for external data outside the model's folder.
    """
    from onnx import TensorProto

    what = f"initializer {tensor.name!r}"
    if tensor.data_location != TensorProto.EXTERNAL:
        return held_tensor(tensor, what)
    shape, dtype = declared_shape(tensor, what)
    return _external(tensor, folder, prod(shape) * dtype.itemsize).view(dtype).reshape(shape)


def _external(tensor: "TensorProto", folder: Path | None, nbytes: int) -> np.ndarray:
    """`nbytes` bytes of a file in the model's folder or below it; links may not lead out of it."""
    what = f"external data of initializer {tensor.name!r}"
    entries = {e.key: e.value for e in tensor.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise ModelError(f"{what} needs the model's folder", "open the model by its path")
    path = Path(location)
    if not location or "\0" in location or path.is_absolute() or ".." in path.parts or "\\" in location:
        raise ModelError(f"{what} lies at {location!r}, which is not a path inside the model's folder")
    try:
        base = folder.resolve(strict=True)
        target = (base / path).resolve()
        if not target.is_relative_to(base):
            raise ModelError(f"{what} lies at {location!r}, a link that leaves the model's folder")
        if not target.is_file():
            raise ModelError(f"{what} is missing: there is no file {location!r} beside the model")
        held = target.stat().st_size
    except (OSError, RuntimeError) as error:  # a name too long, a link to itself, a folder that may not be entered
        raise ModelError(f"{what} can't be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        offset, length = int(entries.get("offset", "0")), int(entries.get("length", str(nbytes)))
    except ValueError:
        raise ModelError(f"{what} has an offset or length that is no number") from None
    if length != nbytes:
        raise ModelError(f"{what} is {length} bytes long, its shape needs {nbytes}")
    if offset < 0 or offset + length > held:
        raise ModelError(f"{what} reaches past the end of {location!r}: the file is cut short")
    try:
        return np.fromfile(target, np.uint8, count=nbytes, offset=offset)
    except OSError as error:
        raise ModelError(f"{what} can't be read: {error.strerror}") from None
