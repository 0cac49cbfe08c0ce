"""`python -m fastflow.columns`: the registry as the tables of docs/columns.md."""

from __future__ import annotations

from fastflow.columns import INPUTS, RESULTS, SEARCH, VALIDATION


def markdown() -> str:
    """Return the registry as the tables of `docs/columns.md`."""
    lines = ["# Columns", "", "Written by `python -m fastflow.columns > docs/columns.md`.", ""]
    tables = (("Results", RESULTS), ("Searches", SEARCH), ("Validations", VALIDATION), ("Inputs", INPUTS))
    for title, columns in tables:
        lines += [f"## {title}", "", "| name | type | unit | meaning | allowed |", "|---|---|---|---|---|"]
        for column in columns:
            allowed = column.allowed() if columns is INPUTS else ""
            allowed += f"; or missing: {column.absent}" if column.absent else ""
            unit = column.unit.replace("^2", "²")
            lines.append(f"| `{column.name}` | {column.kind} | {unit} | {column.meaning} | {allowed} |")
        lines.append("")
    return "\n".join(lines).rstrip()


if __name__ == "__main__":
    print(markdown())
