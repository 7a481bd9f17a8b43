"""How Sphinx makes a site of these pages; `make docs` builds it, any warning is an error."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))

from mdsd import __version__  # noqa: E402

project = "mdsd"
author = "The authors of mdsd"
project_copyright = author
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
    "command_pages",
    "linked_sources",
    "reference",
]

exclude_patterns = ["gallery/*.rst", "gallery/*.py", "_extensions"]
highlight_language = "text"  # blocks without a language are what is printed
default_role = "py:obj"

# --- pages --------------------------------------------------------------------------------------

myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]

# --- reference ----------------------------------------------------------------------------------

autosummary_generate = False
autodoc_typehints = "none"  # the docstrings say more
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autodoc_mock_imports = ["economize", "torch", "transformers"]
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
add_module_names = False
toc_object_entries_show_parents = "hide"

# --- gallery ------------------------------------------------------------------------------------

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "examples",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "min_reported_time": 10**6,  # times depend on the machine
    "remove_config_comments": True,
    "copyfile_regex": "",
    "image_scrapers": ("matplotlib",),
    "matplotlib_animations": False,
    "plot_gallery": True,
}
suppress_warnings = ["config.cache", "ref.python"]

# --- looks --------------------------------------------------------------------------------------

html_theme = "furo"
html_title = f"mdsd {__version__}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0072B2", "color-brand-content": "#0072B2"},
}
