"""Break the package in named ways and see which test notices: ``python tools/mutate.py [WORDS]``.

Each mutation of ``tools/mutations.py`` is made in a copy of the tree, and its tests are run until
one fails: those of them that ``make test`` runs, which has to notice every mutation. With words,
only mutations whose names contain one of them. The exit code counts those that no test noticed. An
hour or so for all of them; most of it is compiling what was changed.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from mutations import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("pymc_dp", "tests", "tools", "docs", "examples", "benchmarks")


def chosen() -> str:
    """Return the expression by which ``make test`` chooses its tests."""
    [rule] = re.findall(
        r"^test:.*\n\t.* -m \"(.*)\"$", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    return str(rule)


def copied(folder: Path) -> None:
    """Copy what tests need."""
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "Makefile"):
        shutil.copy(ROOT / name, folder / name)


def first_failure(folder: Path, tests: str) -> str | None:
    """Run tests until one fails; give its name, or None."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    command += ["-m", chosen(), "--durations=0", "--durations-min=1e9"]
    command += [f"tests/{name}" for name in tests.split()]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", run.stdout, re.MULTILINE)
    if found:
        return found.group(1)
    if run.returncode not in (0, 1):
        raise RuntimeError(run.stdout[-2000:] + run.stderr[-2000:])
    return None


def caught_by(mutation: Mutation) -> str | None:
    """Make one mutation in a copy, and give the test that notices it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copied(folder)
        file = folder / "pymc_dp" / mutation.file
        text = file.read_text()
        if text.count(mutation.old) != 1:
            raise RuntimeError(f"{mutation.name}: {mutation.file} has changed.")
        file.write_text(text.replace(mutation.old, mutation.new))
        return first_failure(folder, mutation.tests)


def main() -> int:
    """Print a row a mutation."""
    words, missed = sys.argv[1:], 0
    for mutation in MUTATIONS:
        if words and not any(word in mutation.name for word in words):
            continue
        start = time.monotonic()
        test = caught_by(mutation)
        missed += test is None
        print(
            f"{mutation.name} | {test or 'NOT NOTICED'} | {time.monotonic() - start:.0f} s",
            flush=True,
        )
    return missed


if __name__ == "__main__":
    sys.exit(main())
