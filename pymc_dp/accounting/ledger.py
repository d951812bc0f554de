"""The ledger: an SQLite file of what was claimed, atomic between processes, kept after a crash.

A claim is a row that is written before anything computed from the data can leave, and never
changed or removed. Every call opens the file anew, so that nothing is shared between a process and
its forked children. What a process has once read must be there each time it reads again: a file
that was deleted, replaced or restored from an older copy has forgotten claims, and is refused.
"""

import os
import sqlite3
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pymc_dp.accounting.composition import (
    GaussianQueries,
    Sampling,
    counted_in_turn,
    mixes_batches,
)
from pymc_dp.accounting.errors import PrivacyError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS guarantee (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    epsilon REAL NOT NULL, delta REAL NOT NULL, neighbours TEXT NOT NULL,
    accountant TEXT NOT NULL DEFAULT 'pld'
);
CREATE TABLE IF NOT EXISTS claims (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    noise_multiplier REAL NOT NULL, iterations INTEGER NOT NULL, fraction REAL NOT NULL,
    purpose TEXT NOT NULL, epsilon REAL, sampling TEXT NOT NULL DEFAULT 'fixed'
);
"""
# columns that files of earlier versions lack: batches had a fixed size, and which accountant had
# counted was not kept, so that the stricter one goes on
_ADDED = {
    "claims": "sampling TEXT NOT NULL DEFAULT 'fixed'",
    "guarantee": "accountant TEXT NOT NULL DEFAULT 'pld'",
}
_GUARANTEE = "epsilon, delta, neighbours, accountant"
_COLUMNS = ", ".join(field.name for field in fields(GaussianQueries))
# in one statement, so that both are of one moment: how many there were, and those that are there
_ROWS = f"""
SELECT made.number, claims.id, {_COLUMNS}, purpose FROM (
    SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'claims'), 0) AS number
) AS made LEFT JOIN claims ORDER BY claims.id
"""
_WAIT_SECONDS = 60.0
_Row = tuple[float, int, float, float | None, Sampling, str]
_seen: dict[str, list[_Row]] = {}
"""What this process knows to have been claimed, by ledger."""


class Ledger:
    """Claims on one guarantee, in one file.

    Parameters
    ----------
    path : path, optional
        File to keep, made if it is not there. Without it a temporary file is used, which goes with
        the process that made it.
    epsilon, delta, neighbours
        The guarantee; a file that holds another one is refused.
    accountant : str
        How claims are counted, which is settled with the first of them.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        epsilon: float,
        delta: float,
        neighbours: str,
        accountant: str = "pld",
    ) -> None:
        if path is None:
            handle, name = tempfile.mkstemp(prefix="pymc_dp_", suffix=".ledger")
            os.close(handle)
            path = Path(name).resolve()
            weakref.finalize(self, _remove, str(path), os.getpid())
        self.path = str(Path(path).resolve())
        if _seen.get(self.path) and not Path(self.path).exists():
            raise self._forgetful(0)
        with self._open(create=True) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA.split(";"):
                db.execute(statement)
            added = [self._complete(db, table, column) for table, column in _ADDED.items()]
            self._guarantee = (epsilon, delta, neighbours, accountant)
            db.execute(
                f"INSERT OR IGNORE INTO guarantee (one, {_GUARANTEE}) VALUES (1, ?, ?, ?, ?)",
                self._guarantee,
            )
            claims = _queries(self._read(db))
            if any(added) and mixes_batches(counted_in_turn(claims, epsilon, delta)[1]):
                raise PrivacyError(
                    f"The ledger {self.path} was written by a version that let looks at random "
                    "batches mix with others: if answers chose between them, more was learned than "
                    "this budget can tell (up to twice the delta for one choice). Its table of "
                    "claims says what was spent; name another file for another budget, which adds "
                    "to it."
                )
            db.execute("COMMIT")

    def _complete(self, db: sqlite3.Connection, table: str, column: str) -> bool:
        """Add a column that files of earlier versions lack; tell whether it did."""
        known = {row[1] for row in db.execute(f"PRAGMA table_info({table})")}
        if column.split()[0] in known:
            return False
        db.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
        return True

    @contextmanager
    def _open(self, create: bool = False) -> Iterator[sqlite3.Connection]:
        mode = "rwc" if create else "rw"  # a ledger that went missing must not start afresh
        try:
            db = sqlite3.connect(
                f"file:{quote(self.path)}?mode={mode}",
                uri=True,
                timeout=_WAIT_SECONDS,
                isolation_level=None,
            )
            try:
                db.execute("PRAGMA synchronous = FULL")
                self._refuse_other_names()
                yield db
            finally:
                db.close()
        except sqlite3.Error as error:
            raise PrivacyError(
                f"The ledger {self.path} could not be used ({error}); nothing was spent on the "
                "data by this call. Without its ledger a budget cannot be claimed."
            ) from error

    def _refuse_other_names(self) -> None:
        """Refuse hard links: locks and the log of claims go by the file's name."""
        if os.stat(self.path).st_nlink > 1:
            raise PrivacyError(
                f"The ledger {self.path} has several names (hard links), under which it could be "
                "spent at the same time: leave it one."
            )

    def claims(self, purpose: str | None = None) -> list[GaussianQueries]:
        """Everything claimed so far, or everything claimed for one purpose."""
        with self._open() as db:
            return _queries(self._read(db), purpose)

    def claim(
        self,
        claims: Sequence[GaussianQueries],
        purpose: str,
        fits: Callable[[Sequence[GaussianQueries], Sequence[GaussianQueries]], bool],
    ) -> bool:
        """Write all claims if they fit beside all earlier ones; nobody else can in between."""
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            before = self._read(db)
            if not fits(_queries(before), claims):
                db.execute("ROLLBACK")
                return False
            rows = [(*astuple(one), purpose) for one in claims]
            db.executemany(
                f"INSERT INTO claims ({_COLUMNS}, purpose) VALUES (?, ?, ?, ?, ?, ?)", rows
            )
            db.execute("COMMIT")
            if self._read(db)[len(before) :][: len(rows)] != rows:
                raise self._lost("did not keep what was claimed just now")
        return True

    def _read(self, db: sqlite3.Connection) -> list[_Row]:
        """All rows of this guarantee, among which must be those that were there before."""
        seen = _seen.get(self.path, [])  # first: another thread may claim in between
        kept = db.execute(f"SELECT {_GUARANTEE} FROM guarantee").fetchone()
        if kept != self._guarantee:
            raise PrivacyError(
                f"The ledger {self.path} holds a budget of epsilon={kept[0]}, delta={kept[1]}, "
                f"neighbours={kept[2]!r}, accountant={kept[3]!r}: write those, or name another "
                "file for another budget."
            )
        found = db.execute(_ROWS).fetchall()
        rows: list[_Row] = [row[2:] for row in found if row[1] is not None]
        if found[0][0] != len(rows):
            raise self._lost(f"counts {found[0][0]} claims and has {len(rows)}")
        if rows[: len(seen)] != seen:
            raise self._forgetful(len(rows))
        self._remember(rows)
        return rows

    def _remember(self, rows: list[_Row]) -> None:
        if len(rows) > len(_seen.get(self.path, [])):
            _seen[self.path] = rows

    def _lost(self, what: str) -> PrivacyError:
        return PrivacyError(
            f"The ledger {self.path} {what}: it was changed by other means than claims. What was "
            "spent stays spent: put the newest copy back, and change nothing in it."
        )

    def _forgetful(self, left: int) -> PrivacyError:
        return PrivacyError(
            f"The ledger {self.path} held {len(_seen[self.path])} claims and now holds {left} or "
            "others: it was deleted, replaced or restored from an older copy. What was spent stays "
            "spent: put the newest copy back. For a budget of its own, on other data, name another "
            "file."
        )

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_seen": _seen.get(self.path, [])}

    def __setstate__(self, state: dict[str, Any]) -> None:
        seen = state.pop("_seen")
        self.__dict__.update(state)
        self._remember(seen)


def _queries(rows: Sequence[_Row], purpose: str | None = None) -> list[GaussianQueries]:
    return [GaussianQueries(*row[:-1]) for row in rows if purpose in (None, row[-1])]


def _remove(path: str, owner: int) -> None:
    if os.getpid() == owner:  # not from a forked child's garbage collection
        _seen.pop(path, None)
        for name in (path, path + "-wal", path + "-shm"):
            Path(name).unlink(missing_ok=True)
