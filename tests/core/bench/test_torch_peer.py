"""What PyTorch is given, over a stand-in for it."""

import numpy as np
import pytest

from core.bench.torch_peer import _to_gpu, unsupported
from core.importer.load import load_graph
from tests.core.fusion.attention_models import operator_packed


class Tensor:
    def __init__(self, array: np.ndarray) -> None:
        assert array.flags.writeable and array.flags.c_contiguous
        self.array = array

    def cuda(self) -> "Tensor":
        return self

    half = contiguous = cuda

    def is_floating_point(self) -> bool:
        return self.array.dtype.kind == "f"

    def dim(self) -> int:
        return self.array.ndim


class Torch:
    @staticmethod
    def from_numpy(array: np.ndarray) -> Tensor:
        return Tensor(array)


@pytest.mark.parametrize(
    "constant",
    [
        np.broadcast_to(np.float32(0.5), (3, 4)),
        np.broadcast_to(np.float32(0.5), ()),
        np.frombuffer(np.arange(6, dtype=np.float32).tobytes(), np.float32).reshape(2, 3),
        np.ones((4, 6), np.float32)[:, ::2],
        np.ones((2, 3), np.float32),
    ],
    ids=["one number", "scalar", "read-only", "strided", "plain"],
)
def test_constants_reach_torch_writable_and_whole(constant: np.ndarray) -> None:
    np.testing.assert_array_equal(_to_gpu(Torch, constant).array, constant)


@pytest.mark.parametrize("name", ["mobilenet-v2", "gpt2", "bert-base", "dlrm"])
def test_the_samples_have_a_pytorch_form(name: str) -> None:
    assert unsupported(load_graph(name)) == []


def test_the_attention_operator_has_a_pytorch_form() -> None:
    assert unsupported(load_graph(operator_packed().SerializeToString())) == []
