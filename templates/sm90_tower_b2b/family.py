"""The tower family: GEMMs one behind the other in one kernel, all intermediates in shared memory, weights constant."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from templates.emit import render, wrap
from templates.epilogue import Epilogue, parse_epilogue
from templates.family import Candidate, Kernel, Launch, Score
from templates.gpu import GpuSpec
from templates.sm90_common import EXTENDED_FLAGS, b2b_refusal, chain_source
from templates.sm90_tower_b2b import geometry, rules, space
from templates.sm90_tower_b2b.geometry import Tower
from templates.types import MatrixLayout, Residence
from templates.workload import Workload


@dataclass(frozen=True)
class Part:
    """One product's epilogue: a functor of every step but a final ReLU, which is a modifier of the conversion."""

    chain: str
    final_relu: bool


_INNER = ("inner", "inner1")


class Sm90Tower:
    """Family; see templates/family.py for the contract. The epilogues of the products before the last one are the
    parameters `inner` and `inner1`.
    """

    name = "sm90_tower_b2b"
    version = 1
    min_sm = 90
    max_sm = 90
    pitched = False

    def refuses(self, workload: Workload, gpu: GpuSpec) -> str | None:
        if not isinstance(workload, Tower):
            return "the family computes GEMMs one behind the other"
        refused = b2b_refusal(workload, gpu, Residence.SMEM)
        if refused:
            return refused
        if (workload.first.layout_a, workload.first.layout_b) != (MatrixLayout.ROW, MatrixLayout.COL):
            return "reads a row-major A and a column-major B"
        return _shape_refusal(workload)

    def kernels(self, workload: Workload, gpu: GpuSpec) -> Iterator[Kernel]:
        if not isinstance(workload, Tower):
            return
        inner = [str(part.epilogue) for part in workload.parts[:-1]]
        named = dict(zip(_INNER, inner, strict=False))
        idents = "_".join(part.epilogue.ident for part in workload.parts[:-1])
        for instance in space.instances():
            yield Kernel(
                family=self.name,
                params=tuple(sorted((asdict(instance) | named).items())),
                epilogue=workload.epilogue,
                dtype=workload.dtype,
                accumulator=workload.accumulator,
                stem=f"{instance.stem}_{idents}",
            )

    def illegal(self, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> str | None:
        refused = self.refuses(workload, gpu)
        if refused or not isinstance(workload, Tower):
            return refused
        epilogues = epilogues_of(kernel)
        if (epilogues, kernel.dtype) != (tuple(p.epilogue for p in workload.parts), workload.dtype):
            return "built for other types or another epilogue"
        i = instance_of(kernel)
        layout = geometry.lay(i, workload)
        if isinstance(layout, str):
            return layout
        if all(layer.width <= space.CHANNELS * (i.groups // 2) for layer in layout.layers):
            return f"{i.groups} warp groups, half of which never have channels"
        if i.rows > space.ROWS[0] and layout.tiles <= gpu.sm_count // 2:
            return f"{layout.tiles} tiles leave half of the SMs idle; fewer rows make more of them"
        return geometry.register_objection(i, epilogues)

    def launches(self, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> list[Launch]:
        return [Launch(pdl=True), Launch()]

    def score(self, candidate: Candidate, workload: Workload, gpu: GpuSpec) -> Score:
        if not isinstance(workload, Tower):
            raise ValueError(f"{self.name} scores chains of GEMMs only")
        return rules.score(instance_of(candidate.kernel), candidate.launch, workload, gpu)

    def source(self, kernel: Kernel) -> str:
        epilogues = epilogues_of(kernel)
        body = render(
            __file__,
            "kernel.cu.jinja",
            parts=[Part(*chain_source(e, f"Chain{i}")) for i, e in enumerate(epilogues)],
            element=kernel.dtype.cutlass,
            layers=len(epilogues),
            **asdict(instance_of(kernel)),
        )
        return wrap(kernel, ("bolt/sm90_tower.cuh",), body)

    def flags(self, kernel: Kernel, gpu: GpuSpec) -> tuple[str, ...]:
        # Its own widths are native, but the header with the wgmma wrappers names all.
        return EXTENDED_FLAGS

    def compile_seconds(self, kernel: Kernel) -> tuple[float, float]:
        return 9.0, 1.0


def instance_of(kernel: Kernel) -> space.Instance:
    """The instance whose parameters the kernel carries. Raises KeyError on parameters that are not an instance's."""
    return space.Instance(kernel.int("rows"), kernel.int("groups"))


def epilogues_of(kernel: Kernel) -> tuple[Epilogue, ...]:
    """Of each product, the first one first."""
    params = dict(kernel.params)
    return (*(parse_epilogue(str(params[name])) for name in _INNER if name in params), kernel.epilogue)


def _shape_refusal(chain: Tower) -> str | None:
    parts = chain.parts
    depths = {"K": parts[0].k} | {f"N{i}": p.n for i, p in enumerate(parts[:-1])}
    for letter, extent in depths.items():
        if extent % 8:
            return f"{letter} = {extent} is not a multiple of 8: TMA moves rows in 16-byte units"
    for i, part in enumerate(parts):
        if part.n > space.MAX_WIDTH:
            return f"residence: a block covers N{i} up to {space.MAX_WIDTH}, N{i} = {part.n}"
    return None
