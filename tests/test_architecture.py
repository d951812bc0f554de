"""The rooms of the house: who may use whom, and nobody in a circle."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pymc_dp

ROOT = Path(pymc_dp.__file__).parent
#: a room uses those before it, and itself
ORDER = [
    "types",
    "compat",
    "numerics",
    "executors",
    "accounting",
    "mechanisms",
    "formats",
    "graph",
    "holder",
    "analyst",
    "curator",
    "interop",
    "diagnostics",
    "datasets",
    "regression",
    "explanation",
    "sampling",
    "plots",
]
#: imported where they are used: extras, and what is slow to import
EXTRAS = {
    ("analyst/regression/conjugate.py", "arviz_base"),
    ("diagnostics/calibrate.py", "arviz_base"),
    ("diagnostics/calibration/widths.py", "arviz_base"),
    ("diagnostics/calibration/ranks.py", "arviz_stats"),
    ("executors/links.py", "distributed"),
    ("mechanisms/opendp_noise.py", "opendp"),
    ("interop/opendp_measurement.py", "opendp"),
    ("curator/shards/dask_hosts.py", "dask"),
    ("curator/shards/dask_hosts.py", "distributed"),
}


def modules():
    for path in ROOT.rglob("*.py"):
        name = ".".join(["pymc_dp", *path.relative_to(ROOT).with_suffix("").parts])
        yield name.removesuffix(".__init__"), path


MODULES = dict(modules())


def imports(tree):
    """Modules of this package that are imported at the top."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("pymc_dp"):
            for alias in node.names:
                inside = f"{node.module}.{alias.name}"
                yield inside if inside in MODULES else node.module


def test_no_module_imports_itself_in_a_circle():
    uses = {name: set(imports(ast.parse(path.read_text()))) for name, path in MODULES.items()}
    list(TopologicalSorter(uses).static_order())  # raises where there is a circle


def test_rooms_use_those_before_them():
    for name, path in MODULES.items():
        if name == "pymc_dp":
            continue
        room = ORDER.index(name.split(".")[1])
        for used in imports(ast.parse(path.read_text())):
            assert ORDER.index(used.split(".")[1]) <= room, f"{name} uses {used}"


def test_imports_are_at_the_top():
    for path in MODULES.values():
        tree = ast.parse(path.read_text())
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for node in ast.walk(function):
                    if isinstance(node, ast.Import | ast.ImportFrom):
                        what = getattr(node, "module", None) or node.names[0].name
                        where = str(path.relative_to(ROOT))
                        allowed = any(
                            where == file and what.startswith(extra) for file, extra in EXTRAS
                        )
                        assert allowed, f"{where}:{node.lineno} imports {what} in a function"


def test_modules_fit_in_the_head():
    long = {
        name: n for name, path in MODULES.items() if (n := len(path.read_text().splitlines())) > 400
    }
    assert not long
