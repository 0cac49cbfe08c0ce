"""The page of a fleet: what it has, what a browser makes of it, and which points have none."""

import gzip
import json
import re
from base64 import b64decode

import numpy as np
import pytest

from fastflow.cli.commands.sweep import main as sweep
from fastflow.performance.serving.predict import run_fleet_of
from fastflow.physics.workload.request_trace import read_trace
from fastflow.reporting.fleet_series import curve_of, curves_of, panels_of, session_curves
from tests.conftest import columns_of
from tests.naive.percentile import percentile
from tests.support.browser import PROGRAM, browser

SERVER = ("server=vllm", "model=llama3_8b", "system=dgx_h100", "system.devices=4", "parallel.strategy=TP-1")
FLEET = (*SERVER, "serve=continuous", "router=session_sticky", "serve.tiers.flash.capacity='1 TB'")
SPLIT = (*FLEET, "serve=disaggregated", "serve.prefill.devices=2")
SCALED = (
    *FLEET, "serve.autoscale.by=queue", "serve.autoscale.target=2", "serve.autoscale.start_time='1 s'",
    "serve.autoscale.interval='1 s'",
)  # fmt: skip
LIMITS = ("serve.slo.ttft='60 ms'", "serve.slo.tpot='1 s'")


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """Sessions of several turns, in two classes; a request without a session."""
    random, lines, at = np.random.default_rng(3), ["arrival_time,isl,osl,session,turn,class"], 0.0
    for session in range(40):
        at, context = at + random.exponential(0.5), 0
        for turn in range(4):
            new, answer = int(random.integers(200, 900)), int(random.integers(1, 200))
            lines.append(f"{at + 4 * turn:.3f},{context + new},{answer},{session},{turn},{'ab'[session % 2]}")
            context += new + answer
    lines.append("0.5,700,1,,,<b>")
    path = tmp_path_factory.mktemp("page") / "sessions.csv"
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


def data_of(page):
    """Return the data of a page's scripts."""
    packed = re.search(r'<script type="text/plain" id="data">([^<]*)</script>', page)[1]
    return json.loads(gzip.decompress(b64decode(packed)))


@pytest.fixture
def page(cli, trace, tmp_path):
    """A function that sweeps a point: (its page, the row of its dataset, lines on the screen)."""

    def run(*keys):
        file, data = tmp_path / "fleet.html", tmp_path / "data"
        code, out, err = cli(sweep, *keys, f"serve.trace={trace}", f"html={file}", f"output={data}")
        assert (code, err) == (0, [])
        import pandas as pd

        return file.read_text(encoding="utf-8"), pd.read_parquet(data).iloc[0], out

    return run


@pytest.mark.parametrize("keys", [FLEET, SPLIT, SCALED])
def test_series_are_the_state_of_the_fleet(compose, trace, keys):
    """As counted one request after the other."""
    run = run_fleet_of(columns_of([compose(*keys, f"serve.trace={trace}", "serve.trace_speed=4")]))
    panels = {panel.title: panel for panel in panels_of(run)}
    assert ("Servers" in panels) == (keys is SCALED)
    requests, served = run.result.requests, run.result.served
    pools = {"": None} if not run.is_split else {" of servers that prefill": 0, " of servers that decode": 1}
    for words, pool in pools.items():
        panel, batch = panels[f"Requests{words}"], panels[f"Batch of a rank{words}"]
        for i in range(0, panel.time.size, 7):
            at, running, waiting = panel.time[i], {}, 0
            for number in range(served.rank.size):
                server = served.rank[number] // run.ranks
                if pool is not None and run.members.pool[server] != pool:
                    continue
                if requests.admitted[number] <= at < requests.end[number]:
                    running[served.rank[number]] = running.get(served.rank[number], 0) + 1
                waiting += served.arrived[number] <= at < requests.admitted[number]
            assert [one.values[i] for one in panel.series] == [sum(running.values()), waiting]
            mean = sum(running.values()) / max(len(running), 1)
            assert [one.values[i] for one in batch.series] == [mean, max(running.values(), default=0)]
    texts = panels["Texts in caches [million tokens]"]
    assert [one.name for one in texts.series] == ["in use", "kept: devices", "kept: flash"]


def test_curves_are_the_shares_of_requests(compose, trace):
    run = run_fleet_of(columns_of([compose(*FLEET, f"serve.trace={trace}")]))
    curves = curves_of(run, read_trace(trace))
    file, e2e = read_trace(trace), run.requests.e2e_s.tolist()
    names = {(curve.by, curve.name) for curve in curves["ttft"]}
    assert names == {
        ("", "all requests"), ("class", "a"), ("class", "<b>"), ("class", "b"), ("turn", "1"), ("turn", "2"),
        ("turn", "3-5"),
    }  # fmt: skip
    assert "<b>" not in [curve.name for curve in curves["tpot"]]  # its request has one token
    for curve in curves["e2e"]:
        own = []
        for i, time in enumerate(e2e):
            turn = {0: "1", 1: "2", 2: "3-5", 3: "3-5"}[file.turn[i]] if file.session[i] >= 0 else None
            named = {"": "all requests", "class": file.class_names[file.service_class[i]], "turn": turn}
            own += [time] if named[curve.by] == curve.name else []
        assert curve.values.tolist() == sorted(own)
        assert curve.shares.tolist() == [(i + 1) / len(own) for i in range(len(own))]
    lasts, waits = session_curves(run, read_trace(trace))
    assert lasts.values.size == waits.values.size == 40
    many = np.random.default_rng(0).random(5000)
    curve = curve_of("", "many", many)
    for i in (0, 40, 97, 150, curve.shares.size - 1):
        assert curve.values[i] == pytest.approx(percentile(many, 100 * curve.shares[i]))


def test_a_page_has_the_results_of_its_point(page):
    text, row, out = page(*FLEET, *LIMITS)
    assert any(line.startswith("Page: ") for line in out)
    assert not row["feasible"]  # a limit is missed: the page shows by how much
    assert "Not feasible: ttft at the 99th percentile" in text
    plain = re.sub(r"<[^>]*>", " ", text[: text.index('<script type="text/plain"')])
    from fastflow.reporting.terminal.tables import quantity

    for name in ("ttft_p50_s", "ttft_p95_s", "tpot_p99_s", "e2e_p90_s", "goodput_per_s", "session_p99_s"):
        assert quantity(name, float(row[name])) in plain, name
    for words in (
        "limit 60 ms: missed", "limit 1 s: met", "Classes of service", "Turns of sessions", "Of 40 sessions",
        "serve.tiers.flash.capacity", f"{row['prefix_hit_rate']:.1%}", "&lt;b&gt;",
    ):  # fmt: skip
        assert words in plain, words
    assert "default-src 'none'" in text
    assert ' src="http' not in text
    assert "<link" not in text
    data = data_of(text)
    limits = {panel["title"]: panel["limit"] for panel in data["panels"] if panel["limit"]}
    assert limits == {"Time to the first token, by arrival": 0.06}
    assert [chart["limit"] for chart in data["times"]] == [0.06, 1.0, 0.0, 0.0]


def test_a_page_without_limits_sessions_or_classes(cli, tmp_path):
    path, file = tmp_path / "one.csv", tmp_path / "one.htm"
    path.write_text("arrival_time,isl,osl\n0,300,1\n", encoding="utf-8")
    keys = (*SERVER, "serve=continuous", f"serve.trace={path}", f"html={file}")
    code, _, err = cli(sweep, *keys, f"output={tmp_path / 'data'}")
    assert (code, err) == (0, [])
    text = file.read_text(encoding="utf-8")
    assert "no limit is set" in text
    assert "sessions</h2>" not in text
    assert [chart["title"] for chart in data_of(text)["times"]] == [
        "Time to the first token", "Time to the last token",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (("parallel.strategy=d512",), "serve.trace=FILE"),
        ((*SERVER, "serve=continuous"), "python -m fastflow.report DATASET html=FILE.html"),
        ((*SERVER, "serve=prefill", "TRACE"), "serve=continuous or disaggregated"),
        ((*SERVER, "serve=continuous", "TRACE", "html=fleet.txt"), ".html or .htm"),
        ((*SERVER, "serve=continuous", "TRACE", "html=nosuch/fleet.html"), "a folder that exists"),
        (("-m", *SERVER, "serve=continuous", "TRACE", "router=random,hashing"), "one point"),
    ],
)
def test_a_page_is_refused_where_there_is_no_fleet(cli, trace, tmp_path, monkeypatch, keys, words):
    monkeypatch.chdir(tmp_path)
    keys = [f"serve.trace={trace}" if key == "TRACE" else key for key in keys]
    html = [] if any(key.startswith("html=") for key in keys) else ["html=fleet.html"]
    code, _, err = cli(sweep, *keys, *html, "output=data")
    assert (code, len(err)) == (2, 1)
    assert err[0].startswith("html=")
    assert words in err[0]
    assert not list(tmp_path.glob("*.html"))


def test_a_trace_and_a_picture_are_of_a_fleet_even_where_a_limit_is_missed(cli, trace, tmp_path):
    picture = tmp_path / "fleet.svg"
    keys = (*FLEET, *LIMITS, f"serve.trace={trace}", f"picture={picture}", f"output={tmp_path / 'data'}")
    code, out, _ = cli(sweep, *keys)
    assert code == 0
    assert any(line.startswith("Not feasible ttft") for line in out)
    assert picture.exists()


@pytest.mark.long
@pytest.mark.skipif(PROGRAM is None, reason="needs Chromium")
def test_a_browser_zooms_and_points_at_all_charts_over_time(page, tmp_path):
    page(*SCALED, *LIMITS)
    with browser() as tab:
        tab.open(tmp_path / "fleet.html")
        assert tab.problems() == []
        assert tab.requests() == []
        charts = "[...document.querySelectorAll('#timelines svg')]"
        assert tab.value(f"{charts}.length") == 5
        assert tab.value("document.querySelectorAll('#curves svg').length") == 4
        tab.value(f"{charts}[1].scrollIntoView()")
        left, top = tab.value(f"(r => [r.left, r.top])({charts}[1].getBoundingClientRect())")
        axis = f"{charts}.map(one => [...one.querySelectorAll('text')].map(t => t.textContent).sort().join())"
        before = tab.value(axis)
        tab.drag((left + 200, top + 40), (left + 500, top + 60))
        tab.until("!document.getElementById('whole').disabled")
        assert all(one != other for one, other in zip(before, tab.value(axis), strict=True))
        assert " to " in tab.value("document.getElementById('span').textContent")
        brushes = f"{charts}.flatMap(one => [...one.querySelectorAll('[fill-opacity=\"0.12\"]')])"
        tab.until(f"{brushes}.every(one => one.getBBox().width === 0)")
        tab.move((left + 300, top + 50))
        tab.until("!document.getElementById('tip').hidden")
        assert "median: " in tab.value("document.getElementById('tip').textContent")
        tab.value("document.querySelectorAll('.timeline')[0].focus()")
        tab.key("ArrowRight")
        assert "running: " in tab.value("document.getElementById('state').textContent")
        tab.key("Escape")
        tab.until("document.getElementById('whole').disabled")
        assert tab.value(axis) == before
        change = "m => { m.value = 'turn'; m.dispatchEvent(new Event('change')); }"
        tab.value(f"({change})(document.getElementById('by'))")
        tab.until("document.querySelector('#curves .key').textContent.includes('turns 3-5')")
        labels = tab.value(f"{charts}.map(one => one.closest('.timeline').getAttribute('aria-label'))")
        assert labels[0].startswith("Requests, over time: running ")
        assert tab.problems() == []
