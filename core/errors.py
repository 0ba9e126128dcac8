"""Failures a user meets. Each is one line: what happened, to what, and what to do about it."""

import re

# Control characters, what changes the direction of writing, and halves of characters.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """One line that moves no cursor and hides nothing, whatever a file put into the text: the unseen as escapes."""
    return _UNSEEN.sub(lambda found: repr(found[0])[1:-1], text)


class BoltError(Exception):
    """Base of every failure that is reported to the user instead of a traceback.

    `str(error)` is one printable line; newlines in what came from outside are folded.
    """

    def __init__(self, what: str, remedy: str = "") -> None:
        self.what = printable(" ".join(what.split()))
        self.remedy = printable(" ".join(remedy.split()))
        super().__init__(f"{self.what}; {self.remedy}" if remedy else self.what)


class ModelError(BoltError):
    """The model file can't be read, or holds something no graph can have."""


class PlanError(BoltError):
    """A fusion plan or an edit of one is not legal for the graph."""


class ToolchainError(BoltError):
    """nvcc, CUTLASS or a host compiler is missing or does not work."""


class DeviceError(BoltError):
    """No usable GPU, or the GPU refused."""


class WorkerLost(DeviceError):
    """The cluster's worker that measures on a GPU is gone. Another one may come."""


class RecordError(BoltError):
    """The record database can't be read or written, or lacks what was asked for."""


class ExportError(BoltError):
    """The model can't be exported, or an exported library does not hold up."""


class Cancelled(BoltError):
    """The user stopped the work; what was measured is kept."""
