"""Registries; those of fastflow with packages are in tests/properties/test_extending.py."""

import re

import pytest

from fastflow.core.errors import InputError
from fastflow.core.registry import Registry


@pytest.fixture
def sizes():
    """Sizes by name; `small` is imported on its first lookup."""
    modules = {"digits": "string:digits", "gone": "no_such_module:digits"}
    return Registry(
        "size", "test_sizes", lambda thing: isinstance(thing, str), "a text", {"large": "L"}, modules
    )


@pytest.fixture
def install(tmp_path, monkeypatch):
    """A function that installs a package with entry points of the group."""

    def install(package, points):
        info = tmp_path / package / f"{package}-2.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 2.0\n")
        lines = [f"{name} = {value}" for name, value in points.items()]
        (info / "entry_points.txt").write_text("\n".join(["[fastflow.test_sizes]", *lines]))
        monkeypatch.syspath_prepend(info.parent)

    return install


def test_a_registry_is_a_mapping_of_names(sizes):
    assert [*sizes] == ["large", "digits", "gone"]
    assert (len(sizes), "large" in sizes, "digits" in sizes, "none" in sizes) == (3, True, True, False)
    assert (sizes["large"], sizes.find("large"), sizes["digits"]) == ("L", "L", "0123456789")
    assert sizes.get("none") is None
    with pytest.raises(KeyError, match="none"):
        sizes["none"]


def test_an_unknown_name_is_told_all_names(sizes, install):
    install("some", {"zebra": "string:hexdigits", "ant": "string:octdigits"})
    with pytest.raises(InputError) as error:
        sizes.find("none")
    assert str(error.value) == "size=none is invalid: expected one of large, digits, gone, ant, zebra"


def test_a_name_can_be_registered_once(sizes):
    sizes.register("tiny", "T")
    assert (sizes["tiny"], [*sizes][-1]) == ("T", "tiny")
    for name in ("tiny", "large", "digits"):
        with pytest.raises(ValueError, match=f"size={name} is there already"):
            sizes.register(name, "X")


def test_a_package_adds_a_name(sizes, install):
    assert "octal" not in sizes
    install("some", {"octal": "string:octdigits"})
    assert sizes["octal"] == "01234567"
    assert sizes.added(lambda size: len(size) == 8) == ["01234567"]
    assert sizes.built_in == ("large", "digits", "gone")


def test_things_of_packages_that_suit_hide_broken_ones(sizes, install):
    install("some", {"broken": "no_such_module:thing", "octal": "string:octdigits", "number": "math:pi"})
    assert sizes.added(lambda size: True) == ["01234567"]
    with pytest.raises(
        InputError, match=re.escape("size=broken: the entry point no_such_module:thing of some 2.0")
    ):
        sizes.added(lambda size: False)
    with pytest.raises(InputError, match=r"is 3\.14159.*; expected a text$"):
        sizes["number"]


def test_two_packages_cannot_have_one_name(sizes, install):
    install("some", {"octal": "string:octdigits"})
    install("other", {"octal": "string:hexdigits"})
    with pytest.raises(InputError) as error:
        sizes["octal"]
    assert str(error.value) == (
        "size=octal: the entry point string:hexdigits of other 2.0 (group fastflow.test_sizes) has the name "
        "of string:octdigits of some 2.0; one package can have it"
    )
