"""The paper's studies and `python -m fastflow.report`: what is claimed, judged, drawn and refused."""

import re
from itertools import product

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fastflow
from fastflow.cli.commands.report import main as report
from fastflow.cli.commands.sweep import main as sweep
from fastflow.config.composer import Composer
from fastflow.config.library import hydra_rules, library_root
from fastflow.engine.grid.plan import plan
from fastflow.performance.results import explain
from fastflow.reporting.charts import FORMATS
from fastflow.reporting.charts.overview import axes_of, shown_of
from fastflow.reporting.charts.overview import draw as draw_overview
from fastflow.reporting.charts.style import memory_note, render
from fastflow.reporting.studies import fig01, fig09, report_of
from fastflow.schema.studies import STUDIES

SMALL = ("-m", "model=gemm", "model.m=64,128", "mem=hbm2,hbm3", "output=out/here")


def verdicts(claims):
    return ["yes" if claim.holds else "no" for claim in claims]


# --- figure 9


def scaling(**changed):
    """The 84 points of Figure 9 as the paper tells them; `changed` gives a function for a time or a share."""

    def time(node, memory, network):
        logic = [1.0, 0.6, 0.52, 0.47, 0.465, 0.46, 0.455][node]
        # memory holds logic back, the more so the slower it is
        return max(logic, [0.6, 0.52, 0.5, 0.45][memory]) + [1.0, 0.6, 0.2][network]

    def shares(node, memory, network):
        if node == 0:
            return {"l2": 0.6, "dram": 0.4}
        return {"dram": 0.7, "l2": 0.3} if node < 4 else {"l2": 0.3, "l1": 0.3, "dram": 0.4}

    tell = {"time": time, "shares": shares, "feasible": lambda point: True} | changed
    rows = []
    places = product(enumerate(fig09.NODES), enumerate(fig09.MEMORIES), enumerate(fig09.NETWORKS))
    for point, ((i, node), (j, memory), (k, network)) in enumerate(places):
        share = {f"{name}_bound_frac": 0.0 for name in ("compute", "l0", "l1", "l2", "dram", "launch")}
        share |= {f"{name}_bound_frac": value for name, value in tell["shares"](i, j, k).items()}
        names = {"point": point, "tech": node, "mem": memory, "net": network}
        rows.append(names | {"time_s": tell["time"](i, j, k), "feasible": tell["feasible"](point)} | share)
    return pd.DataFrame(rows)


def by_memory(node, memory, network):
    """Times under which every claim on times holds."""
    floor = [0.90, 0.70, 0.46, 0.40][memory]
    logic = [1.30, 0.75, 0.62, 0.405, 0.404, 0.403, 0.402][node]
    return max(floor, logic) + [0.50, 0.30, 0.10][network]


GOOD = {"time": by_memory}
JUMP, L2, MEMORY, BETTER, MOVES, ABOUT_N3, HARDLY, CACHES, NETWORKS = range(9)


def test_everything_that_figure_9_claims_can_hold():
    claims = fig09.claims(scaling(**GOOD))
    assert verdicts(claims) == ["yes"] * 9, "\n".join(claim.line for claim in claims)


def slower(where, factor):
    return lambda *at: by_memory(*at) * (factor if where(*at) else 1.0)


BAD = {
    "a small first step": (JUMP, {"time": slower(lambda i, j, k: i == 0 and j == 0 and k == 0, 0.73)}),
    "a larger later step": (JUMP, {"time": slower(lambda i, j, k: i < 6, 2.0)}),
    "little L2 at N12 with one memory": (
        L2, {"shares": lambda i, j, k: {"l2": 0.24 if j == 3 and i == 0 else 0.3, "dram": 0.7}}
    ),
    "compute first at N5": (
        MEMORY, {"shares": lambda i, j, k: {"compute": 0.6 if i == 2 else 0.0, "dram": 0.4}}
    ),
    "memory gains little at N7": (BETTER, {"time": slower(lambda i, j, k: (i, j, k) == (1, 3, 0), 1.2)}),
    "saturation where it was": (MOVES, {"time": lambda i, j, k: by_memory(i, 3, k) + 0.1 * (3 - j)}),
    "saturation at once": (ABOUT_N3, {"time": lambda i, j, k: 1.3 - 0.1 * j if i == 0 else 1.0 - 0.1 * j}),
    "logic still gains": (HARDLY, {"time": slower(lambda i, j, k: i == 6, 0.85)}),
    "main memory to the end": (CACHES, {"shares": lambda i, j, k: {"l2": 0.4, "dram": 0.6}}),
    "networks that gain little": (NETWORKS, {"time": lambda i, j, k: by_memory(i, j, 0) - 0.002 * k}),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_each_claim_of_figure_9_can_fail(name):
    which, changed = BAD[name]
    claims = fig09.claims(scaling(**GOOD | changed))
    assert verdicts(claims)[which] == "no", claims[which].line
    assert claims[which].line.endswith("; no")


def test_the_figures_of_figure_9_by_hand():
    lines = [claim.line for claim in fig09.claims(scaling(**GOOD))]
    # (1.30 + 0.50) / (0.90 + 0.50) and (1.30 + 0.10) / (0.75 + 0.10)
    assert "gains 29% (HBM2 NDR-x8) to 65% (HBM2e GDR-x8)" in lines[JUMP]
    assert "HBM2 60%, HBM2e 60%, HBM3 60%, HBM4 60%" in lines[L2]
    assert "N7 70%, N5 70%, N3 70% of kernel time" in lines[MEMORY]
    assert lines[HARDLY].endswith("N3 to N1 gains 0.6%; yes")
    assert "HBM4 79% against 0.3%" in lines[NETWORKS]
    assert "N2 caches 60% and main memory 40%" in lines[CACHES]


def test_what_a_grid_lacks_is_named():
    frame = scaling(**GOOD)
    claims = fig09.claims(frame[frame["tech"] != "n5"])
    assert claims[JUMP].line.endswith("not judged, no time for N5 HBM2 NDR-x8 and 11 more; no")
    assert verdicts(claims) == ["no", "yes", "no", "no", "no", "no", "yes", "yes", "yes"]
    frame.loc[frame["tech"] == "n5", "time_s"] = np.nan  # no chip
    assert fig09.claims(frame) == claims
    assert verdicts(fig09.claims(frame.head(0))) == ["no"] * 9


def test_of_points_alike_the_first_counts():
    frame = scaling(**GOOD)
    other = frame.assign(time_s=7.0)
    assert fig09.claims(pd.concat([frame, other])) == fig09.claims(frame)


@pytest.mark.parametrize(
    ("feasible", "said"),
    [
        (lambda point: True, "84 points, all fit their memory"),
        (lambda point: False, "84 points, none fits its memory"),
        (lambda point: point > 2, "84 points, 3 do not fit their memory"),
        (lambda point: point > 0, "84 points, 1 does not fit its memory"),
    ],
)
def test_a_figure_says_how_many_points_fit(feasible, said):
    frame = scaling(feasible=feasible)
    assert said in fig09.draw(frame).texts[1].get_text().replace("\n", " ")
    assert memory_note(frame[:1]) == f"1 point, {'fits' if feasible(0) else 'none fits'} its memory"
    about = draw_overview(axes_of(frame), "points").texts[1].get_text().replace("\n", " ")
    count = sum(map(feasible, range(84)))
    assert about.partition("; ")[2] == ("" if count == 84 else f"{count or 'none'} of 84 points feasible")


# --- figure 1


def intensities(values=None):
    """Intensities that fall with devices; two strategies, and the extremes of their tilings."""
    rows = []
    for degree in fig01.DEGREES:
        low, high = (values or (lambda degree: (1.0, 4096.0 / degree**0.5)))(degree)
        for strategy, tiling, intensity in (
            (f"RC-1-{degree}", "random", low),
            (f"RC-{degree}-1", "random", low),
            (f"RC-1-{degree}", "divisors", high),
            (f"RC-{degree}-1", "divisors", low + (high - low) / 4),
            (f"CR-{degree}", "divisors", low + (high - low) / 2),
        ):
            rows.append({"strategy": strategy, "devices": degree, "tiling": tiling, "intensity": intensity})
    return pd.DataFrame(rows)


def test_everything_that_figure_1_claims_can_hold():
    claims = fig01.claims(intensities())
    assert verdicts(claims) == ["yes"] * 4
    # medians are a quarter of the way up from 1: to 2896, 256 and 16
    assert "median 725 on 2, 64.8 on 256, 4.75 on 64K [flop/B]" in claims[0].line
    assert "highest over lowest 16 (on 64K) to 2,896 (on 2)" in claims[1].line
    assert "highest 16 flop/B under RC-1-65536, 4.75 under RC-65536-1" in claims[3].line


@pytest.mark.parametrize(
    ("which", "values"),
    [
        (0, lambda degree: (1.0, 100.0 - degree / 65536)),
        (1, lambda degree: (1.0, 1.9 if degree == 512 else 4096.0 / degree**0.5)),
        (2, lambda degree: (1.0, 151.0 if degree <= 256 else 101.0)),
        (3, lambda degree: (9.0, 10.0) if degree == 65536 else (1.0, 4096.0 / degree**0.5)),
    ],
)
def test_each_claim_of_figure_1_can_fail(which, values):
    assert verdicts(fig01.claims(intensities(values)))[which] == "no"


def test_figure_1_names_what_it_lacks():
    frame = intensities()
    claims = fig01.claims(frame[frame["devices"] <= 512])
    assert claims[0].line.endswith("not judged, no time for 1K devices and 6 more; no")
    assert claims[3].line.endswith("no time for a second strategy on 64K devices; no")


def test_the_strategies_of_figure_1():
    with hydra_rules():
        block = plan(Composer.of_library(), ["+sweeps=fig01"]).grid.blocks[0]
    expected = {f"CR-{degree}" for degree in fig01.DEGREES} | {
        f"RC-{rows}-{degree // rows}"
        for degree in fig01.DEGREES
        for rows in (1, *fig01.DEGREES)
        if rows <= degree
    }
    found = block.columns["parallel.strategy"].tolist()
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("strategy", ["CR-4", "RC-2-2", "d4"])
def test_intensity_is_operations_over_bytes_of_main_memory(compose, predict, summary, strategy):
    points = [
        compose("model=gemm", "system.devices=4", f"parallel.strategy={strategy}", "model.m=512"),
        compose("model=gemm", "system.devices=4", f"parallel.strategy={strategy}", "model.training=true"),
    ]
    got, prediction = summary(points), predict(points)
    for point in range(len(points)):
        kernels = explain(prediction, point)
        flop, moved = ((kernels["repeat"] * kernels[name]).sum() for name in ("flop", "dram_B"))
        assert got["intensity"][point] == pytest.approx(flop / moved, rel=1e-12)
    m, k, n = 512 // (4 if strategy == "d4" else 1), 4096, 4096
    if strategy == "d4":
        # each operand at least once, fp16
        assert got["intensity"][0] <= 2 * m * k * n / (2 * (m * k + k * n + m * n))


# --- figures


@pytest.mark.long
@pytest.mark.parametrize(
    ("draw", "frame", "says"),
    [
        (fig09.draw, scaling(), ("NDR-x8", "HBM2e", "N1.4", "share of kernel time by limiter", "time [s]")),
        (fig09.draw, scaling().query("tech == 'n7' and mem != 'hbm2'"), ("GDR-x8", "HBM4", "N7")),
        (fig09.draw, scaling().replace({"hbm4": "hbm9", "n1": "lab"}), ("HBM9", "lab")),
        (fig09.draw, scaling().head(0), ("section 9.1",)),
        (fig01.draw, intensities(), ("64K", "RC-65536-1", "intensity [flop/B]", "best tiling")),
        (fig01.draw, intensities().query("devices <= 8 and tiling == 'random'"), ("by strategy, 8 devices",)),
        (fig01.draw, intensities().head(0), ("section 2",)),
    ],
)
def test_figures_of_any_part_of_a_grid(draw, frame, says):
    text = "\n".join(re.findall(r">([^<>\n]+)</(?:text|tspan)>", render(lambda: draw(frame)).decode()))
    for words in says:
        assert words in text


@pytest.mark.long
@pytest.mark.parametrize("kind", FORMATS)
def test_a_figure_is_the_same_to_the_byte(kind):
    first, second = (render(lambda: fig01.draw(intensities()), kind) for _ in range(2))
    assert first == second
    assert first.startswith({"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}[kind])


# --- an overview of any grid


def some_grid(size=3):
    axes = product(("n7", "n12"), range(size, 0, -1))
    frame = pd.DataFrame([{"tech": tech, "model.batch": batch} for tech, batch in axes])
    return frame.assign(
        point=range(len(frame)), mem=frame["tech"].map({"n7": "hbm3", "n12": "hbm2"}), net="ndr_x8",
        time_s=frame["model.batch"] * frame["tech"].map({"n7": 1.0, "n12": 2.0}),
        feasible=frame["model.batch"] > 1, bound_by="l2", reason="", dram_bound_frac=0.25, l2_bound_frac=0.75,
    )  # fmt: skip


def test_axes_and_the_best_of_each_value():
    tech, batch = axes_of(some_grid())  # mem varies with tech, net does not vary
    assert (tech.key, [value.name for value in tech.choices]) == ("tech", ["n7", "n12"])
    assert [(value.points, value.feasible) for value in tech.choices] == [(3, 2), (3, 2)]
    # the fastest feasible one, though an infeasible one is faster
    assert [(value.best_s, value.median_s) for value in tech.choices] == [(2.0, 2.0), (4.0, 4.0)]
    assert [value.name for value in batch.choices] == ["1", "2", "3"]
    assert [value.best_s for value in batch.choices] == [1.0, 2.0, 3.0]
    assert tech.choices[0].shares == {"l2": 0.75, "dram": 0.25}


@pytest.mark.long
def test_a_value_without_a_time_and_many_values():
    frame = some_grid(60)
    frame.loc[frame["model.batch"] == 1, "time_s"] = np.nan
    axes = axes_of(frame)
    assert np.isnan(axes[1].choices[0].best_s)
    text = render(lambda: draw_overview(axes, "a title")).decode()
    assert "model.batch: best 24 of 60" in text
    assert [value.name for value in shown_of(axes[1])] == [str(batch) for batch in range(2, 26)]
    assert len(axes_of(frame.head(1))) == 1


def test_the_axes_are_those_that_were_swept():
    """Neither what varies with them, nor none of a choice that is a column of results."""
    frame = some_grid().assign(placement_requested=["auto", "kp1-kp2-dp-pp", "auto"] * 2)
    keys = [axis.key for axis in axes_of(frame, ["mem", "placement"])]
    assert keys == ["mem", "placement_requested"]
    assert [axis.key for axis in axes_of(frame, ["net"])] == ["placement_requested"]  # it does not vary


def test_choices_without_an_order_are_not_joined_and_the_best_are_drawn_last():
    frame = some_grid().rename(columns={"model.batch": "calibration"}).assign(time_s_p10=0.5, time_s_p90=9.0)
    frame["calibration"] = frame["calibration"].map({1: "measured", 2: "none", 3: "some"})
    axes = axes_of(frame, ["tech", "calibration"])
    assert [axis.ordered for axis in axes] == [True, False]
    figure = draw_overview(axes, "a title")
    styles = [[line.get_linestyle() for line in figure.axes[place].lines] for place in (0, 2)]
    assert styles == [["-", "--"], ["None", "None"]]
    for panel in figure.axes[::2]:  # what is drawn later lies on top
        parts = sorted([*panel.collections, *panel.lines], key=lambda part: part.get_zorder())
        assert [part.get_label() for part in parts] == ["10% to 90%", "median", "best"]
    assert axes_of(some_grid())[1].ordered


@pytest.mark.parametrize("beside", [0, 3])
def test_labels_of_many_chips_do_not_touch(beside):
    """24 of them are turned, whether their panel is wide or one of four."""
    frame = pd.concat([some_grid(1)] * 24, ignore_index=True)
    frame["chip"] = [f"h100_sxm_{number}_gb" for number in range(48)]
    axes = axes_of(frame, ["chip"])
    figure = draw_overview(axes * (1 + beside), "a title")
    figure.draw_without_rendering()
    labels = figure.axes[1].get_xticklabels()
    assert len(labels) == 24
    first, second = (text.get_transform().transform(text.get_position()) for text in labels[:2])
    angle = np.radians(labels[0].get_rotation())
    apart = (second - first)[0] * np.sin(angle) / figure.dpi  # of the lines that they stand on [in]
    assert apart > labels[0].get_size() / 72.0


# --- the command line


@pytest.mark.long
def test_a_study_from_the_command_line(cli, tmp_path):
    code, out, _ = cli(sweep, "-m", "+sweeps=fig09", "tech=n3,n1", "output=out/nine")
    assert code == 0
    assert out[-2:] == ["Figure: out/nine-fig09.svg", "Dataset: out/nine"]
    claims = [line for line in out if line.endswith(("; yes", "; no"))]
    assert len(claims) == 9
    assert "not judged" in claims[JUMP]
    assert claims[NETWORKS].endswith("yes")
    assert [path.suffix for path in (tmp_path / "out/nine").iterdir()] == [".parquet"]
    drawn = (tmp_path / "out/nine-fig09.svg").read_bytes()
    # the dataset knows what it is
    code, again, err = cli(report, "out/nine", "--figures", "new/figures")
    assert (code, err) == (0, [])
    assert [line for line in again if line] == [*claims, "Figure: new/figures/nine-fig09.svg"]
    assert (tmp_path / "new/figures/nine-fig09.svg").read_bytes() == drawn


@pytest.mark.long
def test_a_report_on_any_grid(cli, tmp_path):
    assert cli(sweep, *SMALL)[0] == 0
    code, out, err = cli(report, "out/here/")
    assert (code, err) == (0, [])
    assert out[0] == "out/here/: 4 points; model.m (2), mem (2)"  # as they were written
    assert out[1] == "4 feasible"
    for words in ("Fastest feasible points", "By mem", "By model.m"):
        assert words in map(str.strip, out)
    assert out[-1] == "Figure: out/here-report.svg"
    assert (tmp_path / "out/here-report.svg").read_bytes().startswith(b"<?xml")
    assert cli(report, "out/here", "--format", "pdf")[0] == 0
    assert (tmp_path / "out/here-report.pdf").read_bytes().startswith(b"%PDF")
    # judged as a study all the same
    code, out, _ = cli(report, "out/here", "--study", "fig09")
    assert (code, sum(line.endswith("no") for line in out)) == (0, 9)


@pytest.mark.parametrize(
    ("swept", "says"),
    [
        (("tech=n5,n3", "scaling=paper,foundry", "mem=hbm3"), "tech (2), scaling (2)"),
        (("chip=a100,h100_sxm", "calibration=measured,none"), "chip (2), calibration (2)"),
        (("chip=a100,v100_sxm,h100_sxm",), "chip (3)"),
        (
            ("parallel.strategy=auto,d1", "placement=auto,kp1-kp2-dp-pp"),
            "parallel.strategy (2), placement_requested (2)",
        ),
    ],
)
def test_a_report_has_the_axes_that_were_swept(cli, swept, says):
    overrides = swept if len(swept) > 1 and "parallel" in swept[0] else (*swept, "parallel.strategy=d1")
    assert cli(sweep, "-m", "model=gemm", "system.devices=1", *overrides, "output=mine")[0] == 0
    code, out, err = cli(report, "mine")
    assert (code, err) == (0, [])
    assert out[0].endswith(f" points; {says}")
    head = next(line.split() for line in out if line.startswith("point "))
    assert set(re.findall(r"[\w.]+(?= \()", says)) | {"strategy"} <= set(head)


@pytest.mark.long
def test_a_report_on_one_point_and_from_inside(cli, tmp_path, monkeypatch):
    assert cli(sweep, "model=gemm", "output=out/one")[0] == 0
    monkeypatch.chdir(tmp_path / "out" / "one")
    code, out, _ = cli(report, ".")
    assert (code, out[-1]) == (0, f"Figure: {tmp_path}/out/one-report.svg")


@pytest.mark.long
def test_a_report_on_a_url(cli):
    fsspec = pytest.importorskip("fsspec")
    fastflow.sweep("model=gemm", "model.m=64,128", output="memory://report/there")
    code, out, err = cli(report, "memory://report/there")
    assert (code, err) == (0, [])
    assert out[-1] == "Figure: memory://report/there-report.svg"
    assert fsspec.filesystem("memory").cat("/report/there-report.svg").startswith(b"<?xml")
    assert cli(report, "memory://report/nothing")[0] == 2


def test_what_cannot_be_reported_on(cli, tmp_path):
    for name, table in (("foreign", {}), ("torn", {}), ("old", {"fastflow.version": "0.0.9"})):
        (tmp_path / name).mkdir()
        about = pa.table({"point": [0]}).replace_schema_metadata(table)
        pq.write_table(about, tmp_path / name / "part-00000.parquet")
    (tmp_path / "torn" / "part-00000.parquet").write_bytes(b"PAR1")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "taken-report.svg").mkdir()
    fastflow.sweep("model=gemm", output=tmp_path / "taken")
    for arguments, says in (
        (["none"], r"dataset=none is invalid: expected .*; there is no such folder"),
        (["file"], r"dataset=file is invalid: .*; this is not a folder"),
        (["empty"], r"dataset=empty is invalid: .*holds no part of a dataset"),
        (["foreign"], r"dataset=foreign is invalid: .*fastflow did not write part-00000.parquet"),
        (["torn"], r"dataset=torn is invalid: .*part-00000.parquet is damaged"),
        (
            ["old"],
            r"dataset=old is invalid: expected a dataset with time_s, .*; .* version 0\.0\.9, has no",
        ),
        (["nosuch://there"], r"dataset=nosuch://there is invalid: "),
        (["taken"], r"figure=taken-report.svg is invalid: "),
        ([], r"the following arguments are required: DATASET; see .* --help"),
        (["taken", "--study", "fig02"], r"argument --study: invalid choice: .*fig02"),
    ):
        code, _, err = cli(report, *arguments)
        assert (code, len(err)) == (2, 1), (arguments, err)
        assert re.match(says, err[0]), err


@pytest.mark.long
def test_a_run_cut_short_is_said_to_be(cli, tmp_path):
    assert cli(sweep, "-m", "model=gemm", "model.m=range(1,301)", "output=out")[0] == 0
    (tmp_path / "out" / "part-00001.parquet").unlink()
    code, out, _ = cli(report, "out")
    assert (code, out[0]) == (0, "out: 256 points of 300; the run was cut short; model.m (256)")


@pytest.mark.long
def test_mistakes_in_the_name_of_a_report(cli):
    known = ", ".join(STUDIES)
    refused = [f"report=fig02 (from the command line) is invalid: expected null or one of {known}"]
    assert cli(sweep, "-m", "mem=hbm2,hbm3", "report=fig02")[::2] == (2, refused)
    alone = [
        "report=fig09 (from the command line) is invalid: expected null for one point; "
        "only a grid (-m) is a study"
    ]
    assert cli(sweep, "report=fig09")[::2] == (2, alone)


def test_help_names_what_there_is(cli):
    code, out, _ = cli(report, "--help")
    text = "\n".join(out)
    assert code == 0
    assert all(words in text for words in (*STUDIES, "DATASET", "--figures", "yes or no", "examples"))
    assert max(map(len, out)) <= 120


def test_every_report_that_a_study_asks_for_is_there():
    asked = [
        match[1]
        for path in sorted((library_root() / "sweeps").glob("*.yaml"))
        if (match := re.search(r"^report: (\w+)$", path.read_text(encoding="utf-8"), re.M))
    ]
    assert {"fig01", "fig09"} <= set(asked) <= set(STUDIES)
    assert all(report_of(name).columns for name in STUDIES)
