"""Records from elsewhere, in either form: a file that was exported, or another user's database."""

import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from core.errors import RecordError
from core.records.exchange import read_file, write_file
from core.records.rows import Row
from core.records.store import Records

_SQLITE = b"SQLite format 3\0"


def read_any(path: Path) -> dict[str, list[Row]]:
    """Rows by table of an exported file or of a database (records.sqlite), each proven whole. Raises RecordError.

    A database is copied first and never written; its owner may be using it.
    """
    try:
        with path.open("rb") as file:
            database = file.read(len(_SQLITE)) == _SQLITE
    except OSError as error:
        raise RecordError(f"{path} can't be read ({error.strerror or error})", "give a file of records") from error
    return _read_database(path) if database else read_file(path)


def _read_database(path: Path) -> dict[str, list[Row]]:
    with TemporaryDirectory(prefix="bolt-records-") as folder:
        copy = Path(folder) / "records.sqlite"
        try:
            uri = f"{path.absolute().as_uri()}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True)) as theirs, closing(sqlite3.connect(copy)) as ours:
                theirs.backup(ours)
        except sqlite3.Error as error:
            raise RecordError(f"the database {path} can't be read ({error})", "export it where it is") from error
        records = Records(copy, shipped=[])
        try:
            whole = Path(folder) / "records.json"
            write_file(whole, records.dump())
        finally:
            records.close()
        try:
            return read_file(whole)  # the same proofs as of any file
        except RecordError as error:
            raise RecordError(error.what.replace(str(whole), str(path)), "ask for an export of it") from error
