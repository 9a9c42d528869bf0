"""Boards as Grafana reads them."""

import json
from functools import cache
from typing import Any, Final

from hack.monitoring.panels import Board, Panel
from hack.monitoring.rules import add_matchers
from hack.reference.metrics import SUFFIXES, build_registries, list_metrics

Object = dict[str, Any]

_COLUMNS: Final = 3
_WIDTH: Final = 24 // _COLUMNS
_HEIGHT: Final = 8
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


def build_board(board: Board) -> str:
    """Return the JSON of a board."""
    content = {
        "uid": f"mcp-exec-{board.name}",
        "title": f"mcp-exec / {board.title}",
        "description": board.about,
        "tags": ["mcp-exec"],
        "editable": False,
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": _build_variables(board)},
        "panels": [_build_panel(panel, number) for number, panel in enumerate(board.panels)],
    }
    return json.dumps(content, indent=2) + "\n"


def _build_variables(board: Board) -> list[Object]:
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    of_release = 'mcp_exec_pool_pods{release=~"$release"}'
    values = [("release", "mcp_exec_build_info")]
    if board.has_namespaces:
        values.append(("namespace", of_release))
    if any("$pool" in query for query in map(_choose, board.list_queries())):
        values.append(("pool", of_release.replace("}", ', namespace=~"$namespace"}')))
    return [source, *(_build_variable(label, selector) for label, selector in values)]


def _build_variable(label: str, selector: str) -> Object:
    """Return the variable of a label, with the values that it has in a selector's series."""
    return {
        "name": label,
        "label": label.capitalize(),
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": f"label_values({selector}, {label})", "refId": label},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


@cache
def _list_labels() -> dict[str, set[str]]:
    """Return the labels of each series of the processes."""
    return {
        name + suffix: set(labels)
        for registry in build_registries().values()
        for name, kind, labels, _ in list_metrics(registry)
        for suffix in SUFFIXES[kind]
    }


def _choose(expr: str) -> str:
    """Return a query with matchers of the releases and, if its metrics have the label, the pools that are chosen."""

    def match(name: str) -> str:
        is_of_pool = {"namespace", "pool"} <= _list_labels().get(name, set())
        return 'release=~"$release"' + (', pool=~"$pool"' if is_of_pool else "")

    return add_matchers(expr, match)


def _build_panel(panel: Panel, number: int) -> Object:
    row, column = divmod(number, _COLUMNS)
    defaults: Object = {"unit": panel.unit, "min": 0}
    if panel.maximum is not None:
        defaults["max"] = panel.maximum
    if not panel.bars:
        stacking = {"mode": "normal" if panel.stacked else "none"}
        defaults["custom"] = {"stacking": stacking, "fillOpacity": 30 if panel.stacked else 0, "showPoints": "never"}
    return {
        "id": number + 1,
        "type": "bargauge" if panel.bars else "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _build_options(panel),
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _SOURCE,
                "expr": _choose(query.expr),
                "legendFormat": query.legend,
                "instant": panel.bars,
                "range": not panel.bars,
            }
            for index, query in enumerate(panel.queries)
        ],
    }


def _build_options(panel: Panel) -> Object:
    if panel.bars:
        return {"orientation": "horizontal", "displayMode": "basic", "reduceOptions": {"calcs": ["lastNotNull"]}}
    return {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
