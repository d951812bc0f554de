"""Names of other packages that may go without notice."""

import ast
import importlib
from pathlib import Path

import pytest

import pymc_dp
import pymc_dp.compat

FOLDER = Path(pymc_dp.compat.__file__).parent
FOREIGN = ("pymc", "pytensor", "numba")
NAMES = [
    (node.module, alias.name, source.splitlines()[alias.lineno - 1].partition("# ")[2])
    for source in (path.read_text() for path in sorted(FOLDER.glob("*.py")))
    for node in ast.parse(source).body
    if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] in FOREIGN
    for alias in node.names
]


@pytest.mark.parametrize(("module", "name", "what_for"), NAMES)
def test_name_is_there_and_said_to_be_for_something(module, name, what_for):
    found = hasattr(importlib.import_module(module), name)
    assert found, f"{module}.{name} is gone, used for: {what_for}. Mend pymc_dp/compat/."
    assert what_for


def test_no_other_module_takes_private_names():
    for path in Path(pymc_dp.__file__).parent.rglob("*.py"):
        if path.parent == FOLDER:
            continue
        text = path.read_text()
        assert ".vm." not in text, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] in FOREIGN:
                private = [alias.name for alias in node.names if alias.name.startswith("_")]
                assert not private, f"{path}: {private} belong in compat/"
                assert ".link." not in node.module, path
