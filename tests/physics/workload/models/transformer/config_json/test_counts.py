"""Parameters of published models: of their weights, and total and active ones as authors give them."""

import pytest

from fastflow.physics import workload
from fastflow.physics.workload.models.transformer import parameters
from tests.support.config_files import FILES, columns
from tests.support.paths import ROOT

# authors round, and count a part that is not read, or not all that their weights have
OTHERS = {
    "kimi-k2": "1 trillion", "kimi-k2.5": "1 trillion", "gemma3-4b": "with the encoder of images, 0.42",
    "gemma3n-e4b": "with those", "llama4-scout": "with the encoder of images, 0.86",
    "mistral-small-3.2": "with the encoder of images, 0.44", "ernie-4.5-vl-28b": "without some norms",
    "kimi-linear-48b": "the weights have 49.1", "kimi-k3": "2.8 trillion", "mimo-7b": "without the embedding",
}  # fmt: skip
# matrices of vocabulary times hidden that are left out: a tied embedding is the head too, and stays
LEFT_OUT = {"all": (0, 0), "without embedding": (1, 0), "without embedding and head": (2, 1)}
TOTAL, ACTIVE = ([name for name, one in FILES.items() if one.get("authors", ("", ""))[i]] for i in (0, 1))


def last_digit(published):
    return 10.0 ** -len(published.partition(".")[2])


def counted_active(name):
    """Active parameters of a model as its authors count them, in billions."""
    result = columns(FILES[name]["config"])
    matrix = result["model.vocabulary"][0] * result["model.hidden"][0]
    fewer = LEFT_OUT[FILES[name].get("active", "all")][int(result["model.tied"][0])]
    return (parameters(result)[1][0] - fewer * matrix) / 1e9


@pytest.mark.parametrize("name", FILES)
def test_a_published_file_gives_the_published_parameters(name):
    result = columns(FILES[name]["config"])
    assert not workload.invalid_model_dims(result).exists[0]
    assert parameters(result)[0][0] / 1e9 == pytest.approx(FILES[name]["billion"], rel=0.001)
    assert workload.count_kernels(result)[0] < 500


@pytest.mark.parametrize("name", TOTAL)
def test_total_counts_are_those_of_the_authors(name):
    published = FILES[name]["authors"][0]
    count = parameters(columns(FILES[name]["config"]))[0][0] / 1e9
    if name not in OTHERS:
        assert abs(count - float(published)) <= max(0.01 * float(published), last_digit(published) / 2)
    assert abs(count - float(published)) < 0.16 * float(published)


@pytest.mark.parametrize("name", ACTIVE)
def test_active_counts_are_those_of_the_authors(name):
    published = FILES[name]["authors"][1]
    above = counted_active(name) - float(published)
    if FILES[name].get("rounded") == "down":
        assert 0 <= above < last_digit(published)
    else:
        assert abs(above) <= max(0.01 * float(published), last_digit(published) / 2)


def test_an_author_counts_all_models_in_one_way():
    ways = {(FILES[name]["card"].split("/")[0], FILES[name].get("active", "all")) for name in ACTIVE}
    assert len(ways) == len({author for author, _ in ways}) > 20


def row_of(name):
    """The cells of a model in the table of the page on files: counts, and those of its authors."""
    one = FILES[name]
    total, active = (column[0] / 1e9 for column in parameters(columns(one["config"])))
    way, rounded = one.get("active", "all"), " rounded down" if one.get("rounded") else ""
    counted = f"{counted_active(name):.4g} {way}{rounded}" if name in ACTIVE else "-"
    return [
        f"{total:.4g}", one["authors"][0] or "-", f"{active:.4g}" if active < 0.98 * total else "-",
        counted, one["authors"][1] or "-",
    ]  # fmt: skip


def test_the_page_on_files_lists_every_count():
    page = (ROOT / "docs" / "config_json.md").read_text(encoding="utf-8").splitlines()
    for name, one in FILES.items():
        if "authors" in one:
            row = next(line for line in page if f"[{one['card']}]" in line).split(" | ")
            assert row[2:7] == row_of(name)
