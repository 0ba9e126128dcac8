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
    "vgg16": ("vgg", "vgg", (16,)),
    "vgg19": ("vgg", "vgg", (19,)),
    "repvgg-a0": ("vgg", "repvgg", ("a0",)),
    "repvgg-a0-aug": ("vgg", "repvgg", ("a0", True)),
    "repvgg-b0": ("vgg", "repvgg", ("b0",)),
    "mobilenet-v2": ("mobilenet", "mobilenet_v2", ()),
    "vit-b16": ("vit", "vit_b16", ()),
    "bert-base": ("bert", "bert_base", (40,)),
    "bert-base-128": ("bert", "bert_base", (128,)),
    "gpt2": ("gpt2", "gpt2", ()),
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
