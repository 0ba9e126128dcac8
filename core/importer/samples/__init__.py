"""Built-in sample models: the published architectures with seeded random weights, built in memory."""

import importlib
from typing import TYPE_CHECKING

from core.errors import ModelError

if TYPE_CHECKING:
    from onnx import ModelProto

# name -> (module of this package, function in it, its arguments)
_BUILDERS: dict[str, tuple[str, str, tuple[object, ...]]] = {
    "resnet18": ("resnet", "resnet", (18,)),
    "resnet50": ("resnet", "resnet", (50,)),
    "vgg16": ("vgg", "vgg16", ()),
    "repvgg-a0": ("vgg", "repvgg_a0", ()),
    "repvgg-a0-aug": ("vgg", "repvgg_a0", (True,)),
    "bert-base": ("bert", "bert_base", ()),
    "mlp": ("mlp", "mlp", ()),
    "dlrm": ("dlrm", "dlrm", ()),
}


def sample_names() -> tuple[str, ...]:
    return tuple(_BUILDERS)


def build_sample(name: str) -> "ModelProto":
    """The model, float32, its batch the symbol N. Raises ModelError for an unknown name."""
    if name not in _BUILDERS:
        raise ModelError(f"there is no built-in model {name!r}", f"the names are {', '.join(_BUILDERS)}")
    module, function, arguments = _BUILDERS[name]
    return getattr(importlib.import_module(f"{__name__}.{module}"), function)(*arguments)
