"""The PyTorch peer computes the same model as we do, and torch.compile can trace it whole."""

from pathlib import Path

import numpy as np
import onnx
import pytest

torch = pytest.importorskip("torch", reason="torch is the peer under test")
from core.bench.torch_peer import TorchPeer  # noqa: E402  it needs torch
from core.export.reference import random_inputs, reference_outputs  # noqa: E402
from core.importer.load import load_graph  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")]
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
MODELS = ["resnet18", "repvgg-a0", "bert-base", "dlrm", *(f"light_{n}" for n in ("squeezenet", "shufflenet"))]


@pytest.mark.parametrize("name", MODELS)
def test_the_peer_is_the_model(name: str) -> None:
    model = str(LIGHT / f"{name}.onnx") if name.startswith("light_") else name
    graph = load_graph(model)
    inputs = random_inputs(graph, seed=0)
    peer = TorchPeer(graph)
    tensors = peer.inputs(inputs)
    for found, wanted in zip(peer.run(tensors), reference_outputs(model, inputs), strict=True):
        assert np.linalg.norm(found - wanted) < 2e-2 * np.linalg.norm(wanted)
    traced = torch.compile(peer._module, backend="eager", fullgraph=True)
    with torch.inference_mode():
        for ours, theirs in zip(traced(*tensors), peer._module(*tensors), strict=True):
            assert torch.equal(ours, theirs)
