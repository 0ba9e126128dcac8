"""The convolution graph handed to cuDNN, on a frontend that writes it down."""

from typing import Any

import pytest

from core.measure.tensors import Slot
from core.vendor import VendorContext, VendorError, cudnn, peers, prepare
from core.vendor.cudnn import CuDnn, prefixes
from templates.epilogue import parse_epilogue
from templates.types import DType
from templates.workload import ConvWorkload, GemmWorkload


class NotSupported(Exception):
    pass


class Tensor:
    def __init__(self, words: str) -> None:
        self.words = words
        self.set: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        def keep(value: Any) -> "Tensor":
            self.set[name.removeprefix("set_")] = value
            return self

        return keep


class Graph:
    """pygraph: operations by name, plans as many as the frontend says."""

    def __init__(self, api: "Api", **arguments: Any) -> None:
        self.api, self.arguments = api, arguments
        self.tensors: dict[str, dict[str, Any]] = {}
        self.ops: list[str] = []
        self.conv: dict[str, Any] = {}
        self.executed: list[Any] = []
        api.graphs.append(self)

    def tensor(self, **arguments: Any) -> Tensor:
        self.tensors[arguments["name"]] = arguments
        return Tensor(arguments["name"])

    def conv_fprop(self, **arguments: Any) -> Tensor:
        self.conv = arguments
        return Tensor("conv")

    def __getattr__(self, name: str) -> Any:
        def operation(*arguments: Any, **named: Any) -> Tensor:
            self.ops.append(name)
            self.last = Tensor(name)
            return self.last

        return operation

    def validate(self) -> None: ...

    def build_operation_graph(self) -> None: ...

    def create_execution_plans(self, modes: list[str]) -> None:
        self.modes = modes

    def deselect_workspace_greater_than(self, nbytes: int) -> None:
        self.limit = nbytes

    def check_support(self) -> None:
        if len(self.ops) > self.api.fuses:
            raise NotSupported("no engine")

    def get_execution_plan_count(self) -> int:
        return len(self.api.plans)

    def get_plan_name_at_index(self, index: int) -> str:
        return self.api.plans[index]

    def build_plan_at_index(self, index: int) -> None:
        if self.api.plans[index] == "bad":
            raise NotSupported("not on this device")

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        return 1 << 40 if self.api.plans[index] == "hungry" else 0

    def execute_plan_at_index(self, pack: dict[int, int], workspace: int, index: int, handle: int) -> None:
        if self.api.plans[index] == "fails":
            raise RuntimeError("execution\nfailed")
        self.executed.append((pack, workspace, index, handle))


class Names:
    def __getattr__(self, name: str) -> str:
        return name


class Api:
    data_type, heur_mode, cudnnGraphNotSupportedError = Names(), Names(), NotSupported

    def __init__(self) -> None:
        self.graphs: list[Graph] = []
        self.plans = ["eng0", "eng1"]
        self.fuses = 99
        self.stream = 0

    def pygraph(self, **arguments: Any) -> Graph:
        return Graph(self, **arguments)

    def set_stream(self, handle: int, stream: int) -> None:
        self.stream = stream


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    made = Api()
    loaded = object.__new__(CuDnn)
    loaded.api, loaded.handle, loaded.source = made, 5, "cudnn 9.19.0"
    monkeypatch.setattr(cudnn, "library", lambda: loaded)
    return made


def conv(chain: str, **more: Any) -> ConvWorkload:
    values: dict[str, Any] = {"pad": (1, 2, 3, 4), "stride": (2, 1), "dilation": (1, 2), "groups": 4, **more}
    return ConvWorkload(2, 17, 19, 24, 16, 3, 5, epilogue=parse_epilogue(chain), **values)


def context(workload: ConvWorkload, rest: list[Any]) -> VendorContext:
    class Reference:
        def elementwise(self, *arguments: Any) -> None:
            rest.append(arguments)

    slots = [Slot(0x100, 0x200, 0x300, 0x400, 0x500)]
    return VendorContext(workload, None, Reference(), slots, 7, 0x900)  # type: ignore[arg-type]


def test_shapes_strides_and_pads(api: Api) -> None:
    work = conv("bias+add+relu")
    found = cudnn.peers(context(work, []))
    [graph] = api.graphs
    assert graph.tensors["x"]["dim"] == [2, 24, 17, 19] and graph.tensors["x"]["stride"] == [17 * 19 * 24, 1, 456, 24]
    assert graph.tensors["w"]["dim"] == [16, 6, 3, 5] and graph.tensors["w"]["stride"] == [90, 1, 30, 6]
    assert graph.tensors["bias"]["dim"] == [1, 16, 1, 1] and graph.tensors["source"]["dim"] == [2, 16, work.p, work.q]
    assert graph.conv["pre_padding"] == [1, 2] and graph.conv["post_padding"] == [3, 4]
    assert graph.conv["stride"] == [2, 1] and graph.conv["dilation"] == [1, 2]
    assert graph.arguments["compute_data_type"] == graph.arguments["intermediate_data_type"] == "FLOAT"
    assert graph.ops == ["bias", "add", "relu"]
    assert graph.last.set["dim"] == [2, 16, work.p, work.q] and graph.last.set["data_type"] == "HALF"
    assert [p.detail for p in found] == ["plan eng0; fused bias+add+relu", "plan eng1; fused bias+add+relu"]
    assert api.stream == 7 and found[0].source == "cudnn 9.19.0"
    found[1].launch(7, 0)
    assert graph.executed == [({1: 0x100, 2: 0x200, 3: 0x300, 4: 0x400, 5: 0x500}, 0x900, 1, 5)]


def test_a_shorter_prefix_and_our_kernel_for_the_rest(api: Api) -> None:
    api.fuses = 1
    separate: list[Any] = []
    [peer, _] = cudnn.peers(context(conv("bias+silu+add"), separate))
    assert peer.detail == "plan eng0; fused bias; separate silu+add"
    peer.launch(7, 0)
    assert [str(s) for s in separate[0][7]] == ["silu", "add"] and api.graphs[-1].executed[0][0].keys() == {1, 2, 3, 5}


def test_plans_that_do_not_build_or_ask_too_much_are_left_out(api: Api) -> None:
    api.plans = ["eng0", "bad", "eng0", "hungry", *(f"eng{i}" for i in range(1, 20))]
    found = cudnn.peers(context(conv("bias"), []))
    assert [p.detail.split()[1] for p in found] == [f"eng{i};" for i in range(cudnn.MAX_PLANS)]
    assert api.graphs[0].modes == ["A", "B", "FALLBACK"] and api.graphs[0].limit == 64 << 20


def test_plans_are_built_one_by_one_before_there_are_operands(api: Api) -> None:
    api.plans, api.fuses, work = ["eng0", "bad", "eng2"], 1, conv("bias+relu")
    assert [prepare(work) for _ in range(5)] == [True, True, True, False, False]
    built = len(api.graphs)
    found = cudnn.peers(context(work, []))
    assert [p.detail for p in found] == [f"plan eng{i}; fused bias; separate relu" for i in (0, 2)]
    assert len(api.graphs) == built, "the finals build nothing again"


def test_only_convolutions_have_something_to_prepare(api: Api) -> None:
    assert not prepare(GemmWorkload(64, 64, 64)) and not prepare(conv("relu", accumulator=DType.F16))
    assert not prepare(conv("relu", dtype=DType.I8)) and not any(g.executed for g in api.graphs)


def test_the_time_of_other_processes_costs_no_plan(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000, 3))
    monkeypatch.setattr(cudnn.time, "monotonic", lambda: next(clock))
    api.plans = [f"eng{i}" for i in range(6)]
    assert len(cudnn.peers(context(conv("bias"), []))) == 6
    spent = iter(x for i in range(99) for x in (0.0, 3.0))
    monkeypatch.setattr(cudnn.time, "process_time", lambda: next(spent))
    assert len(cudnn.peers(context(conv("bias+relu"), []))) == 3


def test_nothing_that_runs_is_a_note(api: Api) -> None:
    api.plans = ["bad"]
    found = peers(context(conv("relu"), []))
    assert found.found == [] and "cuDNN not compared" in found.notes[0] and "none of its plans" in found.notes[0]


def test_a_failing_execution_is_one_line(api: Api) -> None:
    api.plans = ["fails"]
    [peer] = cudnn.peers(context(conv("relu"), []))
    with pytest.raises(VendorError, match="cuDNN plan 0: execution failed"):
        peer.launch(7, 0)


def test_other_accumulators_and_types_are_notes(api: Api) -> None:
    assert "float32 accumulation" in peers(context(conv("relu", accumulator=DType.F16), [])).notes[0]
    assert "type i8" in peers(context(conv("relu", dtype=DType.I8), [])).notes[0]


@pytest.mark.parametrize(
    ("chain", "longest"),
    [
        ("bias+gelu_erf", 2), ("bias+gelu_tanh+add", 3), ("bias+hard_swish", 1), ("scale(2)+bias", 0),
        ("bias+elu(1)", 2), ("bias+elu(0.5)", 1), ("bias+clip(0,6)+mul", 3), ("identity", 0),
    ],
)  # fmt: skip
def test_prefixes(chain: str, longest: int) -> None:
    parsed = parse_epilogue(chain)
    found = list(prefixes(parsed))
    assert [len(fused) for fused, _ in found] == list(range(longest, -1, -1))
    assert all(fused + rest == parsed.ops for fused, rest in found)


def test_an_absent_frontend_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(cudnn, "load", lambda *arguments, **named: None)
    monkeypatch.setattr(cudnn.importlib, "import_module", absent)
    cudnn.library.cache_clear()
    found = peers(context(conv("relu"), []))
    assert found.found == [] and "nvidia-cudnn-frontend is not installed" in found.notes[0]
