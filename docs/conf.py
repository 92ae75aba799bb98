"""Configuration of the documentation, built by ``make docs``."""

from __future__ import annotations

import os

from sphinx.ext import autosummary

import kernelweave

project = "kernelweave"
author = "The kernelweave developers"
copyright = f"2026, {author}"
release = version = kernelweave.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "**/GALLERY_HEADER.rst"]
templates_path = ["_templates"]
default_role = "literal"
# Literal blocks of docstrings are formulas; all code names its language.
highlight_language = "none"

# Links to other projects need the network, on which a build must not depend.
if os.environ.get("KERNELWEAVE_DOCS_INTERSPHINX"):
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "scipy": ("https://docs.scipy.org/doc/scipy", None),
        "sklearn": ("https://scikit-learn.org/stable", None),
    }

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autosummary_generate = True
# What a subclass of these must make or take is described on the same page.
autosummary_context = {
    "uses": {
        "Bank": ["kernelweave.kernels.banks.dense.KernelBank"],
        "Criterion": [
            "kernelweave.protocols.Evaluation",
            "kernelweave.protocols.CertificateTerms",
        ],
        "Method": ["kernelweave.protocols.Iterate"],
        "PolyhedralSet": ["kernelweave.protocols.Polyhedron"],
    }
}
# A summary ends at its first full stop; these are not, nor is "G_1 .. G_p".
autosummary.WELL_KNOWN_ABBREVIATIONS += ("Eq.", "Eqs.", " .")
autodoc_typehints = "none"
# scikit-learn adds these to every estimator; their text refers to its own user guide.
autodoc_default_options = {
    "exclude-members": ",".join(
        f"set_{method}_request"
        for method in (
            "fit",
            "partial_fit",
            "predict",
            "predict_proba",
            "score",
            "transform",
        )
    )
}
numpydoc_show_class_members = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "within_subsection_order": "FileNameSortKey",  # file names have the reading order
    "capture_repr": ("_repr_html_",),  # tables, but no <Legend object at 0x...>
    "backreferences_dir": "generated/backreferences",
    "doc_module": ("kernelweave",),
    "reference_url": {"kernelweave": None},
    "download_all_examples": False,
    "show_memory": False,
    "abort_on_example_error": True,
}

html_theme = "pydata_sphinx_theme"
html_title = f"kernelweave {release}"
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 4,
}
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["kernelweave.css"]
