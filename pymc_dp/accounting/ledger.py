"""The ledger: an SQLite file of what was claimed, atomic between processes, kept after a crash.

A claim is a row that is written before the data is touched and never changed or removed. Every call
opens the file anew, so that nothing is shared between a process and its forked children.
"""

import os
import sqlite3
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from pymc_dp.accounting.composition import GaussianQueries
from pymc_dp.accounting.errors import PrivacyError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS guarantee (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    epsilon REAL NOT NULL, delta REAL NOT NULL, neighbours TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS claims (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    noise_multiplier REAL NOT NULL, iterations INTEGER NOT NULL, fraction REAL NOT NULL,
    purpose TEXT NOT NULL, epsilon REAL
);
"""
_WAIT_SECONDS = 60.0


class Ledger:
    """Claims on one guarantee, in one file.

    Parameters
    ----------
    path : path, optional
        File to keep, made if it is not there. Without it a temporary file is used, which goes with
        the process that made it.
    epsilon, delta, neighbours
        The guarantee; a file that holds another one is refused.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None, epsilon: float, delta: float, neighbours: str
    ) -> None:
        if path is None:
            handle, name = tempfile.mkstemp(prefix="pymc_dp_", suffix=".ledger")
            os.close(handle)
            weakref.finalize(self, _remove, name, os.getpid())
            path = name
        self.path = str(Path(path).absolute())
        with self._open(create=True) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA.split(";"):
                db.execute(statement)
            if "epsilon" not in {row[1] for row in db.execute("PRAGMA table_info(claims)")}:
                db.execute("ALTER TABLE claims ADD COLUMN epsilon REAL")  # made by version 0.1
            db.execute(
                "INSERT OR IGNORE INTO guarantee VALUES (1, ?, ?, ?)", (epsilon, delta, neighbours)
            )
            kept = db.execute("SELECT epsilon, delta, neighbours FROM guarantee").fetchone()
            db.execute("COMMIT")
        if kept != (epsilon, delta, neighbours):
            raise PrivacyError(
                f"The ledger {self.path} holds a budget of epsilon={kept[0]}, delta={kept[1]}, "
                f"neighbours={kept[2]!r}: write those, or name another file for another budget."
            )

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
                yield db
            finally:
                db.close()
        except sqlite3.Error as error:
            raise PrivacyError(
                f"The ledger {self.path} could not be used ({error}); nothing was spent on the "
                "data by this call. Without its ledger a budget cannot be claimed."
            ) from error

    def claims(self, purpose: str | None = None) -> list[GaussianQueries]:
        """Everything claimed so far, or everything claimed for one purpose."""
        with self._open() as db:
            return _read(db, purpose)

    def claim(
        self,
        claims: Sequence[GaussianQueries],
        purpose: str,
        fits: Callable[[Sequence[GaussianQueries]], bool],
    ) -> bool:
        """Write all claims if they and all earlier ones fit; nobody else can in between."""
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            if not fits([*_read(db), *claims]):
                db.execute("ROLLBACK")
                return False
            db.executemany(
                "INSERT INTO claims (noise_multiplier, iterations, fraction, purpose, epsilon) "
                "VALUES (?, ?, ?, ?, ?)",
                [
                    (one.noise_multiplier, one.iterations, one.fraction, purpose, one.epsilon)
                    for one in claims
                ],
            )
            db.execute("COMMIT")
        return True


def _read(db: sqlite3.Connection, purpose: str | None = None) -> list[GaussianQueries]:
    rows = db.execute(
        "SELECT noise_multiplier, iterations, fraction, epsilon FROM claims "
        "WHERE :purpose IS NULL OR purpose = :purpose ORDER BY id",
        {"purpose": purpose},
    )
    return [GaussianQueries(*row) for row in rows]


def _remove(path: str, owner: int) -> None:
    if os.getpid() == owner:  # not from a forked child's garbage collection
        for name in (path, path + "-wal", path + "-shm"):
            Path(name).unlink(missing_ok=True)
