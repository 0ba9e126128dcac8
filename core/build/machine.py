"""How many compilers this machine, or the container it is seen from, can run side by side."""

import math
import os
import re
from pathlib import Path

NVCC_BYTES = 4 << 30  # one nvcc of an sm90 CUTLASS kernel takes 3 to 5 GB
LIGHT_NVCC_BYTES = 3 << 29  # one of a 2.x kernel takes 1 to 1.5 GB
_CGROUP = Path("/sys/fs/cgroup")


def default_jobs(bytes_each: int = NVCC_BYTES) -> int:
    """As many compilers side by side as cores and free memory allow, at least one."""
    return max(1, min(cores(), free_memory() // bytes_each))


def cores(cgroup: Path = _CGROUP) -> int:
    """Cores this process may use: its affinity, or the quota of a cgroup (version 2) if that is less; at least one."""
    mine = len(os.sched_getaffinity(0))
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
    except OSError:  # not in a version 2 cgroup with a processor controller
        return mine
    return mine if quota == "max" else max(1, min(mine, math.ceil(int(quota) / int(period))))


def free_memory(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = _CGROUP) -> int:
    """Bytes that can be taken: MemAvailable, or what a cgroup (version 2) leaves if that is less.

    A cgroup's usage counts files that were read; those not in use are given up when memory is asked for.
    """
    found = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo.read_text(), re.MULTILINE)
    free = int(found[1]) * 1024 if found else 0
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        used = int((cgroup / "memory.current").read_text())
        files = re.search(r"^inactive_file (\d+)$", (cgroup / "memory.stat").read_text(), re.MULTILINE)
    except OSError:  # not in a version 2 cgroup with a memory controller: the machine's figure holds
        return free
    used -= int(files[1]) if files else 0
    return free if limit == "max" else min(free, max(0, int(limit) - used))
