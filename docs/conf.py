"""The site: this folder's pages, the gallery's notebooks (executed), every public name."""

import hashlib
import os
import re
import sys
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))

import pymc_dp  # noqa: E402

project = "pymc_dp"
author = "The pymc_dp developers"
copyright = "The pymc_dp developers"
version = release = pymc_dp.__version__
SOURCE = "https://github.com/pymc-dp/pymc_dp"

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build", "_templates"]
templates_path = ["_templates"]

# --- notebooks: executed, and kept for as long as neither they nor the package change ---
code = hashlib.sha256()
for path in sorted((ROOT / "pymc_dp").rglob("*.py")):
    code.update(path.read_bytes())
nb_execution_mode = "cache"
nb_execution_cache_path = str(DOCS / "_build" / ".jupyter_cache" / code.hexdigest()[:16])
nb_execution_timeout = 1800
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
nb_output_stderr = "remove"  # logs of samplers; R-hat is printed where it matters
os.environ["MATPLOTLIBRC"] = str(DOCS)
os.environ["PYTHONPATH"] = str(ROOT)

# --- text -------------------------------------------------------------------------------
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
suppress_warnings = ["mystnb.unknown_mime_type"]
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True

#: pages whose text is a file elsewhere in the repository
ELSEWHERE = {
    "benchmarks/index": "benchmarks/README.md",
    "changelog": "CHANGELOG.md",
    "conduct": "CODE_OF_CONDUCT.md",
    "contributing": "CONTRIBUTING.md",
    "security": "SECURITY.md",
}
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)\s#]+)(#[^)\s]*)?\)")


def in_the_site(target: str, file: Path) -> str:
    """Where a link of a file, which works in the repository, leads in the site."""
    path = (ROOT / "docs" if target.startswith("/") else file.parent) / target.lstrip("/")
    inside = os.path.relpath(path, ROOT)
    for page, text in ELSEWHERE.items():
        if inside == text:
            return f"/{page}.md"
    if inside.startswith("docs/"):
        return inside.removeprefix("docs")
    return f"{SOURCE}/blob/main/{inside}"


def read_page(app, docname: str, content: list[str]) -> None:
    """Take a page's text from where it is, and mend links that leave this folder."""
    file = ROOT / ELSEWHERE[docname] if docname in ELSEWHERE else DOCS / f"{docname}.md"
    if docname in ELSEWHERE:
        app.env.note_dependency(str(file))
        content[0] = file.read_text()
        if docname == "benchmarks/index":
            content[0] += "\n```{toctree}\n:hidden:\n:glob:\n\n*\n```\n"
    if file.suffix == ".md" and file.exists():
        content[0] = LINK.sub(
            lambda found: f"]({in_the_site(found[1], file)}{found[2] or ''})", content[0]
        )


# --- reference --------------------------------------------------------------------------
autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

# --- looks ------------------------------------------------------------------------------
html_theme = "pydata_sphinx_theme"
html_title = "pymc_dp"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "logo": {"text": "pymc_dp"},
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "icon_links": [{"name": "Source", "url": SOURCE, "icon": "fa-brands fa-github"}],
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
}
html_sidebars = {"start": [], "worth": []}
html_show_sourcelink = False

linkcheck_ignore = [r"https://github.com/pymc-dp/.*"]  # not before it is public
linkcheck_timeout = 20


def setup(app) -> None:
    """Connect what Sphinx should call."""
    app.connect("source-read", read_page)
