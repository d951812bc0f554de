"""The pages' Python runs as written, with short chains."""

import re
from functools import partial
from pathlib import Path

import dask.distributed
import matplotlib as mpl
import pymc as pm
import pytest

import pymc_dp as pmdp

ROOT = Path(__file__).parent.parent
PAGES = [
    "README.md",
    "docs/index.md",
    "docs/analyst.md",
    "docs/counts.md",
    "docs/mechanisms.md",
    "docs/formats.md",
    "docs/curator.md",
    "docs/marginal_exact.md",
    "docs/regression.md",
    "docs/distributed.md",
    "docs/cluster.md",
    "docs/shards.md",
]

mpl.use("Agg")
pytestmark = pytest.mark.pages


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
def test_page_runs(page, monkeypatch):
    sample = pm.sample

    def short(draws=1000, *, tune=None, **kwargs):
        quick = {"cores": 1, "progressbar": False, "quiet": True, "random_seed": 1}
        return sample(min(draws, 20), tune=min(tune or 20, 20), **(kwargs | quick))

    monkeypatch.setattr(pm, "sample", short)
    calibrate = pmdp.calibrate
    few = {"replicates": 4, "tune": 20, "quiet": True}
    monkeypatch.setattr(pmdp, "calibrate", lambda model, **kw: calibrate(model, **kw | few))
    here = {"processes": False, "n_workers": 1, "dashboard_address": ":0"}  # as short as here
    monkeypatch.setattr(dask.distributed, "Client", partial(dask.distributed.Client, **here))
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.S)
    assert blocks
    exec(compile("\n".join(blocks), page, "exec"), {"__name__": "page"})
