from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from core.search.rank import other_launches, rank
from templates.epilogue import parse_epilogue
from templates.family import Candidate, Kernel, Score
from templates.gpu import KNOWN_GPUS
from templates.workload import ConvWorkload
from tests.core.tuning_stubs import H200, StubFamily, gemm, kernels_of

MANY = StubFamily(tiles=tuple(range(8, 200, 3)))
SLOW = StubFamily("slow", bias_us=40.0)


class Clusters(StubFamily):
    """Every point shares one tile and is good."""

    def kernels(self, workload, gpu):
        for cluster in range(20):
            yield Kernel(self.name, (("tile", 128), ("cluster", cluster)), workload.epilogue, stem=f"128_c{cluster}")


def names(ranking):
    return [r.candidate.name for r in ranking.candidates]


def test_order_is_the_estimates(tmp_path):
    ranking = rank(gemm(), H200, {"stub": MANY}, limit=10)
    estimates = [r.score.us for r in ranking.candidates]
    assert estimates == sorted(estimates) and len(estimates) == 10
    assert ranking.legal == len(MANY.tiles) and ranking.skipped == ranking.legal - 10


def test_every_legal_family_with_a_chance_is_tried():
    ranking = rank(gemm(), H200, {"stub": MANY, "slow": SLOW}, limit=10)
    assert [r.kernel.family for r in ranking.candidates].count("slow") == 1
    assert ranking.candidates[-1].kernel.family == "slow"


def test_a_family_that_is_ten_times_off_takes_no_place_from_others():
    hopeless = StubFamily("hopeless", bias_us=500.0)
    ranking = rank(gemm(), H200, {"stub": MANY, "hopeless": hopeless}, limit=10)
    assert {r.kernel.family for r in ranking.candidates} == {"stub"}
    alone = rank(gemm(), H200, {"hopeless": hopeless}, limit=10)
    assert len(alone.candidates) == len(hopeless.tiles)


def test_a_rival_family_gets_several_places():
    ranking = rank(gemm(), H200, {"stub": MANY, "rival": StubFamily("rival", MANY.tiles, bias_us=4.0)}, limit=16)
    assert [r.kernel.family for r in ranking.candidates].count("rival") >= 4


def test_one_tile_takes_no_more_than_its_share():
    ranking = rank(gemm(), H200, {"stub": MANY, "clusters": Clusters("clusters")}, limit=16)
    assert [r.kernel.stem.startswith("128_") for r in ranking.candidates].count(True) <= 5
    assert len(ranking.candidates) == 16


def test_each_named_choice_near_the_best_gets_places():
    class Schedules(StubFamily):
        def kernels(self, workload, gpu):
            for kernel in super().kernels(workload, gpu):
                for schedule in ("plain", "other", "slow"):
                    params = (*kernel.params, ("schedule", schedule))
                    yield replace(kernel, params=params, stem=f"{kernel.stem}_{schedule}")

        def score(self, candidate, workload, gpu):
            factor = {"plain": 0.5, "other": 0.54, "slow": 0.8}[candidate.kernel["schedule"]]
            tile = candidate.kernel.int("tile")
            return Score(10.0 * (1 + tile / 1e6) * factor, "")

    ranking = rank(gemm(), H200, {"stub": Schedules(tiles=MANY.tiles)}, limit=16)
    taken = [r.kernel["schedule"] for r in ranking.candidates]
    assert (taken.count("plain"), taken.count("other"), taken.count("slow")) == (14, 2, 0)


def test_memory_bound_products_of_resnet_are_left_to_hopper_kernels():
    """On the H200 sm80-class kernels took 54 and 32 us on these, sm90 ones 33 and 19."""
    for shape in ((100352, 256, 64), (25088, 512, 128)):
        workload = gemm(*shape, epilogue=parse_epilogue("bias+add+relu"))
        for limit in (6, 16):
            families = Counter(r.kernel.family for r in rank(workload, H200, limit=limit).candidates)
            assert families["sm90_gemm"] >= limit * 2 // 3
        schedules = {r.kernel["schedule"] for r in rank(workload, H200).candidates if r.kernel.family == "sm90_gemm"}
        assert "cooperative" in schedules  # it won both


def test_illegal_and_refused_keep_their_reasons():
    ranking = rank(gemm(), H200, {"stub": replace(MANY, tiles=(7, 32)), "turing": StubFamily("turing", max_sm=75)})
    assert [reason for _, reason in ranking.illegal] == ["tile 7 is odd"]
    assert ranking.refused == (("turing", "is for compute capability 7.5 to 7.5"),)
    nothing = rank(ConvWorkload(1, 8, 8, 8, 8, 3, 3), H200, {"stub": MANY})
    assert nothing.candidates == () and nothing.refused == (("stub", "the stub has GEMM only"),)


def test_an_estimate_that_is_no_number_is_a_reason():
    class Wild(StubFamily):
        def score(self, candidate, workload, gpu):
            return Score(float("inf"), "")

    ranking = rank(gemm(), H200, {"wild": Wild()})
    assert ranking.candidates == () and ranking.illegal[0][1] == "its estimate is inf"


def test_a_built_kernel_goes_before_an_equal_one():
    unbuilt = rank(gemm(), H200, {"stub": MANY}, limit=3)
    second = unbuilt.candidates[1].kernel
    assert rank(gemm(), H200, {"stub": MANY}, limit=3, built={second}).candidates[0].kernel == second
    worst = max(kernels_of(MANY), key=lambda k: k.int("tile"))
    assert worst not in [r.kernel for r in rank(gemm(), H200, {"stub": MANY}, limit=3, built={worst}).candidates]


@given(limit=st.integers(1, 40), m=st.integers(1, 10_000), built=st.sets(st.sampled_from(kernels_of(MANY)), max_size=9))
def test_a_ranking_never_repeats_nor_exceeds(limit, m, built):
    ranking = rank(gemm(m=m), H200, {"stub": MANY, "slow": SLOW}, limit=limit, built=built)
    kernels = [r.kernel for r in ranking.candidates]
    assert len(kernels) == len(set(kernels)) == min(limit, ranking.legal)
    assert ranking.skipped + len(kernels) == ranking.legal


def test_other_launches_leave_out_what_was_tried():
    first = Candidate(kernels_of(MANY)[0], MANY.launches(kernels_of(MANY)[0], gemm(), H200)[0])
    others = other_launches(first, gemm(), H200, {"stub": MANY})
    assert len(others) == 2 and first not in others
    assert other_launches(first, gemm(), H200, {"stub": MANY}, tried={o.name for o in others}) == []


def test_real_families_rank_a_gemm_for_every_known_gpu():
    for spec in KNOWN_GPUS.values():
        ranking = rank(gemm(), spec)
        assert ranking.candidates, spec.name
        assert names(ranking) == names(rank(gemm(), spec))
