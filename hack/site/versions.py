"""The versions of a documentation site. Each has a folder. The file versions.json lists them, and all pages read it."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.new_release import order

LATEST: Final = "latest"
"""Alias of the newest version that is no pre-release. Pages of older ones show a hint."""
FOUND_AT_THE_ROOT: Final = ("404.html", "llms.txt", "sitemap.xml")
"""Files of the newest version that are at the root, too, where hosts, search engines and models look for them."""
_ROOT: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>mcp-exec</title>
<link rel="icon" href="{version}/assets/images/favicon.png">
<meta http-equiv="refresh" content="0; url={version}/index.html">
</head>
<body><a href="{version}/index.html">mcp-exec {version}</a></body>
</html>
"""


@dataclass(frozen=True)
class Versions:
    """The versions that a folder has."""

    folder: Path

    def add(self, version: str) -> None:
        """Add the version, whose folder exists, to the list, newest first, and send the root to the newest."""
        path = self.folder / "versions.json"
        known = {entry["version"] for entry in json.loads(path.read_text())} if path.exists() else set()
        present = sorted((name for name in known | {version} if (self.folder / name).is_dir()), key=order, reverse=True)
        newest = next((name for name in present if "-" not in name), present[0])
        entries = [{"version": name, "title": name, "aliases": [LATEST] if name == newest else []} for name in present]
        path.write_text(json.dumps(entries, indent=1) + "\n")
        (self.folder / "index.html").write_text(_ROOT.format(version=newest))
        for name in FOUND_AT_THE_ROOT:
            if (found := self.folder / newest / name).is_file():  # versions before 0.2.0 have no llms.txt
                shutil.copyfile(found, self.folder / name)
