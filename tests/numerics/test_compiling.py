"""What is told and changed while something is compiled."""

import logging
import time

import numba
import numpy as np
import pytest

from pymc_dp.numerics import compiled
from pymc_dp.numerics.compiled import compiling


def assigned():
    @numba.njit
    def assign(a, b):
        a[:2] = b

    return assign


def test_long_compiling_is_told_once(caplog, monkeypatch):
    monkeypatch.setattr(compiled, "PATIENCE", 0.05)
    with caplog.at_level(logging.INFO, logger="pymc"), compiling("a sampler for x"):
        time.sleep(0.5)
    first, second = [record.message for record in caplog.records]
    assert first == "Compiling a sampler for x"
    assert second.startswith("Compiled a sampler for x in ")


def test_short_compiling_is_not_told(caplog):
    with caplog.at_level(logging.INFO, logger="pymc"), compiling("a sampler for x"):
        pass
    assert not caplog.records


def test_what_fails_is_not_told_as_done(caplog, monkeypatch):
    monkeypatch.setattr(compiled, "PATIENCE", 0.0)

    def fail():
        with compiling("x"):
            raise ZeroDivisionError

    with caplog.at_level(logging.INFO, logger="pymc"), pytest.raises(ZeroDivisionError):
        fail()
    assert not any("Compiled" in record.message for record in caplog.records)


def test_slices_of_unequal_size_are_errors_still():
    a = np.zeros(3)
    with compiling("x"):
        plain = assigned()
        plain(a, np.ones(2))
    np.testing.assert_array_equal(a, [1, 1, 0])
    with pytest.raises(ValueError, match="different size"):
        plain(a, np.ones(3))
    with pytest.raises(ValueError, match=r"\(2,\).*\(3,\)"):  # and numba's own are as they were
        assigned()(a, np.ones(3))
