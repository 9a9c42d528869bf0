"""Skills."""

from typing import Annotated, Any

from pydantic import Field

from mcp_exec_api.code_findings import Finding
from mcp_exec_api.constants import DEFAULT_LANGUAGE, MAX_CODE_BYTES, Language
from mcp_exec_api.meta import MicroTime, Model, ToolPattern
from mcp_exec_api.skill import MAX_ARCHIVE_BYTES, MAX_INSTRUCTIONS_BYTES, Provenance, SkillName, SkillState, Tag


class NewSkill(Model):
    """A skill to save, as a draft: from code, from a successful execution of the caller, or from a folder."""

    name: SkillName | None = None
    """Name of the skill. A name that exists gets a new version. Not needed with `archive`."""
    description: Annotated[str | None, Field(min_length=1, max_length=1024)] = None
    """What the skill does and when to use it, in one line. Not needed with `archive`."""
    code: Annotated[str | None, Field(min_length=1, max_length=MAX_CODE_BYTES)] = None
    """Source with a function `run`; TypeScript exports it."""
    language: Language | None = None
    """Language of `code`: python or typescript, by default python. A folder and an execution have their own."""
    from_execution: Annotated[str | None, Field(min_length=1, max_length=253)] = None
    """Name of an execution of the caller that succeeded. If its code defines `run`, its definitions become the skill,
    else a function around all of it, with the members of its context as parameters."""
    archive: Annotated[str | None, Field(min_length=1, max_length=4 * MAX_ARCHIVE_BYTES // 3 + 4)] = None
    """Folder of a skill, as a tar archive in base64: SKILL.md, and scripts/run.py or scripts/run.ts."""
    instructions: Annotated[str, Field(max_length=MAX_INSTRUCTIONS_BYTES)] = ""
    """How to use the skill, in Markdown."""
    tools: Annotated[list[ToolPattern] | None, Field(max_length=64)] = None
    """Tools that the code calls. The caller must be allowed all of them. With `fromExecution`, by default those that
    the execution called."""
    tags: Annotated[list[Tag], Field(max_length=16)] = Field(default_factory=list)
    """Further words that searches match."""
    user: Annotated[str | None, Field(min_length=1, max_length=253)] = None
    """User on whose behalf it is saved: while it is a draft, only executions for this user can use it. With
    `fromExecution`, it is the execution's."""


class NewApproval(Model):
    """Approval of a version of a skill."""

    digest: Annotated[str, Field(max_length=71)]
    """`digest` of the version that was read. If it has another content, the approval is refused: its author may have
    deleted a draft, and saved another one with the same number."""
    comment: Annotated[str | None, Field(max_length=1024)] = None
    """Reason for the approval."""


class NewDeprecation(Model):
    """Deprecation of a version of a skill."""

    digest: Annotated[str | None, Field(max_length=71)] = None
    """`digest` of the version that was read. If it has another content, the deprecation is refused."""
    comment: Annotated[str | None, Field(max_length=1024)] = None
    """Reason for the deprecation."""


class Skill(Model):
    """One version of a skill."""

    name: str
    """Name of the skill."""
    version: int
    """Version."""
    namespace: str
    """Namespace of the skill."""
    description: str
    """What the skill does."""
    state: SkillState
    """Draft, Approved or Deprecated."""
    language: Language = DEFAULT_LANGUAGE
    """Language of the code."""
    import_line: Annotated[str, Field(alias="import")]
    """Line of code that imports this version."""
    author: str | None = None
    """Caller who saved it."""
    user: str | None = None
    """User on whose behalf it was saved."""
    tools: list[str] = Field(default_factory=list)
    """Tools that it calls."""
    tags: list[str] = Field(default_factory=list)
    """Further words that searches match."""
    parameters: dict[str, Any] | None = None
    """JSON Schema of the parameters of `run`."""
    digest: str
    """Digest of the content."""
    reviewed_by: str | None = None
    """Caller who decided last."""
    reviewed_at: MicroTime | None = None
    """Time of the last decision."""
    uses: int = 0
    """Executions that got it."""
    successes: int = 0
    """Those of them that succeeded."""
    last_used_at: MicroTime | None = None
    """End of the last execution that got it."""
    code_findings: list[Finding] = Field(default_factory=list)
    """Findings of the static code check."""
    problem: str | None = None
    """Why nothing can use the version, or what it says without a proof."""
    provenance: Provenance | None = None
    """Origin of the code."""
    code: str | None = None
    """Code, if one version is requested."""
    instructions: str | None = None
    """How to use it, if one version is requested."""


class SkillList(Model):
    """Versions of skills."""

    items: list[Skill]
    """The versions, by name and newest first."""
