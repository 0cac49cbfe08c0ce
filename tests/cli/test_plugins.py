"""fastflow's plugins for Hydra, which finds them for every application on the machine."""

import pytest
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra.core.config_search_path import SearchPathElement

from fastflow.config.library import USER_FILES, hydra_rules, library_root


@pytest.mark.parametrize("scheme", ["", "file://"])
@pytest.mark.parametrize(
    ("provider", "folder", "is_ours"),
    [
        ("main", "ROOT/conf", True),
        ("main", "/a/conf", False),
        ("main", "/~/conf", False),
        ("main", "ROOT", False),
        ("main", "ROOT/conf/chip", False),
        ("hydra", "ROOT/conf", False),
        ("command-line", "ROOT/conf", False),
        ("schema", "ROOT/conf", False),
    ],
)
def test_only_an_application_over_the_library_has_user_files_and_studies(provider, folder, is_ours, scheme):
    """Whatever the order of both folders; all other entries of the path stay as they are."""
    with hydra_rules():
        from hydra_plugins.fastflow_sweeper import LibrarySearchPath
    root, search_path = str(library_root()), ConfigSearchPathImpl()
    own = (provider, scheme + folder.replace("ROOT", root))
    before = [("hydra", "pkg://hydra.conf"), own, ("schema", "structured://")]
    search_path.config_search_path = [SearchPathElement(*entry) for entry in before]
    LibrarySearchPath().manipulate_search_path(search_path)
    after = [(entry.provider, entry.path) for entry in search_path.get_path()]
    added = ("fastflow", f"{USER_FILES}://"), ("fastflow", f"studies://{root}")
    assert after == ([added[0], *before, added[1]] if is_ours else before)
