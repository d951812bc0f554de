"""The JSON document of a release: its version, its fields, and how it is read without surprises."""

from __future__ import annotations

import json
import os
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["FORMAT", "VERSION", "document_of", "in_field", "known_fields", "one_line", "write"]

FORMAT = "pymc_dp release"
VERSION = 1
#: every document has these, and no others
FIELDS = (
    "format",
    "version",
    "kind",
    "statistic",
    "mechanism",
    "value",
    "guarantee",
    "n",
    "bounds",
    "provenance",
    "details",
)
#: fields in which true and false would be read as numbers
_NUMBERS = ("mechanism", "value", "guarantee", "n", "bounds")
#: lists and objects within each other
_DEEPEST = 30

Source = str | os.PathLike[str] | Mapping[str, Any]
"""A file, the text of one, or the fields themselves."""


def write(
    kind: str, fields: Mapping[str, Any], path: str | os.PathLike[str] | None, **details: Any
) -> str:
    """Write a document, to a file if one is named; `details` are the kind's own fields."""
    header = {"format": FORMAT, "version": VERSION, "kind": kind}
    text = json.dumps({**header, **fields, "details": details or None}, indent=1, allow_nan=False)
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


def document_of(source: Source, kinds: Iterable[str]) -> dict[str, Any]:
    """Read the fields of a release of one of these kinds, or say what is wrong with them."""
    fields = _parsed(source)
    if fields.get("format") != FORMAT:
        raise ValueError(
            f'This is not the JSON of a release: its "format" is {fields.get("format")!r} and not '
            f"{FORMAT!r}. For what other tools report see pmdp.interop."
        )
    version = fields.get("version")
    if version != VERSION or isinstance(version, bool):
        raise ValueError(
            f"The release has version {version!r} of the format, and this pymc_dp reads version "
            f"{VERSION}: install the pymc_dp that it was written with, or a newer one."
        )
    kinds = list(kinds)
    if fields.get("kind") not in kinds:
        raise ValueError(
            f"The release is of kind {fields.get('kind')!r}, and not {' or '.join(kinds)}: "
            "pmdp.read_release reads releases of all kinds."
        )
    known_fields("the release", fields, FIELDS)
    return fields


def known_fields(where: str, found: Any, known: Iterable[str]) -> dict[str, Any]:
    """Insist on an object with these fields and no others."""
    known = list(known)
    if not isinstance(found, dict):
        raise ValueError(f"{where} must be an object with the fields {known}, not {found!r}.")
    if missing := [name for name in known if name not in found]:
        raise ValueError(
            f"{where} has no field {missing[0]!r}: ask its publisher for all of {known}; a field "
            "that is not known is null."
        )
    if unknown := [name for name in found if name not in known]:
        raise ValueError(
            f"{where} has a field {unknown[0]!r}, and what that says is not known; known are "
            f"{known}. Leave it out only if it changes nothing."
        )
    return found


class in_field:  # noqa: N801  (reads as a phrase: with in_field("value"))
    """Say in which field of the document an error is."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if isinstance(error, ValueError | TypeError | ArithmeticError | RecursionError):
            text = str(error)
            if not text.startswith(self.name):
                text = f"{self.name}: {text}"
            raise ValueError(text) from error


def _parsed(source: Source) -> dict[str, Any]:
    """Plain numbers, text, lists and objects; NaN and fields that are there twice are refused."""
    if isinstance(source, Mapping):
        try:
            text = json.dumps(dict(source), allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(
                f"This is not the JSON of a release: {error}. Write null where a cell was dropped, "
                "and lists for arrays."
            ) from error
    elif isinstance(source, str) and source.lstrip().startswith(("{", "[")):
        text = source
    elif isinstance(source, str | os.PathLike):
        try:
            text = Path(source).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ValueError(
                f"This is not the JSON of a release, and there is no such file: {error}."
            ) from error
    else:
        raise TypeError(f"A release is read from a path, text or dict, not from {source!r}.")
    try:
        found = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"This is not the JSON of a release: {error}.") from error
    if not isinstance(found, dict):
        raise ValueError(f"This is not the JSON of a release: it holds {type(found).__name__}.")
    _check_inside(found)
    return found


def one_line(field: str, text: str) -> str:
    """Refuse characters that steer a terminal or hide text."""
    if any(unicodedata.category(each) in ("Cc", "Cf", "Cs", "Zl", "Zp") for each in text):
        raise ValueError(
            f"{field}: it has characters that cannot be seen, {text!r}: write plain text in one "
            "line."
        )
    return text


def _check_inside(found: dict[str, Any]) -> None:
    """Refuse what lies deeper than any release, true and false for numbers, and odd characters."""
    left: list[tuple[str, Any, int]] = [(name, each, 1) for name, each in found.items()]
    while left:
        field, value, depth = left.pop()
        if depth > _DEEPEST:
            raise ValueError(f"{field}: it has lists or objects more than {_DEEPEST} deep.")
        if isinstance(value, bool) and field in _NUMBERS:
            raise ValueError(f"{field}: it must be numbers, and has {value!r}: write 0 or 1.")
        if isinstance(value, int) and abs(value) >= 2**1023:
            raise ValueError(f"{field}: it has a number of {value.bit_length()} bits.")
        if isinstance(value, str):
            one_line(field, value)
        if isinstance(value, dict):
            inside = [each for name, each in value.items() if name != "statistic_too"]
            left += [(field, each, depth + 1) for each in [*value, *inside]]
        elif isinstance(value, list):
            left += [(field, each, depth + 1) for each in value]


def _no_constant(text: str) -> Any:
    raise ValueError(f"it has {text}, which JSON does not know; a dropped cell is written as null")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"it has the field {name!r} twice")
            seen.add(name)
    return found
