"""Drawn requests of traces, and files of them."""

import csv
import json

from hypothesis import strategies as st

BLOCK = 4


@st.composite
def requests(draw, hashed=True):
    """Draw lines of a trace in any order: single requests, and sessions whose turns arrive or wait."""
    lines = []
    for session in range(draw(st.integers(1, 5))):
        turns = draw(st.integers(1, 4))
        is_single = turns == 1 and draw(st.booleans())
        time, turn = 0.0, draw(st.integers(0, 2))
        for k in range(turns):
            arrives = k == 0 or draw(st.booleans())
            time += draw(st.sampled_from([0.0, 0.25, 1.5])) if arrives else 0.0
            isl = draw(st.integers(1, 40))
            blocks = draw(st.sampled_from([0, 0, -(-isl // BLOCK), isl // BLOCK])) if hashed else 0
            lines.append(
                {
                    "isl": isl,
                    "osl": draw(st.integers(1, 9)),
                    "arrival": 1.0 + time if arrives else None,
                    "wait": None if arrives else draw(st.sampled_from([0.0, 0.125, 3.0])),
                    "session": None if is_single else f"s{session}",
                    "turn": None if is_single else turn,
                    "hashes": [draw(st.integers(0, 2)) for _ in range(blocks)] or None,
                    "class": draw(st.sampled_from([None, "gold", "best effort"])),
                    "adapter": draw(st.sampled_from([None, "poems", "law"])),
                    "deadline": draw(st.sampled_from([None, 0.5, 2.0])),
                }
            )
            turn += draw(st.integers(1, 2))
    lines = draw(st.permutations(lines))
    return [{"line": i, **line} for i, line in enumerate(lines)]


NAMES = (
    {"isl": "isl", "osl": "osl", "arrival": "arrival_time", "wait": "think_time", "session": "session",
     "turn": "turn", "hashes": "hash_ids", "class": "class", "adapter": "adapter",
     "deadline": "deadline"},
    {"isl": "Prompt Tokens", "osl": "completion_tokens", "arrival": "timestamp_ms", "wait": "delay",
     "session": "conversation_id", "turn": "turn_id", "hashes": "hash_ids", "class": "priority",
     "adapter": "lora", "deadline": "deadline_ms"},
    {"isl": "input_length", "osl": "output_length", "arrival": "timestamp", "wait": "think_time_ms",
     "session": "session_id", "turn": "turn_index", "hashes": "hash_ids", "class": "service_class",
     "adapter": "model", "deadline": "deadline_ms"},
)  # fmt: skip
UNITS = ((1, 1, 1), (1000, 1000, 1000), (1000, 1000, 1000))
"""Of arrivals, waits and deadlines [1/s]."""


def write(path, lines, which):
    """Write lines under the names of a kind of file."""
    names, units = NAMES[which], UNITS[which]
    rows = []
    for line in lines:
        scaled = {**line}
        for key, unit in zip(("arrival", "wait", "deadline"), units, strict=True):
            scaled[key] = None if line[key] is None else line[key] * unit
        rows.append({names[key]: scaled[key] for key in names} | {"block_size": BLOCK})
    with path.open("w", encoding="utf-8", newline="") as file:
        if path.suffix == ".csv":
            writer = csv.writer(file)
            writer.writerow(rows[0])
            writer.writerows(["" if value is None else value for value in row.values()] for row in rows)
        else:
            for row in rows:
                some = {name: value for name, value in row.items() if value is not None}
                file.write(json.dumps(some) + "\n")
