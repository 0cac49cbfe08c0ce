"""How Sphinx builds the site: `python -m sphinx -W docs docs/_build`, then open docs/_build/index.html."""

import sys
from pathlib import Path

from pygments.lexers.special import TextLexer

from fastflow.core.version import version as version_of_fastflow

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "fastflow"
author = "the authors of fastflow"
version = release = version_of_fastflow()
language = "en"

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton", "mathml", "generated_pages"]
root_doc = "index"
exclude_patterns = ["_build", "_extensions", "**/.ipynb_checkpoints"]
default_role = "code"  # single backticks in docstrings are code

myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 4  # the same anchors as on a code host
nb_execution_mode = "off"  # notebooks are shown with the outputs that they have
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "none"
add_module_names = False
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = "fastflow"
html_static_path = ["_static"]
html_css_files = ["fastflow.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {"top_of_page_buttons": []}
copybutton_prompt_text = "$ "


def setup(app):
    """Show files of measurements as they are."""
    app.add_lexer("csv", TextLexer)
