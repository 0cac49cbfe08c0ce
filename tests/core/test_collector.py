"""The paused collector of cycles."""

import gc

import pytest

from fastflow.core.collector import paused_collector


def test_it_goes_on_behind_and_after_an_error():
    assert gc.isenabled()
    with paused_collector():
        assert not gc.isenabled()
        with paused_collector():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ValueError, match="wrong"), paused_collector():
        raise ValueError("wrong")
    assert gc.isenabled()
