"""Boards as Grafana reads them."""

import json
from typing import Any, Final

from hack.monitoring.panels import Board, Panel

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
    found: list[Object] = [{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}]
    if board.has_namespaces:
        found.append(
            {
                "name": "namespace",
                "label": "Namespace",
                "type": "query",
                "datasource": _SOURCE,
                "query": {"query": "label_values(mcp_exec_pool_pods, namespace)", "refId": "namespace"},
                "refresh": 2,
                "multi": True,
                "includeAll": True,
                "allValue": ".*",
                "current": {"text": "All", "value": "$__all"},
            }
        )
    return found


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
                "expr": query.expr,
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
