"""Ctrl-C while threads work, and an address at which nothing listens."""

import signal
import socket

import pytest

from fastflow.core.errors import InputError
from fastflow.engine.run.workers import CancellationToken, _check_reachable, interruptible


@pytest.fixture
def heeds_interrupts():
    """A process that was started in the background ignores them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeds_interrupts")
def test_the_second_interrupt_stops_at_once_and_the_first_at_the_end(capsys):
    before, steps = signal.getsignal(signal.SIGINT), []

    def interrupted(token, times):
        with interruptible(token):
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
                steps.append(token.is_cancelled)

    with pytest.raises(KeyboardInterrupt):
        interrupted(CancellationToken(), 1)
    assert steps == [True]
    with pytest.raises(KeyboardInterrupt):
        interrupted(CancellationToken(), 2)
    assert steps == [True, True]  # the second interrupt is no step
    assert signal.getsignal(signal.SIGINT) is before
    assert capsys.readouterr().err.count("Ctrl-C again stops at once") == 2


def test_an_address_at_which_nothing_listens_is_refused():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # it does not listen
        with pytest.raises(InputError, match=r"^engine\.address="):
            _check_reachable(f"tcp://127.0.0.1:{closed.getsockname()[1]}")
