"""Working from records where no GPU is: which GPU, and which batch of a built-in model, the records speak of."""

from pathlib import Path

from core.device import GpuIdentity, resolve_gpu
from core.errors import DeviceError
from core.records.store import Records
from core.session import Session, open_model
from templates.types import DType

_USUAL_BATCHES = (1, 32)  # what ships for the built-in models


def recorded_gpu(name: str, records: Records) -> tuple[GpuIdentity, str]:
    """The GPU meant by --gpu, and a sentence if it was not the user's own choice.

    "auto" is the GPU here; without one, the GPU that the newest record is of. Raises DeviceError if there is neither.
    """
    try:
        return resolve_gpu(name), ""
    except DeviceError:
        names = [identity.gpu.name for identity, _ in records.identities()]
        if name.strip().lower() != "auto" or not names:
            raise
        return resolve_gpu(names[-1]), f"no GPU here: these are the records of {names[-1]}"


def open_recorded(
    model: str | Path,
    batch: int | None,
    dtype: DType,
    plan_path: str | Path | None,
    records: Records,
    gpu: str,
) -> tuple[Session, str]:
    """The model, at the batch that most of its workloads have records of if the user named none, and a sentence on it.

    Only built-in models are free in their batch; a file keeps its own.
    """
    from core.importer.samples import sample_names

    session = open_model(model, batch, dtype, plan_path)
    if batch is not None or str(model) not in sample_names():
        return session, ""
    best, best_share, chosen = session, _share(session, records, gpu), ""
    for other in _USUAL_BATCHES:
        if best_share == 1.0:
            break
        tried = open_model(model, other, dtype, plan_path)
        share = _share(tried, records, gpu)
        if share > best_share:
            best, best_share = tried, share
            chosen = f"batch {other}: the records of {gpu} for {model} are of this one; --batch takes another"
    return best, chosen


def _share(session: Session, records: Records, gpu: str) -> float:
    keys = list(session.plan.workloads)
    return sum(records.best(key, gpu) is not None for key in keys) / len(keys) if keys else 1.0
