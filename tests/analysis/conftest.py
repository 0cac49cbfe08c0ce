"""Fixtures of the tests of analyses."""

import pytest


@pytest.fixture
def file(tmp_path):
    """A function that writes a file of measurements, and returns the override that names it."""

    def write(text):
        path = tmp_path / "some.csv"
        path.write_text(text)
        return f"measurements={path}"

    return write
