"""The parameter space of the sm90 GEMM as data: CTA tiles, cluster shapes, schedules."""

from collections.abc import Iterator

from templates.sm90_common import MAX_ACCUMULATORS

# M x N. 64 rows suit small M and give more tiles; the large ones need few bytes for each multiply-add.
TILES_MN = (
    (64, 16), (64, 32), (64, 64), (64, 96), (64, 128), (64, 192), (64, 256),
    (128, 32), (128, 64), (128, 96), (128, 128), (128, 192), (128, 256),
    (256, 64), (256, 128),
)  # fmt: skip
TILES_K = (64, 128)
# CTAs along M x N that share tiles by TMA multicast. Four in a row fit few GPCs evenly and are kept for large tiles.
CLUSTERS = ((1, 1), (2, 1), (1, 2))
WIDE_CLUSTERS = ((4, 1), (1, 4))
# pingpong: a tile for each consumer warp group, one's epilogue behind the other's products.
# cooperative: one tile for both. stream_k: cooperative, work cut along K.
SCHEDULES = ("pingpong", "cooperative", "stream_k")


def accumulators(tile_m: int, tile_n: int, schedule: str) -> int:
    """fp32 accumulators a consumer thread holds."""
    return tile_m * tile_n // (128 if schedule == "pingpong" else 256)


def points() -> Iterator[dict[str, int | str]]:
    """Every point that the schedules' own limits allow: registers, and 64 rows for each cooperating warp group."""
    for schedule in SCHEDULES:
        for m, n in TILES_MN:
            if accumulators(m, n, schedule) > MAX_ACCUMULATORS or (schedule != "pingpong" and m < 128):
                continue
            for k in TILES_K:
                wide = WIDE_CLUSTERS if m * n >= 128 * 256 and k == 64 else ()
                for cluster_m, cluster_n in CLUSTERS + wide:
                    yield {
                        "tile_m": m, "tile_n": n, "tile_k": k,
                        "cluster_m": cluster_m, "cluster_n": cluster_n, "schedule": schedule,
                    }  # fmt: skip


def stem(point: dict[str, int | str]) -> str:
    p = point
    return f"{p['tile_m']}x{p['tile_n']}x{p['tile_k']}_{p['cluster_m']}x{p['cluster_n']}_{p['schedule']}"
