"""Skills as folders: a file SKILL.md with front matter, as agentskills.io specifies it, and a file with the code.

Archives come from callers and are hostile: only regular files of known names count, and sizes are checked first.
"""

import hashlib
import io
import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mcp_exec_api.constants import DEFAULT_LANGUAGE, MAX_CODE_BYTES, SOURCE_ENDINGS, Language
from mcp_exec_api.skill import MAX_ARCHIVE_BYTES, MAX_INSTRUCTIONS_BYTES, read_language
from mcp_exec_common.skills.interface import InvalidSkill

SKILL_FILE: Final = "SKILL.md"
CODE_FILES: Final[Mapping[Language, str]] = {
    language: f"scripts/run{ending}" for language, ending in SOURCE_ENDINGS.items()
}
"""File of the code, by language. A folder has one of them."""
_CODE_TYPES: Final[Mapping[Language, str]] = {"python": "text/x-python", "typescript": "text/typescript"}
FILE_TYPES: Final[Mapping[str, str]] = {
    SKILL_FILE: "text/markdown",
    **{path: _CODE_TYPES[language] for language, path in CODE_FILES.items()},
}
"""Media type of each file that a folder may have, by its path."""
_LIMITS: Final = {
    SKILL_FILE: MAX_INSTRUCTIONS_BYTES + 16 * 1024,
    **dict.fromkeys(CODE_FILES.values(), MAX_CODE_BYTES),
}
_NEEDED: Final = f"{SKILL_FILE} and one of {', '.join(CODE_FILES.values())}"
_MAX_MEMBERS: Final = 16
_MAX_LINES: Final = 100
_MAX_VALUE: Final = 8 * 1024
_KEY: Final = re.compile(r"([A-Za-z][A-Za-z0-9_-]{0,63}):(?:[ \t]+(.*))?")
_KEYS: Final = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")


@dataclass(frozen=True, kw_only=True)
class SkillFolder:
    """Content of a skill's folder. Values are not checked: they become fields of a spec."""

    name: str
    description: str
    code: str
    language: Language = DEFAULT_LANGUAGE
    instructions: str = ""
    tools: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)

    @classmethod
    def from_files(cls, files: dict[str, str]) -> "SkillFolder":
        """Read the texts of the folder's files by their paths. Raises InvalidSkill."""
        languages = [language for language, path in CODE_FILES.items() if path in files]
        if SKILL_FILE not in files or len(languages) != 1:
            raise InvalidSkill(f"the folder has {', '.join(sorted(files)) or 'no such file'}; it needs {_NEEDED}")
        for path, text in files.items():
            if (size := len(text.encode("utf-8", "surrogatepass"))) > _LIMITS[path]:
                raise InvalidSkill(f"{path} has {size} bytes; at most {_LIMITS[path]} are allowed")
        values, metadata, body = _parse_skill_file(files[SKILL_FILE])
        return cls(
            name=values.get("name", ""),
            description=values.get("description", ""),
            code=files[CODE_FILES[languages[0]]],
            language=languages[0],
            instructions=body,
            tools=values.get("allowed-tools", "").replace(",", " ").split(),
            tags=[tag for part in metadata.get("tags", "").split(",") if (tag := part.strip())],
        )

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "SkillFolder":
        """Return the folder of a version, from the spec of its object."""
        return cls(
            name=spec["name"],
            description=spec["description"],
            code=spec["code"],
            language=read_language(spec),
            instructions=spec.get("instructions") or "",
            tools=spec.get("tools") or [],
            tags=spec.get("tags") or [],
        )

    def to_files(self, *, version: int | None = None) -> dict[str, str]:
        """Return the texts of the folder's files by their paths."""
        lines = ["---"]
        for key, value in self.to_frontmatter(version=version).items():
            if isinstance(value, str):
                lines.append(f"{key}: {_quote(value)}")
            else:
                lines += [f"{key}:", *(f"  {name}: {_quote(text)}" for name, text in value.items())]
        return {SKILL_FILE: "\n".join([*lines, "---", self.instructions]), CODE_FILES[self.language]: self.code}

    def to_frontmatter(self, *, version: int | None = None) -> dict[str, str | dict[str, str]]:
        """Return the front matter of SKILL.md. All its values are texts, whatever YAML takes them for."""
        metadata = {"tags": ", ".join(self.tags), "version": str(version or "")}
        fields: dict[str, str | dict[str, str]] = {"name": self.name, "description": self.description}
        fields |= {"allowed-tools": " ".join(self.tools)} if self.tools else {}
        found = {key: value for key, value in metadata.items() if value}
        return fields | ({"metadata": found} if found else {})


def read_folders(root: Path) -> tuple[SkillFolder, ...]:
    """Read all skills' folders in a folder, by name. Raises InvalidSkill and OSError."""
    folders = sorted(path for path in root.iterdir() if (path / SKILL_FILE).is_file())
    texts = (
        {path: (folder / path).read_text(encoding="utf-8") for path in _LIMITS if (folder / path).is_file()}
        for folder in folders
    )
    return tuple(map(SkillFolder.from_files, texts))


def read_archive(data: bytes) -> SkillFolder:
    """Read a tar archive, not compressed, of a skill's folder. Raises InvalidSkill.

    Nothing is extracted. The files are at the top of the archive or in one folder.
    """
    if len(data) > MAX_ARCHIVE_BYTES:
        raise InvalidSkill(f"the archive has {len(data)} bytes; at most {MAX_ARCHIVE_BYTES} are allowed")
    files: dict[str, str] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for path, member in _list_files(archive):
                if path in files:
                    raise InvalidSkill(f"the archive has {path} twice")
                content = archive.extractfile(member)
                assert content is not None  # noqa: S101 - a regular file
                files[path] = content.read().decode()
    except UnicodeDecodeError:
        raise InvalidSkill("a file of the archive is not UTF-8") from None
    except (tarfile.TarError, EOFError, OverflowError, ValueError, RecursionError) as error:
        if isinstance(error, InvalidSkill):
            raise
        raise InvalidSkill("the data is no tar archive without compression") from None
    return SkillFolder.from_files(files)


def digest_files(folder: SkillFolder, *, version: int) -> dict[str, tuple[str, int]]:
    """Return digest (`sha256:` and hexadecimal digits) and size of each file, as `build_archive` has them."""
    contents = {path: encode(text) for path, text in folder.to_files(version=version).items()}
    return {path: (f"sha256:{hashlib.sha256(content).hexdigest()}", len(content)) for path, content in contents.items()}


def encode(text: str) -> bytes:
    """Return the bytes of a file's text."""
    return text.encode("utf-8", "replace")


def build_archive(folder: SkillFolder, *, version: int) -> bytes:
    """Return a tar archive of the skill's folder, the same for the same content."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, text in folder.to_files(version=version).items():
            content = encode(text)
            member = tarfile.TarInfo(f"{folder.name}/{path}")
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
    return data.getvalue()


def _list_files(archive: tarfile.TarFile) -> Iterator[tuple[str, tarfile.TarInfo]]:
    """Yield the known files by their path in the folder. Raises InvalidSkill for anything else."""
    for number, member in enumerate(archive):
        if number >= _MAX_MEMBERS:
            raise InvalidSkill(f"the archive has more than {_MAX_MEMBERS} entries")
        if member.isdir():
            continue
        path = member.name.removeprefix("./")
        if path not in _LIMITS and path.partition("/")[0] not in ("", ".", ".."):
            path = path.partition("/")[2]
        if path not in _LIMITS or not member.isreg() or member.issparse():
            raise InvalidSkill(
                f"{member.name[:100]!r} is not allowed in the archive; "
                f"it may have the regular files {_NEEDED}, at its top or in one folder"
            )
        if member.size > _LIMITS[path]:
            raise InvalidSkill(f"{path} has {member.size} bytes; at most {_LIMITS[path]} are allowed")
        yield path, member


def _parse_skill_file(text: str) -> tuple[dict[str, str], dict[str, str], str]:
    """Return the front matter's values, those below `metadata`, and the body."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != "---":
        raise InvalidSkill(f"{SKILL_FILE} must begin with a line --- and front matter, with a name and a description")
    end = next((number for number, line in enumerate(lines[1 : _MAX_LINES + 2], 1) if line.rstrip() == "---"), None)
    if end is None:
        raise InvalidSkill(f"{SKILL_FILE}: its front matter has no second line --- in {_MAX_LINES} lines")
    values: dict[str, str] = {}
    metadata: dict[str, str] = {}
    last, target = "", values
    for line in lines[1:end]:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        is_indented = line[0] in " \t"
        match = _KEY.fullmatch(line.strip())
        if is_indented and last != "metadata":
            values[last] = f"{values.get(last, '')} {line.strip()}".strip()[:_MAX_VALUE]
            continue
        if match is None:
            raise InvalidSkill(f"{SKILL_FILE}: {line.strip()[:80]!r} in its front matter has no form `key: value`")
        key, value = match[1], _unquote((match[2] or "").strip())
        target = metadata if is_indented else values
        if not is_indented:
            if key not in _KEYS:
                raise InvalidSkill(f"{SKILL_FILE}: unknown key {key!r}; allowed: {', '.join(_KEYS)}")
            last = key
        if key in target:
            raise InvalidSkill(f"{SKILL_FILE}: its front matter has {key!r} twice")
        target[key] = "" if value in (">", "|", ">-", "|-") else value[:_MAX_VALUE]
    return values, metadata, "\n".join(lines[end + 1 :])


def _quote(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _unquote(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] == '"':
        return re.sub(r"\\(.)", r"\1", value[1:-1])
    if len(value) >= 2 and value[0] == value[-1] == "'":
        return value[1:-1].replace("''", "'")
    return value
