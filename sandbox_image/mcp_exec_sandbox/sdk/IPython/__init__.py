"""The part of IPython that code uses to show values. An image that has IPython uses its own."""

import importlib

__all__ = ["display", "get_ipython", "version_info"]

version_info = (0, 0, 0)
display = importlib.import_module("IPython.display")


def get_ipython() -> None:
    """Return None, as IPython does outside a notebook."""
