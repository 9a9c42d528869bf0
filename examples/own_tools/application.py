"""An application that serves its tools to a ToolServer, which forwards calls: POST /tools/NAME with the arguments.

uvicorn --app-dir examples/own_tools application:app
"""

import inspect
import os
import secrets
from typing import Any

import shop
from fastapi import FastAPI, Header, HTTPException

TOOLS = {"list_orders": shop.list_orders, "get_order": shop.get_order, "remind": shop.remind}
app = FastAPI()


@app.post("/tools/{name}")
async def call(name: str, arguments: dict[str, Any], authorization: str = Header("")) -> Any:
    """Call a tool and return its result as JSON."""
    expected = f"Bearer {os.environ['APPLICATION_TOKEN']}"
    if not secrets.compare_digest(authorization.encode(), expected.encode()):
        raise HTTPException(401, "wrong token")
    if name not in TOOLS:
        raise HTTPException(404, f"there is no tool {name}")
    try:
        result = TOOLS[name](**arguments)
        return await result if inspect.isawaitable(result) else result
    except (TypeError, ValueError) as error:
        raise HTTPException(422, str(error)) from error
