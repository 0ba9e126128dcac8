"""A builder whose batches are compiled by the workers of a cluster, into the client's own cache."""

import threading
from collections.abc import Mapping
from pathlib import Path

from core.build.batches import Batch
from core.build.builder import Builder
from core.build.cache import Entry
from core.build.toolchain import Toolchain
from core.cluster.connection import BatchKilled, Connection
from core.cluster.tasks import BuiltBatch, Parts, build_batch
from templates.family import Family, Kernel
from templates.gpu import GpuSpec


class ClusterBuilder(Builder):
    """A ports.KernelBuilder. `jobs` follows the number of compilers that the cluster has.

    A compiler that runs when the job stops goes on on its worker, and what it makes is in that worker's cache.
    """

    def __init__(
        self,
        connection: Connection,
        parts: Parts,
        toolchain: Toolchain,
        gpu: GpuSpec,
        cache_dir: Path | None = None,
        families_by_name: Mapping[str, Family] | None = None,
    ) -> None:
        super().__init__(toolchain, gpu, cache_dir, max(1, connection.slots), families_by_name)
        self._connection, self._parts = connection, parts

    def has_memory_for(self, batch: Batch, running: int) -> bool:
        """The workers' hosts were asked when their slots were counted. Counts the slots anew."""
        self.jobs = max(1, self._connection.slots)
        return True

    def compile_batch(self, batch: Batch, stop: threading.Event) -> dict[Kernel, Entry] | list[Batch]:
        keys = [self.key(k) for k in batch]
        try:
            built: BuiltBatch = self._connection.call(
                build_batch, self._parts, batch, self.gpu, keys, stop=self.either_stopped(stop)
            )
        except BatchKilled as killed:
            if len(batch) > 1:
                return [(k,) for k in batch]
            return {batch[0]: Entry(batch[0].name, error=f"its compiler took the worker along: {killed.what}")}
        if built.smaller:
            return list(built.smaller)
        for name, data in built.libraries:
            self.cache.take_in(name, data)
        for key, entry, kept in built.entries:
            if kept:
                self.cache.store(key, entry)
        by_key = {key: entry for key, entry, _ in built.entries}
        return {kernel: by_key[key] for kernel, key in zip(batch, keys, strict=True)}
