"""Skills: versions of reusable code."""

import base64
import io
import os
import tarfile
from collections.abc import Mapping, Sequence
from errno import ENOENT
from pathlib import Path
from typing import Any, Final, Unpack

from mcp_exec_api.constants import SOURCE_ENDINGS, Language
from mcp_exec_api.wire.skills import Skill, SkillList
from mcp_exec_client.options import RunOptions, suggesting
from mcp_exec_client.state.channel import RequestChannel, quote_segment
from mcp_exec_client.state.results import drop_unset
from mcp_exec_client.state.sessions import CodeRunner
from mcp_exec_client.types import Execution

_SKILLS: Final = "/v1/skills"
SKILL_FILE: Final = "SKILL.md"
_FOLDER_FILES: Final = (SKILL_FILE, *(f"scripts/run{ending}" for ending in SOURCE_ENDINGS.values()))
"""Files that a skill's folder may have: one for the code, by its language."""


def list_folder(folder: Path) -> Sequence[str]:
    """Return the paths of the files of a skill's folder. Raises FileNotFoundError if there is no code."""
    present = [path for path in _FOLDER_FILES[1:] if (folder / path).is_file()]
    if not present:
        missing = folder / _FOLDER_FILES[1]
        raise FileNotFoundError(ENOENT, os.strerror(ENOENT), str(missing))
    return (SKILL_FILE, *present)


@suggesting
class Skills:
    """The skills that the caller may see: all but drafts of other callers."""

    def __init__(self, channel: RequestChannel, runner: CodeRunner) -> None:
        self._channel = channel
        self._runner = runner

    async def save(
        self,
        name: str,
        description: str,
        *,
        code: str | None = None,
        language: Language | None = None,
        from_execution: str | None = None,
        tools: Sequence[str] | None = None,
        tags: Sequence[str] = (),
        instructions: str = "",
        user: str | None = None,
    ) -> Skill:
        """Save a draft from code or from a successful execution of the caller. Returns the new version.

        Args:
            name: name of the skill.
            description: what it does and when to use it, in one line.
            code: source with a function `run`.
            language: language of the code; python by default. An execution has one of its own.
            from_execution: name of the execution, in place of code.
            tools: patterns of the tools that it calls.
            tags: further words that searches match.
            instructions: how to use it, in Markdown.
            user: user on whose behalf it is saved.
        """
        body = {
            "name": name,
            "description": description,
            "code": code,
            "language": language,
            "fromExecution": from_execution,
            "tools": None if tools is None else list(tools),
            "tags": list(tags),
            "instructions": instructions,
            "user": user,
        }
        return await self._channel.fetch(Skill, "POST", _SKILLS, body=drop_unset(body), repeatable=False)

    async def save_folder(self, folder: Path, *, user: str | None = None) -> Skill:
        """Save a draft from a folder with SKILL.md, and scripts/run.py or run.ts. Raises OSError if one is missing."""
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as archive:
            for path in list_folder(folder):
                content = (folder / path).read_bytes()
                member = tarfile.TarInfo(path)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        body = {"archive": base64.b64encode(data.getvalue()).decode(), "user": user}
        return await self._channel.fetch(Skill, "POST", _SKILLS, body=drop_unset(body), repeatable=False)

    async def list(
        self, query: str = "", *, name: str | None = None, state: str | None = None, as_approver: bool = False
    ) -> Sequence[Skill]:
        """Return versions, newest first; with a query those that match it, best first.

        Args:
            query: what the skills should do.
            name: only versions of this skill.
            state: only versions that are Draft, Approved or Deprecated.
            as_approver: also drafts of other callers, for approvers.
        """
        params = {"query": query or None, "name": name, "state": state, "asApprover": "true" if as_approver else None}
        return (await self._channel.fetch(SkillList, "GET", _SKILLS, query=params)).items

    async def versions(self, name: str, *, as_approver: bool = False) -> Sequence[Skill]:
        """Return the versions of a skill, newest first. Raises NotFound if there are none.

        Args:
            name: name of the skill.
            as_approver: also drafts of other callers, for approvers.
        """
        params = {"asApprover": "true" if as_approver else None}
        path = f"{_SKILLS}/{quote_segment(name)}/versions"
        return (await self._channel.fetch(SkillList, "GET", path, query=params)).items

    async def get(self, name: str, version: int, *, as_approver: bool = False) -> Skill:
        """Return a version with its code."""
        params = {"asApprover": "true" if as_approver else None}
        return await self._channel.fetch(Skill, "GET", _path(name, version), query=params)

    async def approve(self, name: str, version: int, *, digest: str, comment: str | None = None) -> Skill:
        """Approve a version if it has the content that was read, by its digest.

        Only approvers may do this, and by default not the one who saved it.
        """
        return await self._review("approve", name, version, digest, comment)

    async def deprecate(
        self, name: str, version: int, *, digest: str | None = None, comment: str | None = None
    ) -> Skill:
        """Deprecate a version: only code that names the version can use it. Only approvers may do this."""
        return await self._review("deprecate", name, version, digest, comment)

    async def export(self, name: str, version: int) -> bytes:
        """Return the folder of a version as a tar archive."""
        return (await self._channel.send("GET", f"{_path(name, version)}/archive")).content

    async def delete(self, name: str, version: int) -> None:
        """Delete a draft of the caller's own, or for approvers any version."""
        await self._channel.send("DELETE", _path(name, version))

    async def run(
        self,
        skill: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        version: int | None = None,
        wait_seconds: float | None = None,
        **options: Unpack[RunOptions],
    ) -> Execution:
        """Run a skill with these arguments, and return the execution at its end, as `run` of the client does."""
        options["context"] = dict(arguments or {})
        options["skill_ref"] = {"name": skill, **({} if version is None else {"version": version})}
        return await self._runner.run("", wait_seconds=wait_seconds, **options)

    async def _review(self, decision: str, name: str, version: int, digest: str | None, comment: str | None) -> Skill:
        body = drop_unset({"digest": digest, "comment": comment})
        return await self._channel.fetch(Skill, "POST", f"{_path(name, version)}/{decision}", body=body)


def read_members(archive: bytes) -> dict[str, bytes]:
    """Return the files of an exported archive by their paths below its folder. Others are left out.

    Raises tarfile.TarError if it is no archive.
    """
    files: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as members:
        for member in members:
            path = member.name.partition("/")[2]
            content = members.extractfile(member) if path in _FOLDER_FILES and member.isreg() else None
            if content is not None:
                files[path] = content.read()
    return files


def _path(name: str, version: int) -> str:
    return f"{_SKILLS}/{quote_segment(name)}/versions/{int(version)}"
