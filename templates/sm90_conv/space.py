"""The parameter space of the persistent convolution as data: CTA tiles, cluster shapes, schedules."""

from collections.abc import Iterator

from templates.sm90_common import MAX_ACCUMULATORS

TILES_M = (64, 128, 192, 256)
TILES_N = (64, 96, 128, 192, 256)
TILES_K = (64, 32)  # input channels of a step; 32 for the channels that 64 would half waste
CLUSTERS = ((1, 1), (2, 1), (1, 2))  # 2x1 shares weights, 1x2 shares pixels
SCHEDULES = ("pingpong", "cooperative")


def points() -> Iterator[dict[str, int | str]]:
    """Every point within the schedules' own limits: registers, and 64 rows for each cooperating warp group."""
    for schedule in SCHEDULES:
        threads = 128 if schedule == "pingpong" else 256
        for m in TILES_M:
            for n in TILES_N:
                if m * n // threads > MAX_ACCUMULATORS or (schedule == "cooperative" and m % 128):
                    continue
                for k in TILES_K:
                    for cluster_m, cluster_n in CLUSTERS:
                        yield {
                            "tile_m": m, "tile_n": n, "tile_k": k,
                            "cluster_m": cluster_m, "cluster_n": cluster_n, "schedule": schedule,
                        }  # fmt: skip


def stem(point: dict[str, int | str]) -> str:
    p = point
    return f"{p['tile_m']}x{p['tile_n']}x{p['tile_k']}_{p['cluster_m']}x{p['cluster_n']}_{p['schedule']}"
