"""What tests of models start from: files that a model is read from."""

import json

import pytest


@pytest.fixture
def file(tmp_path):
    """A function that writes a config.json, and returns its path."""

    def write(content, name="config.json"):
        path = tmp_path / name
        text = content if isinstance(content, str | bytes) else json.dumps(content)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return str(path)

    return write
