"""Generate docs/reference/openapi.json from the routes of the gateway.

python -m hack.openapi      writes the file
"""

import json
from pathlib import Path
from typing import Final

from mcp_exec_gateway.app import describe_api

PAGE: Final = Path(__file__).parents[1] / "docs" / "reference" / "openapi.json"


def build_page() -> str:
    """Build the text of the file."""
    return json.dumps(describe_api(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PAGE.write_text(build_page())
