"""Reports on a dataset: the claims and the figure of a study, or tables and a figure of any grid.

The file of a figure is next to its dataset, whose folder has only Parquet parts: `results/mine-fig09.svg`
next to `results/mine`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

from fastflow.config.list_keys import COLUMNS
from fastflow.config.messages import COMMAND_LINE, one_of, pluralize
from fastflow.core.errors import InputError
from fastflow.engine.dataset import kinds
from fastflow.engine.dataset.folder import ERRORS, FRONT, PLAN, RANKING, folder_at, is_folder, is_url
from fastflow.engine.dataset.reader import Dataset, find
from fastflow.engine.dataset.selected_columns import select_columns
from fastflow.engine.grid.run import Run
from fastflow.reporting.charts import CHARTS
from fastflow.reporting.studies import report_of
from fastflow.schema import find_input, find_result
from fastflow.schema.studies import STUDIES

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from fastflow.analysis.backtest.options import BacktestOptions
    from fastflow.analysis.backtest.study import Backtest
    from fastflow.analysis.sensitivity.study import Sensitivity

_PAGES = (".html", ".htm")
_MAX_NAME_BYTES = 240  # of a file's name: a temporary file has a longer one


def report(name: str, study: str = "", figures: str = "", kind: str = "svg", columns: str = "") -> None:
    """Report on the dataset at a path or URL; raises InputError.

    study: to judge it as, by default the study in its metadata; without a study, tables and a figure of any
    grid. figures: the folder of the figure, by default that of the dataset. kind: its format. columns: names
    and patterns that replace the default results of a grid or a search.
    """
    dataset = _dataset_of_study(find(name))
    names = dataset.schema.names
    study = study or dataset.about("report")
    if columns and (study or dataset.kind not in (kinds.GRID, *kinds.OF_SEARCH)):
        raise InputError(COLUMNS, columns, f"nothing here: the tables of {name} are of one kind alone")
    chosen = select_columns(columns, names)
    if dataset.kind in kinds.OF_VALIDATION:
        show_validation(dataset, figures, kind)
        return
    if dataset.kind == kinds.SENSITIVITY:
        show_sensitivity(dataset, figures, kind)
        return
    if dataset.kind in kinds.OF_BACKTEST:
        show_backtest(dataset, figures, kind)
        return
    if dataset.kind in kinds.OF_FLEETS:
        show_fleets(dataset, figures, kind)
        return
    if study:
        if study not in STUDIES:
            raise InputError("study", study, one_of(STUDIES), name)
        judge(dataset, study, figures, kind)
    elif dataset.kind in kinds.OF_SEARCH:
        from fastflow.reporting.terminal import ranking

        dataset.read(names)  # check every column before printing any
        ranking.report(dataset, chosen)
        if dataset.kind != kinds.RANKING:
            draw_search(dataset, figures, kind)
    elif is_of_servers(names):
        from fastflow.reporting.terminal import serving_grid

        serving_grid.report(dataset, partial(_save, dataset, "report", figures, kind), chosen)
    else:
        from fastflow.reporting.terminal import overview

        overview.report(dataset, partial(_save, dataset, "report", figures, kind), chosen)


def draw_chart(name: str, chart: str, figures: str = "", kind: str = "svg") -> None:
    """Draw a chart of the dataset at a path or URL, without tables; raises InputError.

    chart: a name of `reporting.charts.CHARTS`; figures, kind: as of `report`.
    """
    draw = CHARTS.find(chart)
    dataset = find(name)
    _save(dataset, chart, figures, kind, partial(draw, dataset))


def write_page(name: str, file: str, study: str = "", config_dir: str | None = None) -> None:
    """Write a page of the dataset at a path or URL into a file, and print the path; raises InputError.

    study: to judge it as; config_dir: the user's library, which its points need.
    """
    from fastflow.reporting.html.document import document
    from fastflow.reporting.html.kinds import page_of

    folder, base = _split(file)
    if Path(base).suffix.lower() not in _PAGES:
        raise InputError("html", file, f"a file whose name ends in {' or '.join(_PAGES)}", COMMAND_LINE)
    if len(base.encode()) > _MAX_NAME_BYTES:
        raise InputError(
            "html", f"{base[:24]}...", f"a name of {_MAX_NAME_BYTES} letters at most", COMMAND_LINE
        )
    if config_dir is not None and not is_folder(config_dir):
        raise InputError("--config-dir", config_dir, "a folder that exists", COMMAND_LINE)
    if not is_url(file) and not is_folder(folder):
        raise InputError("html", file, f"a file in a folder that exists; {folder} does not", COMMAND_LINE)
    if not is_url(file) and is_folder(file):
        raise InputError("html", file, "a file; this is a folder", COMMAND_LINE)
    dataset = find(name)
    if not is_url(file) and Path(folder).resolve() == Path(dataset.folder.shown).resolve():
        raise InputError(
            "html", file, "a file outside of the dataset, which holds its parts alone", COMMAND_LINE
        )
    page = page_of(_dataset_of_study(dataset), study, config_dir)
    content = document(page)
    _put(folder, base, "html", content)
    for line in filter(None, (page.sample_note, page.missing_note)):
        print(line)
    points = pluralize(page.total, "point")
    print(f"Page: {file} ({len(content) / 1e6:.1f} MB, {points}); open it in a browser")


def is_of_servers(names: list[str]) -> bool:
    """Say whether all points of a dataset serve, by its columns."""
    return "tpot_s" in names and "bound_by" not in names


def _dataset_of_study(dataset: Dataset) -> Dataset:
    """Return the ranking of a search whose study judges the ranking; else the dataset itself."""
    from fastflow.analysis.search.ranges import ranking_of_search

    ranking = ranking_of_search(dataset) if dataset.kind == kinds.SEARCH else None
    return ranking if ranking is not None and ranking.about("report") else dataset


def check_study(run: Run) -> None:
    """Refuse a study whose claims need what the grid does not sweep, before it is run; raises InputError."""
    if run.grid.report:
        needed = [name for name in report_of(run.grid.report).columns if find_result(name) is None]
        missing = [name for name in needed if find_input(name) is not None and name not in run.grid.keys]
        if missing:
            allowed = f"null, or a grid over {', '.join(missing)}, which its claims compare"
            raise InputError("report", run.grid.report, allowed)


def draw_search(dataset: Dataset, figures: str = "", kind: str = "svg") -> None:
    """Draw the figure of a search's history, or of a front; raises InputError."""
    what = "search" if dataset.kind == kinds.SEARCH else "front"
    _save(dataset, what, figures, kind, partial(CHARTS["search"], dataset))


def _missing_content(rows: pd.DataFrame, errors: pd.DataFrame) -> str:
    """Return the content that the tables of a validation lack, "" for none."""
    from fastflow.analysis.validation.error_metrics import ALL

    is_predicted = rows["predicted_s"].notna()
    if not is_predicted.any():
        return "prediction"
    if rows.loc[is_predicted, "bound_by"].isna().any():
        return "limiter of a row"
    return "" if errors.loc[errors["by"] == ALL, "mean_error"].notna().any() else "error of all rows"


def show_validation(dataset: Dataset, figures: str = "", kind: str = "svg") -> None:
    """Print the errors of a validation, and draw predictions over measurements."""
    rows_dataset = find(f"{dataset.folder.shown.rstrip('/').removesuffix(ERRORS)}")
    errors_dataset = find(f"{rows_dataset.folder.shown.rstrip('/')}{ERRORS}")
    rows, error_rows = (part.read(part.schema.names) for part in (rows_dataset, errors_dataset))
    try:
        missing = _missing_content(rows, error_rows)
        if missing:
            raise InputError(
                "dataset", rows_dataset.folder.shown, f"a validation of fastflow; it has no {missing}"
            )
        print_validation(rows_dataset, errors_dataset, rows, error_rows, figures, kind)
    except KeyError as error:
        allowed = f"a validation of fastflow; it has no column {error}"
        raise InputError("dataset", rows_dataset.folder.shown, allowed) from None


def print_validation(
    rows_dataset: Dataset,
    errors_dataset: Dataset,
    rows: pd.DataFrame,
    error_rows: pd.DataFrame,
    figures: str = "",
    kind: str = "svg",
) -> None:
    """Print and draw a validation; rows, error_rows: the frames of its two datasets."""
    from fastflow.reporting.charts.validation import draw
    from fastflow.reporting.terminal import validation as shown

    shown.show(rows_dataset, rows, error_rows)
    _save(rows_dataset, "validation", figures, kind, partial(draw, rows, shown.title(rows_dataset)))
    print(f"Errors: {errors_dataset.folder.shown}")
    print(f"Dataset: {rows_dataset.folder.shown}")


def show_sensitivity(dataset: Dataset, figures: str = "", kind: str = "svg") -> None:
    """Print and draw a dataset of a sensitivity; raises InputError."""
    from fastflow.analysis.sensitivity.study import read

    save = partial(_save, dataset, "sensitivity", figures, kind)
    print_sensitivity(read(dataset), lambda: dataset.folder.shown, save)


def print_sensitivity(
    sensitivity: Sensitivity, write: Callable[[], str], save: Callable[[Callable[[], Figure]], None]
) -> None:
    """Print and draw a sensitivity; write: writes its dataset, and returns where."""
    from fastflow.reporting.charts.sensitivity import draw
    from fastflow.reporting.terminal.sensitivity import show

    show(sensitivity)
    print(f"Dataset: {write()}")
    if not sensitivity.parameters["insensitive"].all():
        save(partial(draw, sensitivity.parameters, sensitivity.objective, sensitivity.value))


def show_fleets(dataset: Dataset, figures: str = "", kind: str = "svg") -> None:
    """Print the configurations of a search over fleets, or its plan, and draw the front or the plan."""
    from fastflow.reporting.charts.fleet_search import draw_front, draw_plan
    from fastflow.reporting.terminal import fleet_search as shown

    is_plan, about = dataset.kind == kinds.PLAN, dataset.mapping("fleets")
    order = "period" if is_plan else "rank"
    frame = dataset.read(dataset.schema.names).sort_values(order, ignore_index=True)
    shown.report(frame, about, is_plan)
    if is_plan or about["pareto"]:
        draw = draw_plan if is_plan else draw_front
        _save(dataset, "plan" if is_plan else "front", figures, kind, partial(draw, frame, about))


def show_backtest(dataset: Dataset, figures: str = "", kind: str = "svg") -> None:
    """Print and draw the dataset of a back-test; raises InputError."""
    from fastflow.analysis.backtest.study import read

    dataset_of_chips, backtest, question = read(dataset)
    print_backtest(
        backtest,
        question,
        lambda: [dataset_of_chips.folder.shown],
        partial(_save, dataset_of_chips, "backtest", figures, kind),
    )


def print_backtest(
    backtest: Backtest,
    question: BacktestOptions,
    write: Callable[[], list[str]],
    save: Callable[[Callable[[], Figure]], None],
) -> None:
    """Print and draw a back-test; write: writes its datasets, and returns where."""
    from fastflow.reporting.charts.backtest import draw
    from fastflow.reporting.terminal.backtest import show

    show(backtest, question)
    for path in write():
        print(f"Dataset: {path}")
    save(partial(draw, backtest.gains, question.known))


def judge(dataset: Dataset, study: str, figures: str = "", kind: str = "svg") -> None:
    """Print the claims of a study, each on a line that ends in yes or no, and draw its figure."""
    report = report_of(study)
    frame = dataset.read(report.columns)
    print()
    if dataset.grid_points > len(frame):
        points = f"{pluralize(len(frame), 'point')} of {dataset.grid_points:,}"
        print(f"{dataset.folder.shown}: {points}; the run was cut short")
    for claim in report.claims(frame):
        print(claim.line)
    _save(dataset, study, figures, kind, partial(report.draw, frame))


def _save(dataset: Dataset, what: str, figures: str, kind: str, draw: Callable[[], Figure]) -> None:
    """Draw a figure into a file next to its dataset; raises InputError where it cannot be written."""
    parent, name = _split(dataset.folder.shown)
    for selection in (RANKING, FRONT, PLAN):  # a selection of designs has the figure of its search
        name = name.removesuffix(selection)
    _write(figures or parent, f"{name}-{what}.{kind}", kind, draw)


def save_figure(output: str, what: str, draw: Callable[[], Figure]) -> None:
    """Draw a figure into a file next to the dataset at a path or URL, and print its path.

    Raises InputError where it cannot be written.
    """
    parent, name = _split(output)
    _write(parent, f"{name}-{what}.svg", "svg", draw)


def _write(folder: str, name: str, kind: str, draw: Callable[[], Figure]) -> None:
    """Draw a figure into a file, and print its path; raises InputError where it cannot be written."""
    from fastflow.reporting.charts.style import render

    print(f"Figure: {_put(folder, name, 'figure', render(draw, kind))}")


def _put(folder: str, name: str, key: str, content: bytes) -> str:
    """Write a file as a whole; returns its path. Raises InputError with a key where that fails."""
    shown = _joined(folder, name)

    def into(file: IO[bytes]) -> None:
        file.write(content)

    try:
        target = folder_at(folder)
        shown = _joined(target.shown, name)
        target.make()
        target.write(name, into)
    except InputError as error:
        raise InputError(key, shown, error.allowed) from None
    return shown


def _joined(folder: str, name: str) -> str:
    """Return the path or URL of a file in a folder."""
    return f"{folder}/{name}" if is_url(folder) else str(Path(folder) / name)


def _split(shown: str) -> tuple[str, str]:
    """Return the parent folder of a dataset, and its name."""
    if is_url(shown):
        before, _, name = shown.rstrip("/").rpartition("/")
        return before, name
    path = Path(shown)
    path = path if path.name not in ("", "..") else path.absolute().resolve()
    return str(path.parent), path.name
