"""The stem convolution: what it refuses, its ranking, and its arithmetic proven without a GPU.

The addresses that the kernel's descriptors name are followed in numpy, over shared memory filled as TMA and the
kernel's own (host-callable) weight gathering fill it, and the result must be the convolution.
"""

import ctypes
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.build.nvcc import base_command, parse_ptxas, run
from core.build.toolchain import find_toolchain
from core.measure.args import args_of
from core.search.rank import rank
from templates import families
from templates.emit import namespace_of
from templates.epilogue import parse_epilogue
from templates.family import Candidate, Kernel, Launch, candidate_from_dict, candidate_to_dict
from templates.gpu import KNOWN_GPUS
from templates.sm90_stem import geometry
from templates.sm90_stem.family import instance_of
from templates.sm90_stem.space import INSTANCES
from templates.types import DType
from templates.workload import ConvWorkload, GemmWorkload

H200, A100 = KNOWN_GPUS["h200"], KNOWN_GPUS["a100"]
STEM = families()["sm90_stem"]
BIAS_RELU = parse_epilogue("bias+relu")


def conv(
    n: int, h: int, w: int, c: int, k: int, r: int, s: int, pad: tuple[int, int, int, int], stride: tuple[int, int]
) -> ConvWorkload:
    return ConvWorkload(n, h, w, c, k, r, s, pad, stride, epilogue=BIAS_RELU)


RESNET = conv(32, 224, 224, 4, 64, 7, 7, (3, 3, 3, 3), (2, 2))
VGG = conv(32, 224, 224, 4, 64, 3, 3, (1, 1, 1, 1), (1, 1))
MOBILENET = conv(32, 224, 224, 4, 32, 3, 3, (0, 0, 1, 1), (2, 2))
EIGHT = conv(4, 56, 56, 8, 48, 3, 3, (1, 1, 1, 1), (1, 1))


@pytest.mark.parametrize("workload", [RESNET, VGG, MOBILENET], ids=lambda w: w.key.split(" e")[0].replace(" ", "-"))
def test_first_layers_are_tried_with_this_family_first(workload):
    assert rank(workload, H200).candidates[0].kernel.family == "sm90_stem"


def test_full_rows_and_no_idle_pixels_are_preferred():
    best = rank(RESNET, H200, {"sm90_stem": STEM}).candidates[0]
    assert instance_of(best.kernel).pixels in (56, 112)
    assert best.candidate.launch.pdl and best.candidate.launch.variant > 1


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"c": 16}, "16 channels"),
        ({"stride": (4, 4)}, "stride 4"),
        ({"w": 223}, "16 bytes"),
        ({"k": 60}, "K = 60"),
        ({"dilation": (2, 2)}, "dilation"),
        ({"groups": 2}, "groups"),
        ({"dtype": DType.F32}, "f32"),
        ({"epilogue": parse_epilogue("bias+add+relu")}, "source"),
        ({"epilogue": parse_epilogue("bias->f32")}, "f32"),
    ],
)
def test_refusals_name_the_cause(change, word):
    fields = {name: getattr(RESNET, name) for name in RESNET.__dataclass_fields__} | change
    assert word in (STEM.refuses(ConvWorkload(**fields), H200) or "")


def test_other_work_and_other_gpus_are_refused():
    assert STEM.refuses(GemmWorkload(64, 64, 64), H200)
    assert STEM.refuses(RESNET, A100)


def test_stems_are_unique_and_candidates_survive_their_file_form():
    kernels = list(STEM.kernels(RESNET, H200))
    assert len({k.name for k in kernels}) == len(kernels) == len(INSTANCES)
    for kernel in kernels:
        candidate = Candidate(kernel, Launch(variant=4, pdl=True))
        assert candidate_from_dict(candidate_to_dict(candidate)) == candidate


WORKLOADS = st.builds(
    conv,
    st.integers(1, 3), st.integers(1, 80), st.integers(1, 40).map(lambda half: 2 * half), st.sampled_from([4, 8]),
    st.sampled_from([8, 32, 48, 64, 96, 256]), st.integers(1, 7), st.integers(1, 7),
    st.tuples(*[st.integers(0, 3)] * 4), st.tuples(st.integers(1, 2), st.integers(1, 2)),
)  # fmt: skip


@given(WORKLOADS, st.sampled_from(INSTANCES))
def test_a_legal_kernel_has_launches_that_fit(workload, instance):
    kernel = next(k for k in STEM.kernels(workload, H200) if k.stem == instance.stem)
    if workload.p <= 0 or workload.q <= 0 or STEM.illegal(kernel, workload, H200):
        return
    launches = STEM.launches(kernel, workload, H200)
    assert launches and {launch.pdl for launch in launches} == {True, False}
    for launch in launches:
        laid = geometry.lay(instance, workload, launch.variant)
        assert not isinstance(laid, str)
        assert laid.smem <= H200.smem_per_block and laid.stages >= 2
        assert STEM.score(Candidate(kernel, launch), workload, H200).us > 0


# ---- The kernel's own host code.

CHECKED = ("16x2_4g_1b", "32x1_4g_1b", "56x2_4g_2b", "112x1_4g_1b", "112x2_2g_2b", "120x1_4g_1b")
FACTS = (
    "row_elements", "filter_rows", "row_units", "units", "steps", "row_pitch", "block_rows", "stages", "blocks",
    "blocks_across", "blocks_per_image", "column_step", "first_column", "row_step", "first_row", "stage_bytes",
    "box_bytes", "channel_tiles", "shift[0]", "shift[1]",
)  # fmt: skip
# Facts of a plan, then its step words; and the weights' shared memory, as `load_weights` fills it.
APPENDED = """
extern "C" BOLT_EXPORT int plan_{name}(bolt_args const* args, int* to) {{
  bolt::stem::Plan<{ns}::Config> plan;
  if (!plan.make(*args)) return 0;
  auto const& p = plan.params;
  int const facts[] = {{{facts}}};
  for (int fact : facts) *to++ = fact;
  *to++ = plan.smem;
  for (int i = 0; i < p.steps; ++i) to[i] = int(p.step[i]);
  return 1;
}}
extern "C" BOLT_EXPORT void weights_{name}(bolt_args const* args, uint64_t* to) {{
  bolt::stem::Plan<{ns}::Config> plan;
  plan.make(*args);
  auto const& p = plan.params;
  int const phases = {ns}::Config::kPhases;
  for (int i = 0; i < p.channel_tiles * phases * p.steps * 128; ++i) {{
    int const step = i / 128, part = step / p.steps, channel = part / phases * 64 + i % 64;
    int const unit = bolt::stem::unit_of(p.units, step % p.steps, i / 64 % 2);
    uint64_t pieces[2];
    bolt::stem::load_unit(p, channel, unit, p.lead[part % phases], pieces);
    to[2 * i] = pieces[0], to[2 * i + 1] = pieces[1];
  }}
}}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Kernel], ctypes.CDLL]:
    """Some instances compiled: none spills, none has its wgmma serialized."""
    folder = tmp_path_factory.mktemp("stem")
    kernels = [k for k in STEM.kernels(RESNET, H200) if k.stem in CHECKED]
    text = "".join(STEM.source(k) for k in kernels)
    for kernel in kernels:
        facts = ", ".join(f"p.{fact}" for fact in FACTS)
        text += APPENDED.format(name=kernel.stem, ns=namespace_of(kernel), facts=facts)
    file, library = folder / "kernels.cu", folder / "kernels.so"
    file.write_text(text)
    flags = STEM.flags(kernels[0], H200)
    ran = run([*base_command(find_toolchain()), *flags, "-Xptxas=-v", "-shared", file, "-o", library], folder)
    assert ran.status == 0, ran.log[-3000:]
    usage = parse_ptxas(ran.log)
    assert len(usage) == len(kernels) and all(u.spill_bytes == 0 for u in usage), usage
    assert "wgmma" not in ran.log and "warning" not in ran.log, ran.log
    return kernels, ctypes.CDLL(str(library))


class Emulated:
    """A kernel's plan for a problem, and what its descriptors would read."""

    def __init__(self, library: ctypes.CDLL, kernel: Kernel, w: ConvWorkload, rows: int, weights: np.ndarray):
        self.instance, self.w = instance_of(kernel), w
        args = args_of(w, Launch(variant=rows), H200.sm_count)
        args.b, args.bias = weights.ctypes.data, 1 << 20
        found = (ctypes.c_int * 128)()
        assert getattr(library, f"plan_{kernel.stem}")(ctypes.byref(args), found)
        self.facts = dict(zip(FACTS, found, strict=False))
        self.smem = found[len(FACTS)]
        self.steps = list(found)[len(FACTS) + 1 :][: self.facts["steps"]]
        tiles = self.facts["channel_tiles"] * self.instance.phases
        self.weights = np.zeros(tiles * self.facts["steps"] * 1024, np.float16)
        getattr(library, f"weights_{kernel.stem}")(ctypes.byref(args), ctypes.c_void_p(self.weights.ctypes.data))

    def stage(self, images: np.ndarray, across: int, row: int, image: int) -> np.ndarray:
        """Shared memory of one stage as TMA fills it: NaN where it writes nothing."""
        f, w = self.facts, self.w
        pieces = images.reshape(w.n, w.h, w.w * w.c // 4, 4)
        stage = np.full(f["stage_bytes"] // 2, np.nan, np.float16)
        box = np.zeros((f["box_bytes"] // (f["row_pitch"] * 16), f["row_pitch"] * 2, 4), np.float16)
        x0 = across * f["column_step"] + f["first_column"]
        y0 = row * f["row_step"] + f["first_row"]
        assert x0 % 2 == 0, "TMA reads from addresses that are multiples of 16 bytes, anything else is illegal"
        ys = np.arange(max(0, y0), min(w.h, y0 + box.shape[0]))
        xs = np.arange(max(0, x0), min(pieces.shape[2], x0 + box.shape[1]))
        if len(ys) and len(xs):
            box[ys[0] - y0 : ys[-1] - y0 + 1, xs[0] - x0 : xs[-1] - x0 + 1] = pieces[image][np.ix_(ys, xs)]
        stage[: box.size] = box.ravel()
        return stage

    def item(self, stage: np.ndarray, row: int, tile: int) -> np.ndarray:
        """(pixels, 64) products of an output row of the block: what the wgmmas of all steps add up."""
        f, n = self.facts, self.instance.columns
        result = np.zeros((self.instance.pixels, 64), np.float32)
        for step, word in enumerate(self.steps):
            for phase in range(self.instance.phases):
                part = tile * self.instance.phases + phase
                a = _operand(self.weights[(part * f["steps"] + step) * 1024 :], 0, 64, leading=64)
                start = row * f["row_step"] * f["row_pitch"] + (word & 0x3FFF) + f[f"shift[{phase}]"]
                b = _operand(stage, start, n, leading=word >> 16)
                result[phase :: self.instance.phases] += b @ a.T
        return result


def _operand(memory: np.ndarray, start: int, rows: int, leading: int) -> np.ndarray:
    """(rows, 16) of a K-major operand without swizzle; `start` and `leading` in 16 bytes, 128 bytes between groups."""
    row, depth = np.mgrid[:rows, :16]
    units = start + row // 8 * 8 + row % 8 + depth // 8 * leading
    return memory[units * 8 + depth % 8].astype(np.float32)


def _reference(w: ConvWorkload, images: np.ndarray, weights: np.ndarray) -> np.ndarray:
    top, left, bottom, right = w.pad
    padded = np.pad(images.astype(np.float32), ((0, 0), (top, bottom), (left, right), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (w.r, w.s), axis=(1, 2))
    windows = windows[:, :: w.stride[0], :: w.stride[1]]
    return np.einsum("npqcrs,krsc->npqk", windows, weights.astype(np.float32))


def _random_workloads(count: int) -> list[ConvWorkload]:
    chance = random.Random(1)
    found = [
        conv(1, 16, 224, 4, 64, 7, 7, (3, 3, 3, 3), (2, 2)),
        conv(1, 9, 32, 4, 96, 3, 3, (1, 1, 1, 1), (1, 1)),
        conv(2, 9, 30, 8, 48, 3, 3, (1, 1, 1, 1), (1, 1)),
        conv(1, 9, 30, 4, 48, 5, 5, (2, 2, 2, 2), (2, 2)),
    ]
    while len(found) < count:
        c, stride = chance.choice([(4, 1), (4, 2), (8, 1)])
        pad = tuple(chance.randint(0, 3) for _ in range(4))
        size = chance.randint(1, 20), 2 * chance.randint(1, 70)
        taps = chance.randint(1, 7), chance.randint(1, 7)
        w = conv(chance.randint(1, 2), *size, c, 8 * chance.randint(1, 12), *taps, pad, (chance.randint(1, 3), stride))  # type: ignore[arg-type]
        if w.p > 0 and w.q > 0 and w.h + w.pad[0] + w.pad[2] >= w.r and w.w + w.pad[1] + w.pad[3] >= w.s:
            found.append(w)
    return found


@pytest.mark.compiles
@pytest.mark.timeout(600)
def test_descriptors_address_exactly_the_convolution(built):
    kernels, library = built
    chance, numbers = random.Random(2), np.random.default_rng(0)
    ran = 0
    for w in _random_workloads(40):
        images = numbers.integers(-3, 4, (w.n, w.h, w.w, w.c)).astype(np.float16)
        weights = numbers.integers(-3, 4, (w.k, w.r, w.s, w.c)).astype(np.float16)
        wanted = _reference(w, images, weights)
        for kernel in kernels:
            rows = chance.choice([1, 2, 4, 5])
            if isinstance(geometry.lay(instance_of(kernel), w, rows), str):
                continue
            ran += 1
            emulated = Emulated(library, kernel, w, rows, weights)
            got = np.full((w.n, w.p, w.q, w.k), np.nan, np.float32)
            for block in range(emulated.facts["blocks"]):
                image, rest = divmod(block, emulated.facts["blocks_per_image"])
                down, across = divmod(rest, emulated.facts["blocks_across"])
                stage = emulated.stage(images, across, down * rows, image)
                x = across * emulated.instance.pixels
                for row in range(min(rows, w.p - down * rows)):
                    for tile in range(emulated.facts["channel_tiles"]):
                        item = emulated.item(stage, row, tile)
                        place = got[image, down * rows + row, x : x + item.shape[0], tile * 64 : tile * 64 + 64]
                        place[:] = item[: place.shape[0], : place.shape[1]]
            assert np.array_equal(got, wanted), f"{kernel.stem}, {rows} rows: {w.key}"
    assert ran > 60


@pytest.mark.compiles
@pytest.mark.timeout(600)
def test_host_code_and_rules_agree_on_what_is_served(built):
    kernels, library = built
    chance = random.Random(3)
    seen = set()
    for _ in range(1500):
        c, stride = chance.choice([(4, 1), (4, 2), (8, 1), (8, 2), (16, 1)])
        pad = tuple(chance.randint(0, 5) for _ in range(4))
        size = chance.randint(12, 300), chance.randint(12, 300)
        taps = chance.randint(1, 12), chance.randint(1, 12)
        k, strides = 4 * chance.randint(1, 100), (chance.randint(1, 3), stride)
        w = conv(2, *size, c, k, *taps, pad, strides)  # type: ignore[arg-type]
        for kernel in kernels:
            rows = chance.choice([1, 2, 4, 8, 40])
            args = args_of(w, Launch(variant=rows), H200.sm_count)
            args.a = args.b = args.bias = args.d = 1 << 20  # never read
            served = getattr(library, f"bolt_check_{kernel.name}")(ctypes.byref(args)) == 0
            laid = STEM.refuses(w, H200) or geometry.lay(instance_of(kernel), w, rows)
            assert served == (not isinstance(laid, str)), (kernel.stem, w.key, rows, laid)
            if not isinstance(laid, str):
                facts = (ctypes.c_int * 128)()
                getattr(library, f"plan_{kernel.stem}")(ctypes.byref(args), facts)
                found = dict(zip((*FACTS, "smem"), facts, strict=False))
                assert (found["smem"], found["stages"], found["blocks"]) == (laid.smem, laid.stages, laid.blocks)
            seen.add(served)
    assert seen == {True, False}
