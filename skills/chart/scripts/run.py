"""Charts as SVG."""

import math
from html import escape
from pathlib import Path
from typing import Literal

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 720, 400, 70, 60, 50
_MAX_LABELS = 1000
_COLORS = ("#3366cc", "#dc3912", "#ff9900", "#109618", "#990099", "#0099c6", "#dd4477", "#66aa00")


def run(
    series: dict,
    kind: Literal["bar", "line"] = "bar",
    title: str = "",
    path: str = "artifacts/chart.svg",
) -> dict:
    """Write a chart as an SVG file. Return its path, and the range of the numbers.

    At most 1,000 labels and 8 series are allowed: sum up, or choose, what matters.

    Args:
        series: numbers by label, or such objects by the name of a series. None is a gap.
        kind: bars or lines.
        title: title above the chart.
        path: file to write.
    """
    named = series if any(isinstance(values, dict) for values in series.values()) else {"": series}
    labels = list(dict.fromkeys(str(label) for values in named.values() for label in values))
    if len(labels) > _MAX_LABELS or len(named) > len(_COLORS):
        raise ValueError(f"{len(labels)} labels in {len(named)} series; at most {_MAX_LABELS} in {len(_COLORS)}")
    table = {str(name): _read(values) for name, values in named.items()}
    numbers = [value for values in table.values() for value in values.values()]
    low, high = min([0.0, *numbers]), max([0.0, *numbers])
    high = high if high > low else low + 1
    parts = [*_draw_axes(low, high, labels), *_draw_legend(list(table))]
    for number, (name, values) in enumerate(table.items()):
        draw = _draw_bars if kind == "bar" else _draw_line
        parts += draw(number, len(table), [values.get(label) for label in labels], low, high, name)
    parts.append(f'<text x="{_WIDTH / 2}" y="24" text-anchor="middle" font-size="18">{escape(title)}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif">'
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>"]))
    return {"path": path, "labels": len(labels), "series": len(table), "min": low, "max": high}


def _read(values: dict) -> dict[str, float]:
    """Return the finite numbers by label."""
    found = {str(label): float(value) for label, value in values.items() if value is not None}
    return {label: value for label, value in found.items() if math.isfinite(value)}


def _place_y(value: float, low: float, high: float) -> float:
    return round(_HEIGHT - _BOTTOM - (value - low) / (high - low) * (_HEIGHT - _BOTTOM - _TOP), 2)


def _place_x(position: float, count: int) -> float:
    return round(_LEFT + position / max(1, count) * (_WIDTH - _LEFT - 20), 2)


def _draw_axes(low: float, high: float, labels: list[str]) -> list[str]:
    parts = []
    for step in range(6):
        value = low + (high - low) * step / 5
        y = _place_y(value, low, high)
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - 20}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end" font-size="12">{value:g}</text>')
    every = max(1, len(labels) // 12)
    for number, label in list(enumerate(labels))[::every]:
        x = _place_x(number + 0.5, len(labels))
        text = escape(label[:14])
        parts.append(f'<text x="{x}" y="{_HEIGHT - _BOTTOM + 20}" text-anchor="middle" font-size="12">{text}</text>')
    return parts


def _draw_legend(names: list[str]) -> list[str]:
    parts = []
    for number, name in enumerate(name for name in names if name):
        x = _LEFT + 80 * number
        parts.append(f'<rect x="{x}" y="{_HEIGHT - 24}" width="12" height="12" fill="{_COLORS[number % 8]}"/>')
        parts.append(f'<text x="{x + 18}" y="{_HEIGHT - 13}" font-size="12">{escape(name[:10])}</text>')
    return parts


def _draw_bars(number: int, count: int, values: list, low: float, high: float, name: str) -> list[str]:
    width = (_place_x(1, len(values)) - _LEFT) * 0.8 / count
    parts = []
    for position, value in enumerate(values):
        if value is not None:
            x = _place_x(position + 0.1, len(values)) + number * width
            top, foot = _place_y(max(value, 0), low, high), _place_y(min(value, 0), low, high)
            size = f'width="{width:.2f}" height="{foot - top:.2f}"'
            tip = f"<title>{escape(name)} {value:g}</title>"
            parts.append(f'<rect x="{x:.2f}" y="{top}" {size} fill="{_COLORS[number % 8]}">{tip}</rect>')
    return parts


def _draw_line(number: int, count: int, values: list, low: float, high: float, name: str) -> list[str]:
    """Draw a line for each part between gaps, and a dot for each number."""
    color = _COLORS[number % 8]
    parts: list[str] = []
    points: list[str] = []
    for position, value in enumerate([*values, None]):
        if value is not None:
            x, y = _place_x(position + 0.5, len(values)), _place_y(value, low, high)
            points.append(f"{x},{y}")
            tip = f"<title>{escape(name)} {value:g}</title>"
            parts.append(f'<circle cx="{x}" cy="{y}" r="2.5" fill="{color}">{tip}</circle>')
        elif points:
            parts.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{color}" stroke-width="2"/>')
            points = []
    return parts
