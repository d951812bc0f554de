"""What is shipped: the source distribution can do what its Makefile says."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import pymc_dp as pmdp

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_source_distribution_has_what_the_makefile_needs():
    shipped = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    shipped += ["pyproject.toml", "LICENSE"]  # always there
    rules = re.findall(r"^\$\(\w*READY\):(.*)$", (ROOT / "Makefile").read_text(), flags=re.M)
    needed = {Path(name) for rule in rules for name in rule.split()}
    assert Path("tools/find_python.sh") in needed
    assert {name.parts[0] for name in needed} | {".python-version"} <= set(shipped)


@pytest.mark.parametrize("version", ["0.14.2", "0.16.0"])  # smartnoise-sql 1.0.10 needs the first
def test_versions_of_opendp(version):
    [extra] = PROJECT["project"]["optional-dependencies"]["opendp"]
    assert version in Requirement(extra).specifier


def test_readers_are_there_without_another_import():
    assert "interop" in pmdp.__all__
    assert callable(pmdp.interop.from_opendp)


def test_every_place_tells_the_same_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    [recipe] = re.findall(r'set version = "(.*)"', (ROOT / "conda.recipe/meta.yaml").read_text())
    assert str(citation["version"]) == recipe == pmdp.__version__
    headings = re.findall(r"^## (\S+) \((\S+)\)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.M)
    assert headings[0] == (pmdp.__version__, str(citation["date-released"]))


def test_the_recipe_asks_for_what_the_project_asks_for():
    text = (ROOT / "conda.recipe/meta.yaml").read_text()
    asked = re.search(r"  run:\n(.*?)\n\n", text, flags=re.S).group(1)
    recipe = {Requirement(line.strip("- ")) for line in asked.splitlines()}
    python = Requirement(f"python{PROJECT['project']['requires-python']}")
    assert recipe == {Requirement(text) for text in PROJECT["project"]["dependencies"]} | {python}


def test_the_source_distribution_names_what_exists():
    for name in PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]:
        assert (ROOT / name).exists() or name == "pymc_dp", name


def test_workflows_call_targets_of_the_makefile():
    """Every ``make`` in a workflow is a rule, and the tested versions are those declared."""
    rules = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    pythons = set()
    for path in (ROOT / ".github/workflows").glob("*.yml"):
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            pythons |= set(job.get("strategy", {}).get("matrix", {}).get("python", ()))
            for step in job["steps"]:
                called = set(re.findall(r"\bmake ([a-z-]+)", step.get("run", "")))
                assert called <= rules, f"{path.name}: {called - rules}"
    declared = [text.split()[-1] for text in PROJECT["project"]["classifiers"] if ":: 3." in text]
    assert pythons == set(declared)


def test_one_address_of_the_project():
    pages = [*ROOT.glob("*.md"), *ROOT.glob(".github/**/*.yml"), ROOT / "conda.recipe/meta.yaml"]
    home = PROJECT["project"]["urls"]["Homepage"]
    named = {
        f"https://github.com/{found}"
        for path in pages
        for found in re.findall(r"github\.com/([\w-]*dp[\w-]*/[\w-]+)", path.read_text())
    }
    assert named == {home}
