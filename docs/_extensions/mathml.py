"""Equations as MathML, made when the site is built: browsers draw it, so no page loads a script for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.util import logging

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_LOG = logging.getLogger(__name__)


def _markup(node: nodes.Element, display: str) -> str:
    """Return the MathML of a node's TeX; warns of TeX that cannot be read."""
    text = node.astext().strip()
    try:
        return convert(text, display=display)
    except Exception as error:  # the converter has no exception of its own
        _LOG.warning("TeX that cannot be read (%s): %s", type(error).__name__, text, location=node)
        return ""


def _inline(self: Any, node: nodes.math) -> None:
    self.body.append(_markup(node, "inline"))
    raise nodes.SkipNode


def _block(self: Any, node: nodes.math_block) -> None:
    self.body.append(f'<div class="math">{_markup(node, "block")}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer `mathml`."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
