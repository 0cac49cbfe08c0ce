"""Colours that charts and pictures share."""

from __future__ import annotations

INK, QUIET, IDLE = "#222222", "#666666", "#dcdcdc"
