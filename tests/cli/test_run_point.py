"""Files that one point writes beside its dataset."""

import errno

import pytest

from fastflow.cli.run.point import _writing
from fastflow.core.errors import InputError


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_a_file_that_cannot_be_written_is_named_with_its_key(code):
    with (
        pytest.raises(InputError, match=r"^trace=t\.json .*a file that can be written"),
        _writing("trace", "t.json"),
    ):
        raise OSError(code, "why")
