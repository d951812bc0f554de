"""The shards of one process, and what it answers for all of them."""

import pickle
from typing import Any, NamedTuple

from pymc_dp.curator.shards.shard import Recipe, Report, Shard, safe_message

__all__ = ["Failure", "Host", "Loader", "install", "loaded"]

_held: dict[tuple[str, int], Shard] = {}
"""Shards of this process, by the name of the whole and their number."""


class Failure(NamedTuple):
    """Why a question was not answered, in words without a record's value."""

    missing: bool
    message: str


class Loader(NamedTuple):
    """Arrays of a partition that are to be loaded where it is used, pickled."""

    pickled: bytes


def loaded(given: tuple[Any, ...]) -> Any:
    """Load a partition, unless it is there."""
    if len(given) == 1 and isinstance(given[0], Loader):
        given = tuple(
            part.compute(scheduler="synchronous") for part in pickle.loads(given[0].pickled)
        )
    return given[0] if len(given) == 1 else given


def install(name: str, number: int, recipe: Recipe, *given: Any) -> Report:
    """Make a shard of a partition and hold it in this process.

    What goes wrong is told, not raised: an error that is raised is logged with its arguments.
    """
    try:
        partition = loaded(given)
    except Exception as error:
        return Report(refusal=f"it could not be loaded ({type(error).__name__})")
    try:
        shard = Shard(recipe, partition)
    except Exception as error:
        return Report(refusal=safe_message(error))
    _held[name, number] = shard
    return Report(shard.n_records, shard.fingerprint, shard.digest(name))


class Host:
    """Answers for some of the shards of this process.

    Parameters
    ----------
    name : str
        Of the whole that the shards belong to.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def ask(
        self, question: str, common: tuple[Any, ...], own: dict[int, tuple[Any, ...]]
    ) -> list[int] | Failure:
        """Add up what shards answer, each with arguments of its own after those of all."""
        try:
            answers = [
                _held[self.name, number].ask(question, *common, *args)
                for number, args in own.items()
            ]
        except KeyError as error:
            missing = error.args[:1] and isinstance(error.args[0], tuple)
            return Failure(bool(missing), safe_message(error))
        except Exception as error:
            return Failure(False, safe_message(error))
        return [sum(numbers) for numbers in zip(*answers, strict=True)]

    def forget(self) -> None:
        """Let all shards go."""
        for key in [key for key in _held if key[0] == self.name]:
            del _held[key]
