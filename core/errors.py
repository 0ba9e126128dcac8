"""Failures a user meets. Each is one line: what happened, to what, and what to do about it."""


class BoltError(Exception):
    """Base of every failure that is reported to the user instead of a traceback.

    `str(error)` is one line; newlines in what came from outside are folded.
    """

    def __init__(self, what: str, remedy: str = "") -> None:
        self.what = " ".join(what.split())
        self.remedy = " ".join(remedy.split())
        super().__init__(f"{self.what}; {self.remedy}" if remedy else self.what)


class ModelError(BoltError):
    """The model file can't be read, or holds something no graph can have."""


class PlanError(BoltError):
    """A fusion plan or an edit of one is not legal for the graph."""


class ToolchainError(BoltError):
    """nvcc, CUTLASS or a host compiler is missing or does not work."""


class DeviceError(BoltError):
    """No usable GPU, or the GPU refused."""


class RecordError(BoltError):
    """The record database can't be read or written, or lacks what was asked for."""


class ExportError(BoltError):
    """The model can't be exported, or an exported library does not hold up."""


class Cancelled(BoltError):
    """The user stopped the work; what was measured is kept."""
