"""Backend of matplotlib that makes `plt.show()` show the open figures. Only matplotlib itself imports this module."""

from typing import Any

from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg

from mcp_exec_sandbox.tools.display.show import show_open_figures


class FigureManager(FigureManagerBase):
    """Manager of a figure that is shown as a file."""

    @classmethod
    def pyplot_show(cls, *, block: bool | None = None) -> None:
        """Show and close all open figures."""
        show_open_figures()


class FigureCanvas(FigureCanvasAgg):
    """Canvas of such a figure."""

    manager_class: Any = FigureManager
