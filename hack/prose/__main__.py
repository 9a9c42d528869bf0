"""Check the project's prose: `python hack/prose [PATH...]` exits with 1 if a phrase or a spelling is wrong.

Reads Markdown, YAML and templates whole, and of Python the docstrings, comments and strings. Spelling is codespell's.
"""

import argparse
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import phrases

ROOT = Path(__file__).parents[2]
_SUFFIXES = frozenset({".py", ".md", ".yaml", ".yml", ".txt", ".tpl", ".toml", ".sh", ""})
_SKIPPED = (
    *(f"servers/{name}/" for name in ("catalogs", "expenses", "github")),
    "locks/",
    "hack/prose/",
    "tools/mcp_exec_tools/search/phrases.py",
    "tools/mcp_exec_tools/search/synonyms.py",
    "LICENSE",
    ".gitignore",
    ".dockerignore",
)


def main() -> int:
    """Print each finding as PATH:LINE: message, and return the exit code."""
    parser = argparse.ArgumentParser(prog="hack/prose", description="Checks the project's prose.")
    parser.add_argument("paths", nargs="*", type=Path, help="files or folders; the default is all tracked files")
    arguments = parser.parse_args()
    files = list(find_files(arguments.paths))
    findings = [finding for file in files for finding in check_file(file)]
    if not arguments.paths:  # a rate needs many lines
        findings += check_rates([file for file in files if not str(file).startswith(phrases.GENERATED)])
    for finding in findings:
        print(finding)
    ignored = ",".join(phrases.KNOWN_WORDS)
    spelled = subprocess.run(
        [
            sys.executable,
            "-m",
            "codespell_lib",
            f"--ignore-words-list={ignored}",
            *map(str, files),
        ],
        check=False,
        cwd=ROOT,
    )
    return 1 if findings or spelled.returncode else 0


def find_files(paths: list[Path]) -> Iterator[Path]:
    """Yield the tracked text files below the paths, relative to the repository."""
    command = ["git", "ls-files", "-co", "--exclude-standard", *map(str, paths)]
    for line in subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines():
        file = ROOT / line
        if file.is_file() and file.suffix in _SUFFIXES and not line.startswith(_SKIPPED):
            yield Path(line)


def check_file(file: Path) -> Iterator[str]:
    """Yield what is wrong with the prose of one file."""
    text = (ROOT / file).read_text(encoding="utf-8", errors="replace")
    for number, line in find_prose(file, text):
        for phrase, advice in phrases.PHRASES.items():
            if match := re.search(phrase, line, re.IGNORECASE):
                yield f"{file}:{number}: {match.group()!r}: {advice}"


def check_rates(files: list[Path]) -> Iterator[str]:
    """Yield each place of what is too frequent in all files together."""
    texts = {file: (ROOT / file).read_text(encoding="utf-8", errors="replace") for file in files}
    allowed = sum(text.count("\n") for text in texts.values()) * phrases.MAX_RATE / 1000
    for pattern, advice in phrases.RATES.items():
        places = [
            f"{file}:{number}: {match.group()!r}: {advice}"
            for file, text in texts.items()
            for number, line in find_prose(file, text)
            for match in re.finditer(pattern, line, re.IGNORECASE)
        ]
        if len(places) > allowed:
            yield from places
            yield f"{len(places)} places have {pattern}; {int(allowed)} are allowed"


def find_prose(file: Path, text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file that are prose, with their numbers."""
    if file.suffix != ".py":
        yield from enumerate(text.splitlines(), 1)
        return
    middle = getattr(tokenize, "FSTRING_MIDDLE", -1)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING, middle):
            for offset, line in enumerate(token.string.splitlines()):
                yield token.start[0] + offset, line


if __name__ == "__main__":
    sys.exit(main())
