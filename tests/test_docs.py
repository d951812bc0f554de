"""The pages' Python runs as written, with short chains."""

import re
from pathlib import Path

import matplotlib as mpl
import pymc as pm
import pytest

ROOT = Path(__file__).parent.parent
PAGES = [
    "README.md",
    "docs/analyst.md",
    "docs/counts.md",
    "docs/mechanisms.md",
    "docs/curator.md",
    "docs/marginal_exact.md",
    "docs/regression.md",
    "docs/distributed.md",
]

mpl.use("Agg")


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
def test_page_runs(page, monkeypatch):
    sample = pm.sample

    def short(draws=1000, *, tune=None, **kwargs):
        quick = {"cores": 1, "progressbar": False, "quiet": True, "random_seed": 1}
        return sample(min(draws, 20), tune=min(tune or 20, 20), **(kwargs | quick))

    monkeypatch.setattr(pm, "sample", short)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.S)
    assert blocks
    exec(compile("\n".join(blocks), page, "exec"), {"__name__": "page"})
