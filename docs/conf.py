"""The documentation site: ``python -m sphinx -W -b html docs site``, offline, from nothing but pip.

Guides are Markdown, the reference is made of docstrings, and the gallery's examples run.
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")  # examples are small

import public_names  # noqa: E402

import sparse_secagg  # noqa: E402

project = "sparse_secagg"
author = "The sparse_secagg authors"
copyright = author
release = version = sparse_secagg.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinx-mathjax-offline",
]
exclude_patterns = ["gallery/*.ipynb", "gallery/*.py", "gallery/*.zip", "gallery/*.json"]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
nitpicky = False
suppress_warnings = ["config.cache", "design.card_legacy"]
templates_path = ["templates"]

autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False

html_theme = "pydata_sphinx_theme"
html_title = "sparse_secagg"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_theme_options = {
    "show_prev_next": False,
    "navbar_align": "left",
    "footer_start": ["copyright"],
    "footer_end": [],
    "header_links_before_dropdown": 6,
}
html_show_sourcelink = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

#: Examples that need an extra which is not installed are left out.
_NEEDS = {"flower": "flwr", "dask": "distributed"}
_left_out = [f"plot_{name}" for name, package in _NEEDS.items() if find_spec(package) is None]
sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples" / "gallery"),
    "gallery_dirs": "gallery",
    "ignore_pattern": "|".join([r"loopback\.py", *(rf"{name}\.py" for name in _left_out)]),
    "within_subsection_order": "order.Reading",
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "remove_config_comments": True,
    "matplotlib_animations": False,
    "abort_on_example_error": True,
}
warnings.filterwarnings("ignore", message=".*simulation_seed.*")


#: What the page of the decoders begins with.
_DECODERS = (
    "The solvers that ``solvers.get(name)``, ``decoder=`` and ``--decoder`` know; their parameters",
    'follow the name, as in ``solvers.get("amp", debias=True)`` or ``amp:debias``.',
)


def _write_reference() -> None:
    """Write one page for each public module: its names, each with a page of its own."""
    folder = HERE / "api"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    lines = ["# Reference", "", "```{toctree}", ":maxdepth: 1", ":hidden:", ""]
    listed = []
    seen: set[int] = set()  # a name of several modules has its page in the first
    for module, title, text in public_names.MODULES:
        if not public_names.is_importable(module):
            continue
        found = dict(public_names.public_names(module))
        names = [name for name, value in found.items() if id(value) not in seen]
        seen |= {id(value) for value in found.values()}
        page = [title, "=" * len(title), "", text, "", f".. currentmodule:: {module}", ""]
        page += [".. autosummary::", "   :toctree: generated", "   :nosignatures:", ""]
        page += [f"   {name}" for name in names]
        (folder / f"{module}.rst").write_text("\n".join(page) + "\n")
        lines.append(module)
        listed.append(f"| [`{title}`]({module}.rst) | {text} |")
    found = public_names.decoders()
    page = ["Decoders by name", "================", "", *_DECODERS, "", ".. autosummary::"]
    page += ["   :toctree: generated", "   :nosignatures:", ""]
    page += [f"   {path}" for path in dict.fromkeys(found.values())]
    (folder / "decoders.rst").write_text("\n".join(page) + "\n")
    lines.append("decoders")
    listed.append("| [Decoders by name](decoders.rst) | What `solvers.get(name)` makes. |")
    lines += ["```", "", "| | |", "|---|---|", *listed, ""]
    (folder / "index.md").write_text("\n".join(lines))


_write_reference()


def _is_routing(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool:
    """Leave out the methods that scikit-learn gives every estimator for metadata routing."""
    return skip or name.endswith(("_request", "_metadata_routing"))


def setup(app: Any) -> None:
    """Register what is left out."""
    app.connect("autodoc-skip-member", _is_routing)
