"""Pictures of boards with the data of one run, for a look at them without Grafana."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import matplotlib

matplotlib.use("agg")

from hack.monitoring.panels import Board, Panel, Unit
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

_COLUMNS: Final = 3
_MAX_LEGEND: Final = 8


@dataclass(frozen=True, kw_only=True)
class DataSeries:
    """A series that a query returned: its labels, and its values by the second."""

    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]

    @property
    def last(self) -> float:
        """The last value that is a number, or NaN."""
        return next((value for _, value in reversed(self.points) if not math.isnan(value)), math.nan)


def draw_board(board: Board, data: Mapping[str, Sequence[DataSeries]], *, path: Path) -> None:
    """Draw a board with what its queries returned, by query, into a PNG file."""
    rows = math.ceil(len(board.panels) / _COLUMNS)
    figure = Figure(figsize=(6 * _COLUMNS, 3.6 * rows + 0.8), layout="constrained")
    figure.suptitle(f"mcp-exec / {board.title}", fontsize=17, fontweight="bold")
    start = min((each.points[0][0] for found in data.values() for each in found if each.points), default=0.0)
    axes = figure.subplots(rows, _COLUMNS, squeeze=False).flat
    for axis, panel in zip(axes, board.panels, strict=False):
        axis.set_title(panel.title, loc="left", fontsize=12)
        named = [
            (name_series(query.legend, each.labels), each)
            for query in panel.queries
            for each in data.get(query.expr, ())
            if not math.isnan(each.last)
        ]
        if panel.bars:
            _draw_bars(axis, panel, named)
        else:
            _draw_lines(axis, panel, named, start=start)
        axis.grid(visible=True, alpha=0.25)
        axis.tick_params(labelsize=9)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    for axis in list(figure.axes)[len(board.panels) :]:
        axis.set_visible(False)
    figure.savefig(path, dpi=70)


def name_series(legend: str, labels: Mapping[str, str]) -> str:
    """Return the name of a series in the legend."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1]) or "(none)", legend) or "value"


def _draw_lines(axis: Axes, panel: Panel, named: list[tuple[str, DataSeries]], *, start: float) -> None:
    named = sorted(named, key=lambda each: each[0])
    if panel.stacked and named:
        times = sorted({time for _, each in named for time, _ in each.points})
        layers = [_at(each, times) for _, each in named]
        axis.stackplot([time - start for time in times], layers, labels=[name for name, _ in named], alpha=0.7)
    else:
        for name, each in named:
            moments = [time - start for time, _ in each.points]
            axis.plot(moments, [value for _, value in each.points], label=name, linewidth=1.6)
    axis.set_ylim(bottom=0, top=panel.maximum and panel.maximum * 1.05)
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_value(value, panel.unit)))
    axis.yaxis.set_major_locator(MaxNLocator(5))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} s"))
    if named:
        handles, labels = axis.get_legend_handles_labels()
        axis.legend(
            handles[:_MAX_LEGEND],
            labels[:_MAX_LEGEND],
            loc="upper left",
            bbox_to_anchor=(0, -0.16),
            borderaxespad=0.0,
            fontsize=8,
            frameon=False,
            ncols=4,
        )


def _at(series: DataSeries, times: Sequence[float]) -> list[float]:
    values = dict(series.points)
    found = [values.get(time, 0.0) for time in times]
    return [0.0 if math.isnan(value) else value for value in found]


def _draw_bars(axis: Axes, panel: Panel, named: list[tuple[str, DataSeries]]) -> None:
    bars = sorted((each.last, name) for name, each in named)
    axis.barh([name for _, name in bars], [value for value, _ in bars], height=0.6, alpha=0.8)
    for place, (value, _) in enumerate(bars):
        axis.text(value, place, f" {format_value(float(f'{value:.3g}'), panel.unit)}", va="center", fontsize=9)
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_value(value, panel.unit)))
    axis.xaxis.set_major_locator(MaxNLocator(4))
    axis.margins(x=0.18)


def format_value(value: float, unit: Unit) -> str:
    """Return a value with its unit, short enough for an axis."""
    if unit == "percentunit":
        return f"{value:.0%}"
    if unit == "s":
        return f"{value * 1000:g} ms" if 0 < value < 1 else f"{value:g} s"
    if unit == "bytes":
        if value < 1024:
            return f"{value:.3g} B"
        return f"{value / 2**20:.0f} MiB" if value >= 2**20 else f"{value / 1024:.3g} KiB"
    return f"{value:g}" + ("/s" if unit in ("cps", "reqps", "ops") else "")
