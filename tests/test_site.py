"""The site has every public name, page and notebook; the notebooks' code can be read."""

import ast
import re
from pathlib import Path
from types import ModuleType

import pytest

import pymc_dp as pmdp
from pymc_dp import plots

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
#: pages of the site, by their names in tables of contents
PAGES = {
    str(path.relative_to(DOCS).with_suffix("")): path
    for path in DOCS.rglob("*.md")
    if not {"_build", "reference"} & set(path.relative_to(DOCS).parts)
}
CELL = re.compile(r"```\{code-cell\} ipython3\n(.*?)```", flags=re.S)
NOTEBOOKS = [name for name, path in PAGES.items() if CELL.search(path.read_text())]
GALLERY = [name for name in NOTEBOOKS if name.startswith("gallery/")]


def contents(name):
    """Pages in the tables of contents of a page."""
    folder = name.rpartition("/")[0]
    for table in re.findall(r"```\{toctree\}\n(.*?)```", PAGES[name].read_text(), flags=re.S):
        for line in table.splitlines():
            if line and not line.startswith(":"):
                yield f"{folder}/{line}".lstrip("/")


def test_every_page_is_in_a_table_of_contents():
    reached, ahead = set(), ["index"]
    while ahead:
        reached.add(page := ahead.pop())
        ahead += [name for name in contents(page) if name not in reached]
    # those beside benchmarks/index are listed by a pattern (conf.py)
    assert reached == {n for n in PAGES if not n.startswith("benchmarks/")} | {"benchmarks/index"}


def public_names():
    """Every public name with its value, those of modules included."""
    for name in [*pmdp.__all__, "plots"]:
        value = plots if name == "plots" else getattr(pmdp, name)
        if isinstance(value, ModuleType):
            for part in getattr(value, "__all__", ()):
                if part not in pmdp.__all__:
                    yield f"{name}.{part}", getattr(value, part)
        else:
            yield name, value


def test_every_public_name_has_an_example():
    without = [name for name, value in public_names() if ">>> " not in (value.__doc__ or "")]
    assert not without


def test_every_public_name_is_in_the_reference():
    blocks = re.findall(r"```\{eval-rst\}\n(.*?)```", PAGES["api"].read_text(), flags=re.S)
    listed = set(re.findall(r"^   ([\w.]+)$", "\n".join(blocks), flags=re.M))
    missing = {name for name, _ in public_names()} - listed
    assert not missing, "give them lines in docs/api.md"


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_can_be_read(name):
    text = PAGES[name].read_text()
    assert text.startswith("---\nfile_format: mystnb\n"), "without this line it is not executed"
    for cell in CELL.findall(text):
        ast.parse(re.sub(r"^(:.*\n)+", "", cell))
    assert "code-cell}\n" not in text, "a cell without its language"


def test_every_notebook_answers_a_question():
    """Each has a line in the page of questions, and its first cell stands by itself."""
    linked = re.findall(r"\]\((gallery/\w+)\.md\)", PAGES["start"].read_text())
    assert sorted(linked) == sorted(GALLERY)
    assert len(GALLERY) >= 12
    for name in GALLERY:
        first = CELL.findall(PAGES[name].read_text())[0]
        assert "import pymc_dp as pmdp" in first, name
