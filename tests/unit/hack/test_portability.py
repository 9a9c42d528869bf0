"""Scripts that run on macOS use bash 3.2 and no option of GNU's commands, and no script names a mirror of packages."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# For Debian only: devcluster, and what it or its packages build.
DEBIAN = ("hack/devcluster/", "hack/kind/node-image", "hack/kind/node/")
NEWER_BASH = {
    "mapfile": r"\b(mapfile|readarray)\b",
    "associative array": r"\b(declare|local|typeset) -[a-zA-Z]*A",
    "change of case": r"\$\{\w+(\[[^]]*\])?(,,?|\^\^?)[^}]*\}",
    "transformation": r"\$\{\w+(\[[^]]*\])?@\w\}",
    "coproc": r"\bcoproc\b",
    "&>> or |&": r"&>>|\|&",
    "fallthrough": r";;?&",
    "named descriptor": r"\bexec \{\w+\}",
    "[[ -v": r"\[\[ (! )?-v ",
    "wait -n": r"\bwait -[a-z]*n",
    "printf of a time": r"printf [^|;]*%\(",
    "fraction of a second": r"\bread -[a-z ]*t ?[\"']?\d*\.\d",
    "negative index": r"\$\{\w+\[-\d+\]\}",
    "newer variable": r"\b(BASHPID|EPOCHSECONDS|EPOCHREALTIME|SRANDOM)\b",
    "case in $()": r"\$\(\s*case\b",  # bash 3.2 ends the substitution at the pattern's parenthesis
    "newer option": r"\bshopt -s .*(globstar|lastpipe|inherit_errexit)",
}
GNU_COMMANDS = {
    "readlink -f": r"\breadlink -[a-z]*[fe]",
    "realpath": r"\brealpath\b",
    "sed -r": r"\bsed -[a-zE]*r",
    "sed -i": r"\bsed -[a-zE]*i",
    "escape in sed": r"\bsed\b[^|;]*s([/|#,])[^|;]*\\[tn]",
    "grep -P": r"\bgrep -[a-zA-Z]*P",
    "sha256sum": r"\bsha256sum\b",
    "flock": r"(?<!\.)\bflock\b",
    "timeout": r"(^|[|;&({!])\s*((then|else|do|exec) +)?timeout\b",
    "nproc": r"\bnproc\b",
    "/proc": r"/proc/",
    "date -d or %N": r"\bdate\b[^|;)]*(%N| -d\b| --date| -I)",
    "install -D or -t": r"\binstall -[a-z]*[Dt]\b(?! )|\binstall .*-[Dt] ",
    "cp of GNU": r"(?<!docker )(?<!--implementation )\bcp (-[a-zA-Z]*[tdu]\b|--)",
    "xargs -r": r"\bxargs -[a-z0-9]*[rd]",
    "stat -c": r"\bstat (-c|--format|--printf)",
    "mktemp with options": r"\bmktemp -[a-zA-Z]*[pt]\b|\bmktemp --",
    "find of GNU": r"\bfind\b.* -(printf|quit|regextype|executable|readable|delete-)",
    "head or tail of GNU": r"\bhead -n? ?-\d|\bhead --|\btail --|\btac\b",
    "sort of GNU": r"\bsort -[a-zA-Z]*[Vhz]",
    "base64 of GNU": r"\bbase64 (-w|--wrap)",
    "du or df of GNU": r"\bdu -[a-z]*b|\bdf (-[a-zA-Z]*[TB]|--)",
    "ln of GNU": r"\bln -[a-z]*[rT]\b",
    "tar of GNU": r"\btar\b.* --(transform|sort|owner|group|mtime|wildcards|numeric-owner)",
    "ps or ip of Linux": r"\bip (addr|link|route|netns)\b|\bss -|\bsetsid\b",
}
# The functions of hack/lib.sh that use such a command if it is there.
WRAPPERS = {"sha256sum": 2, "flock": 3, "timeout": 1}


def scripts() -> list[Path]:
    """Return bash scripts and files that they source, except those for Debian."""
    found = []
    for path in sorted((ROOT / "hack").rglob("*")):
        name = path.relative_to(ROOT).as_posix()
        if not path.is_file() or path.suffix == ".pyc" or name.startswith(DEBIAN):
            continue
        first = path.read_text(errors="replace").split("\n", 1)[0]
        if re.match(r"#!.*bash|# shellcheck shell=bash", first):
            found.append(path)
    return found


def commands(path: Path) -> list[str]:
    """Return the lines of a script without comments."""
    lines = (re.sub(r"(^|\s)#( .*|!.*|$)", "", line) for line in path.read_text().splitlines())
    return [line for line in lines if line.strip()]


def uses(path: Path, patterns: dict[str, str]) -> list[str]:
    """Return each construct with its line, less those of the wrappers."""
    found = [(name, line) for line in commands(path) for name, pattern in patterns.items() if re.search(pattern, line)]
    if path.name == "lib.sh":
        for name, count in WRAPPERS.items():
            if len([other for other, _ in found if other == name]) == count:
                found = [use for use in found if use[0] != name]
    return [f"{name}: {line.strip()}" for name, line in found]


def test_the_scripts_are_found() -> None:
    names = {path.name for path in scripts()}
    assert {"lib.sh", "images", "base.sh", "tools", "cluster", "kind.sh", "demo", "venv", "lock"} <= names
    assert "node-image" not in names


@pytest.mark.parametrize("path", scripts(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_script_runs_on_the_bash_of_macos(path: Path) -> None:
    assert uses(path, NEWER_BASH) == []


@pytest.mark.parametrize("path", scripts(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_script_uses_no_option_of_gnus_commands(path: Path) -> None:
    assert uses(path, GNU_COMMANDS) == []


@pytest.mark.parametrize("path", scripts(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_an_array_that_may_be_empty_is_not_expanded_as_it_is(path: Path) -> None:
    # With `set -u`, bash before 4.4 takes an empty array for an unset variable.
    text = "\n".join(commands(path))
    empty = set(re.findall(r"\b(\w+)=\(\)", text))
    bare = set(re.findall(r'(?<!\+)"\$\{(\w+)\[[@*]\]\}"', text))
    measured = set(re.findall(r"\$\{#(\w+)\[@\]\}", text))
    assert empty & bare - measured == set(), "test its length before, or use ${name[@]+...}"


def test_the_makefile_runs_on_the_make_and_the_commands_of_macos() -> None:
    assert uses(ROOT / "Makefile", GNU_COMMANDS) == []
    # Its make, 3.81, ignores .SHELLFLAGS.
    recipes = re.findall(r"^\t@?(.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    several = [recipe for recipe in recipes if "; " in re.sub(r"'[^']*'", "", recipe) and not recipe.startswith("echo")]
    assert several
    assert [recipe for recipe in several if not recipe.startswith("set -euo pipefail; ")] == []


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("words=${name,,}", "change of case"),
        ("declare -A found", "associative array"),
        ("coproc forward { x; }", "coproc"),
        ("read -t 0.5 line", "fraction of a second"),
    ],
)
def test_newer_bash_is_recognized(tmp_path: Path, line: str, name: str) -> None:
    (tmp_path / "script").write_text(line + "\n")
    assert uses(tmp_path / "script", NEWER_BASH) == [f"{name}: {line}"]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("x=$(readlink -f y)", "readlink -f"),
        ("sed -Ei s/a/b/ x", "sed -i"),
        ("sed -E 's/a/\\t/'", "escape in sed"),
        ("grep -oP a b", "grep -P"),
        ("timeout 5 x", "timeout"),
        ("x | xargs -r kill", "xargs -r"),
        ("date +%s%N", "date -d or %N"),
        ("install -D a b", "install -D or -t"),
        ("sort -zu x", "sort of GNU"),
        ("cat /proc/1/stat", "/proc"),
    ],
)
def test_gnus_commands_are_recognized(tmp_path: Path, line: str, name: str) -> None:
    (tmp_path / "script").write_text(line + "\n")
    assert f"{name}: {line}" in uses(tmp_path / "script", GNU_COMMANDS)


def test_no_script_and_no_lock_names_a_mirror_of_packages() -> None:
    hosts = re.compile(r"\b([\w-]+\.)*(debian\.org|pypi\.org|pythonhosted\.org|npmjs\.(org|com)|ubuntu\.com)\b")
    files = [path for name in ("hack", "locks", ".ci", "servers_image") for path in (ROOT / name).rglob("*")]
    files += [ROOT / "Makefile", ROOT / "pyproject.toml", *ROOT.glob("*/Dockerfile")]
    named = {
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path in files
        if path.is_file() and path.suffix != ".pyc"
        for found in [hosts.search(path.read_text(errors="replace"))]
        if found
    }
    assert named == set()
