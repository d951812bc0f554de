"""Fixtures for mechanisms."""

import pytest


@pytest.fixture
def without_opendp(monkeypatch):
    """Release as on a machine without OpenDP."""
    monkeypatch.setattr("pymc_dp.mechanisms.opendp_noise.is_installed", lambda: False)
