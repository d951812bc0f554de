"""Progress bars go forward draw by draw, whatever comes from workers, and end once a chain."""

import numpy as np
import pytest

from pymc_dp.executors.chains import _Bars


class Manager:
    def __init__(self, combined):
        self.combined_progress, self.seen = combined, []

    def update(self, *, chain_idx, is_last, draw, tuning, stats):
        self.seen.append((chain_idx, is_last, draw, tuning))


@pytest.mark.parametrize("combined", [False, True])
def test_every_draw_is_shown_once(combined):
    manager = Manager(combined)
    bars = _Bars(manager, chains=2, tune=2)
    values = ({}, [{"accept": np.full(5, 0.5)}], 5)
    bars.advance(0, 3, [{"accept": 0.4}])
    bars.advance(1, 1, [{"accept": 0.4}])
    bars.advance(0, 2, [{"accept": 0.4}])  # a report that comes late
    bars.finish(0, values)
    bars.finish(1, values)
    for chain in (0, 1):
        drawn = [
            (draw, tuning) for c, last, draw, tuning in manager.seen if c == chain and not last
        ]
        assert drawn == [(i, i < 2) for i in range(5)]
    ends = [c for c, last, _, _ in manager.seen if last]
    assert ends == ([1] if combined else [0, 1])


def test_chains_without_draws_are_not_shown():
    manager = Manager(False)
    _Bars(manager, chains=1, tune=0).finish(0, ({}, [{}], 0))
    assert not manager.seen
