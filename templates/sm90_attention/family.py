"""The sm90_attention family: our own Hopper kernel. What it refuses, sm80_attention computes."""

from collections.abc import Iterator

from templates.attention import AttentionWorkload, MaskKind
from templates.emit import render, wrap
from templates.family import Candidate, Kernel, Launch, Score
from templates.gpu import GpuSpec
from templates.sm90_attention import rules
from templates.sm90_attention.space import CONSUMER_REGISTERS, INSTANCES, Instance, boxed, stepped
from templates.sm90_common import FLAGS, TMA_BYTES, wgmma_refusal
from templates.workload import Workload

MAX_WIDTH = 256


class Sm90Attention:
    """Family; see templates/family.py for the contract. Values are widened to whole boxes of 64 inside the kernel."""

    name = "sm90_attention"
    version = 1
    min_sm = 90
    max_sm = 90
    pitched = False

    def refuses(self, workload: Workload, gpu: GpuSpec) -> str | None:
        if not isinstance(workload, AttentionWorkload):
            return "the family computes attention"
        refused = wgmma_refusal(workload, gpu)
        if refused:
            return refused
        for what, width in (("head", workload.head_dim), ("value", workload.value_dim)):
            if width > MAX_WIDTH:
                return f"a {what} width of {width} is more than {MAX_WIDTH}"
        step = TMA_BYTES // workload.dtype.itemsize
        for what, strides in (
            ("queries", workload.q), ("keys", workload.k), ("values", workload.v), ("the result", workload.out)
        ):  # fmt: skip
            odd = next((s for s in reversed(strides) if s % step), None)
            if odd is not None:
                return f"{what} have a stride of {odd}, TMA's are multiples of {step} elements"
        return None

    def kernels(self, workload: Workload, gpu: GpuSpec) -> Iterator[Kernel]:
        if self.refuses(workload, gpu) or not isinstance(workload, AttentionWorkload):
            return
        head, value = stepped(workload.head_dim), boxed(workload.value_dim)
        for instance in INSTANCES:
            params = instance.params | {
                "head": head, "value": value, "mask": str(workload.mask), "causal": int(workload.causal)
            }  # fmt: skip
            yield Kernel(
                self.name, tuple(sorted(params.items())), workload.epilogue, workload.dtype, workload.accumulator,
                stem=f"{instance.stem}_d{head}x{value}{workload.seen}",
            )  # fmt: skip

    def illegal(self, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> str | None:
        refused = self.refuses(workload, gpu)
        if refused or not isinstance(workload, AttentionWorkload):
            return refused
        instance, head, value = instance_of(kernel), kernel.int("head"), kernel.int("value")
        if (kernel.dtype, kernel["mask"], kernel.int("causal")) != (
            workload.dtype, str(workload.mask), int(workload.causal),
        ):  # fmt: skip
            return "built for another type or mask"
        if (head, value) != (stepped(workload.head_dim), boxed(workload.value_dim)):
            return f"built for widths of {head} and {value}"
        if instance.smem_bytes(head, value) > gpu.smem_per_block:
            return f"{instance.smem_bytes(head, value)} bytes of shared memory, a block has {gpu.smem_per_block}"
        if instance.registers(value) > CONSUMER_REGISTERS[instance.groups]:
            needed, given = instance.registers(value), CONSUMER_REGISTERS[instance.groups]
            return f"scores and results take about {needed} registers a thread, {given} are there"
        if instance.rows >= 2 * max(64, workload.q_len):
            return f"half of a tile's {instance.rows} queries or more would be none: the length is {workload.q_len}"
        if instance.columns >= 2 * max(64, workload.kv_len):
            return f"half of a step's {instance.columns} keys or more would be none: the length is {workload.kv_len}"
        return None

    def launches(self, kernel: Kernel, workload: Workload, gpu: GpuSpec) -> list[Launch]:
        return [Launch(pdl=True), Launch()]

    def score(self, candidate: Candidate, workload: Workload, gpu: GpuSpec) -> Score:
        if not isinstance(workload, AttentionWorkload):
            raise ValueError(f"{self.name} scores attention only")
        return rules.score(instance_of(candidate.kernel), candidate.launch, workload, gpu)

    def source(self, kernel: Kernel) -> str:
        instance, head, value = instance_of(kernel), kernel.int("head"), kernel.int("value")
        body = render(
            __file__, "kernel.cu.jinja", element=kernel.dtype.cutlass, head=head, value=value, instance=instance,
            causal=bool(kernel.int("causal")), mask=MaskKind(str(kernel["mask"])).code,
            smem_bytes=instance.smem_bytes(head, value),
        )  # fmt: skip
        return wrap(kernel, ("bolt/sm90_attention.cuh",), body)

    def flags(self, kernel: Kernel, gpu: GpuSpec) -> tuple[str, ...]:
        return FLAGS

    def compile_seconds(self, kernel: Kernel) -> tuple[float, float]:
        return 20.0, 4.0


def instance_of(kernel: Kernel) -> Instance:
    return Instance(kernel.int("groups"), kernel.int("keys"), kernel.int("stages"), bool(kernel.int("turns")))
