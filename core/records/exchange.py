"""Record files: one JSON object, gzipped where the name ends in .gz. The format is told in resources/records/README."""

import gzip
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.errors import RecordError
from core.files import write_atomically
from core.records.rows import TABLES, Row, check_row

FORMAT = "bolt-records"
VERSION = 1
_LARGEST = 512 << 20  # a file from elsewhere may unpack to anything


def write_file(path: Path, tables: Mapping[str, list[Row]]) -> int:
    """Write rows by table; returns how many. Equal rows give equal bytes. Raises RecordError."""
    ordered = {table: sorted(tables.get(table, []), key=lambda r: str(r["id"])) for table in TABLES}
    document = {"format": FORMAT, "version": VERSION, **ordered}
    text = json.dumps(document, indent=None, separators=(",", ":"), sort_keys=True, allow_nan=False) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text)
    except OSError as error:
        raise RecordError(f"{path} can't be written ({error.strerror or error})", "choose another place") from error
    return sum(map(len, ordered.values()))


def read_file(path: Path) -> dict[str, list[Row]]:
    """Rows by table, each proven whole. Raises RecordError."""
    try:
        document = json.loads(_text(path))
    except OSError as error:
        raise RecordError(f"{path} can't be read ({error.strerror or error})", "give a file of records") from error
    except (ValueError, EOFError, zlib.error, RecursionError) as error:
        raise RecordError(f"{path} is not a file of records ({error})", "export it again") from error
    return _checked(path, document)


def _text(path: Path) -> str:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise ValueError("it is larger than 512 MB")
    return data.decode()


def _checked(path: Path, document: Any) -> dict[str, list[Row]]:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise RecordError(f"{path} is not a file of records", "give one that `records export` wrote")
    if document.get("version") != VERSION:
        raise RecordError(f"{path} has format version {document.get('version')}, not {VERSION}", "update this program")
    tables = {}
    try:
        for table in TABLES:
            rows = document.get(table, [])
            if not isinstance(rows, list):
                raise ValueError(f"{table} is no list")
            tables[table] = [check_row(table, row) for row in rows]
        _check_references(tables)
    except ValueError as error:
        raise RecordError(f"{path} is damaged: {error}", "export it again") from error
    return tables


def _check_references(tables: Mapping[str, list[Row]]) -> None:
    gpus = {r["id"] for r in tables["gpus"]}
    candidates = {r["id"] for r in tables["candidates"]} | {""}
    for table in ("measurements", "failures", "finished", "searches", "runs"):
        for row in tables[table]:
            if row["gpu"] not in gpus or row.get("candidate", "") not in candidates:
                raise ValueError(f"row {row['id']} of {table} refers to what is not in the file")
