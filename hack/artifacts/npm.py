"""The manifest of the npm package of the TypeScript client: python -m hack.artifacts.npm prints it."""

import json
import sys
from typing import Any

from hack.artifacts.places import ROOT, read_places

from mcp_exec_api.wire.version import RELEASE


def build_manifest() -> dict[str, Any]:
    """Return client/typescript/package.json with the version of the project, its addresses, and no tools."""
    manifest = json.loads((ROOT / "client" / "typescript" / "package.json").read_text())
    del manifest["devDependencies"]
    places = read_places()
    addresses = {"homepage": places.site, "repository": places.source and f"git+{places.source}"}
    return {**manifest, "version": RELEASE, **{name: address for name, address in addresses.items() if address}}


if __name__ == "__main__":
    json.dump(build_manifest(), sys.stdout, indent=1)
