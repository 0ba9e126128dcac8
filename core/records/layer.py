"""One SQLite database of records: the user's own file, or the shipped ones in memory."""

import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import RecordError
from core.records.rows import LOCAL_TABLES, TABLES, Row

if TYPE_CHECKING:
    from sqlite_utils import Database

SCHEMA = 3  # 2: the table "searches", 3: "origins"
_COLUMNS = {**TABLES, **LOCAL_TABLES}
_BUSY_S = 10.0
_RETRY_S = 0.05


class Layer:
    """Tables of rows.TABLES and LOCAL_TABLES. May be used from several threads; other processes may read and write the
    file too.

    What a method wrote outlives the process, however it ends; after a power failure the last rows may be missing, the
    database is whole (SQLite, WAL with synchronous=NORMAL). Every method raises RecordError, in one line, for a
    database that is damaged, locked, read-only or full.
    """

    def __init__(self, path: Path | None, busy_s: float = _BUSY_S) -> None:
        self.path = path
        self._lock = threading.RLock()
        with self._guard():
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._database = self._open(busy_s)

    def _open(self, busy_s: float) -> "Database":
        from sqlite_utils import Database

        connection = sqlite3.connect(self.path or ":memory:", timeout=busy_s, check_same_thread=False)
        try:
            database = Database(connection)
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version > SCHEMA:
                raise RecordError(
                    f"the record database {self.path} was written by a newer version",
                    "update this one, or move it away",
                )
            if version < SCHEMA:
                self._create(database, time.monotonic() + busy_s)
            if self.path is not None:
                connection.execute("PRAGMA synchronous=NORMAL")
        except BaseException:
            connection.close()
            raise
        return database

    def _create(self, database: "Database", deadline: float) -> None:
        """Makes the tables. Another process may be at it too: SQLite does not wait for the change to WAL by itself."""
        while True:
            try:
                if self.path is not None:
                    database.enable_wal()
                for table, columns in _COLUMNS.items():
                    database.table(table).create(columns, pk="id", if_not_exists=True)
                for table in ("measurements", "failures", "finished", "searches"):
                    database.table(table).create_index(["workload", "gpu"], if_not_exists=True)
                database.conn.execute(f"PRAGMA user_version={SCHEMA}")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
            time.sleep(_RETRY_S)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            with self._lock:
                yield
        except (sqlite3.Error, OSError) as error:
            raise self._told(error) from error

    def _told(self, error: Exception) -> RecordError:
        text = str(error)
        what = f"the record database {self.path}"
        if "locked" in text or "busy" in text:
            return RecordError(f"{what} is locked by another program", "close it and run this again")
        if "disk is full" in text or "No space left" in text:
            return RecordError(f"{what} can't grow, the disk is full", "free some space, or set BOLT_CACHE")
        if "malformed" in text or "not a database" in text or "no such" in text:
            return RecordError(
                f"{what} is damaged ({text})",
                "move it away; shipped or exported records can be imported into a new one",
            )
        return RecordError(f"{what} can't be used ({text})", "make it writable, or set BOLT_CACHE to another folder")

    def insert(self, rows: Iterable[tuple[str, Row]]) -> int:
        """Add (table, row)s that are not there yet, all or none, whenever this process ends; how many were new."""
        with self._guard(), self._transaction() as connection:
            before = connection.total_changes
            for table, row in rows:
                columns, marks = ",".join(f"[{c}]" for c in row), ",".join("?" * len(row))
                connection.execute(f"INSERT OR IGNORE INTO {table} ({columns}) VALUES ({marks})", list(row.values()))
            return connection.total_changes - before

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """What is written inside is there as a whole or not at all."""
        connection: sqlite3.Connection = self._database.conn
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.commit()
        except BaseException:
            connection.rollback()
            raise

    def rows(self, table: str, **where: Any) -> list[Row]:
        """Rows whose columns have the given values (a list means any of them), oldest first where they have a time."""
        tests, values = [], []
        for column, value in where.items():
            options = value if isinstance(value, list) else [value]
            tests.append(f"{column} in ({','.join('?' * len(options))})")
            values += options
        order = "taken, id" if "taken" in _COLUMNS[table] else "id"
        with self._guard():
            return list(self._database.table(table).rows_where(" and ".join(tests) or None, values, order_by=order))

    def values(self, table: str, column: str) -> set[Any]:
        """The different values of a column."""
        with self._guard():
            return {value for (value,) in self._database.conn.execute(f"SELECT DISTINCT [{column}] FROM [{table}]")}

    def count(self, table: str) -> int:
        """Rows of the table."""
        with self._guard():
            return int(self._database.table(table).count)

    def delete(self, table: str, ids: Iterable[str]) -> None:
        with self._guard(), self._transaction() as connection:
            connection.executemany(f"DELETE FROM {table} WHERE id = ?", [(one,) for one in ids])

    def vacuum(self) -> None:
        with self._guard():
            self._database.vacuum()

    def close(self) -> None:
        with self._guard():
            self._database.conn.close()
