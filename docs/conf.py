# SPDX-License-Identifier: Apache-2.0
"""Settings of the documentation site; `make docs` builds it into docs/_build/html."""

from __future__ import annotations

import logging
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
logging.getLogger("matplotlib").setLevel(logging.WARNING)
sys.path[:0] = [str(HERE.parent), str(HERE)]  # the code, and the site's own extension

with (HERE.parent / "pyproject.toml").open("rb") as _file:
    release = tomllib.load(_file)["project"]["version"]

project = "Canary testbed"
author = "the Canary testbed's authors"
copyright = f"{author}. Licensed under Apache-2.0"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
    "site_extension",
]
exclude_patterns = ["_build", "examples", "sg_execution_times.rst"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}

# Markdown: formulas between dollars, definition lists, notes between colons, anchors of headings.
myst_enable_extensions = ["dollarmath", "deflist", "colon_fence", "attrs_inline"]
myst_heading_anchors = 4

# A name between single backticks in a docstring is code.
default_role = "code"
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_type_aliases = {
    f"{kind}Array": f"{kind}Array" for kind in ("Bool", "Int", "Long", "Word", "Float")
}
napoleon_use_ivar = True  # attributes stand below the class, as the docstring has them
python_use_unqualified_type_names = True
suppress_warnings = ["config.cache"]  # sphinx-gallery's settings hold a class

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/\d\d_",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "min_reported_time": 5,
    "remove_config_comments": True,
    "show_memory": False,
    "abort_on_example_error": True,
}

html_theme = "furo"
html_title = "Canary testbed"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
