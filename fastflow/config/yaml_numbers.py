"""Numbers of a user's configuration file that YAML 1.1 reads otherwise than they look.

0100 is 64 there, 1:30 is 90, 0x10 is 16 and 1_000 is 1000.
"""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from fastflow.config.messages import path_of
from fastflow.core.errors import InputError

_ODD = re.compile(
    r"[-+]?(?:0[0-9_]+|0[xob][0-9A-Fa-f_]+|[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?|[0-9]+_[0-9_]*(?:\.[0-9_]*)?)",
    re.ASCII,
)


def check_numbers(path: Path) -> None:
    """Refuse a file with a number that is not written in decimal digits; raises InputError.

    Other mistakes are left to the reader of the file.
    """
    key = latest = ""
    try:
        for token in yaml.scan(path.read_text(encoding="utf-8")):
            if isinstance(token, yaml.ValueToken):
                key = latest
            elif isinstance(token, yaml.ScalarToken):
                latest = str(token.value)
                if token.plain and _ODD.fullmatch(latest):
                    line = f"{path_of(path)}, line {token.start_mark.line + 1}"
                    raise InputError(key or "value", latest, "a number in decimal digits", line)
    except (yaml.YAMLError, OSError, UnicodeDecodeError):
        return
