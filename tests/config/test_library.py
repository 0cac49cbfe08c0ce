"""Which files are the library's."""

import pytest

from fastflow.config.library import is_of_library, library_root


@pytest.mark.parametrize(
    ("path", "is_of"),
    [("conf/chip/a100.yaml", True), ("sweeps/fig09.yaml", True), ("mine/chip/small.yaml", False)],
)
def test_a_folder_of_ones_own_in_a_checkout_is_not_of_the_library(path, is_of):
    assert is_of_library(library_root() / path) == is_of
