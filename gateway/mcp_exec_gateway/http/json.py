"""JSON in responses."""

import json

from starlette.responses import Response


def to_json(data: object) -> bytes:
    """Encode data as compact UTF-8. A lone surrogate becomes a question mark."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def json_response(data: object, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a JSON response. Starlette's JSONResponse fails on lone surrogates, which user code can print."""
    return Response(to_json(data), status, headers=headers, media_type="application/json")
