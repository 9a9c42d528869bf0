"""Skill: one version of a reusable piece of code, whose function `run` other code of its language can import."""

import hashlib
import json
import keyword
import re
from collections.abc import Container, Iterable, Mapping
from enum import StrEnum
from itertools import count
from typing import Annotated, Any, Final

from pydantic import AfterValidator, ConfigDict, Field, JsonValue, field_validator

from mcp_exec_api.code_findings import MAX_FINDINGS, Finding
from mcp_exec_api.constants import DEFAULT_LANGUAGE, MAX_CODE_BYTES, Language
from mcp_exec_api.constants import SkillState as SkillState
from mcp_exec_api.meta import Condition, MicroTime, Model, OpenEnum, ToolPattern

MAX_INSTRUCTIONS_BYTES: Final = 64 * 1024
MAX_ARCHIVE_BYTES: Final = 1024 * 1024
"""Maximum size of a tar archive, uncompressed: the largest code and instructions, and the headers of their files."""
MAX_VERSION: Final = 99_999
MAX_SKILLS_PER_EXECUTION: Final = 32
"""Skills that one execution gets."""
MAX_SAVED_SKILLS: Final = 5
"""Calls of `save_skill` in one execution that count."""
_NAME: Final = r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$"
_VERSIONED: Final = re.compile(r"(.+)_v([1-9][0-9]{0,4})")
_MUTABLE: Final = frozenset({"review"})
_NOT_DIGESTED: Final = frozenset({"review", "provenance"})
"""Fields that are no part of the content that a person reviews."""
_IMPORTS: Final[Mapping[Language, str]] = {
    "python": "from skills.{module} import run",
    "typescript": 'import {{ run }} from "skills/{module}";',
}
"""Statement that imports a skill's function, by language."""
_CALLS: Final[Mapping[Language, str]] = {"python": "run(**context)", "typescript": "await run(context);"}
"""Call of a skill's function with the context as its arguments, by language."""


def _check_name(name: str) -> str:
    if re.search(r"-v[0-9]+$", name):
        raise ValueError("a name must not end with -v and a number, which stands for a version")
    return name


SkillName = Annotated[str, Field(min_length=1, max_length=50, pattern=_NAME), AfterValidator(_check_name)]
"""Lower-case letters and digits, in words that `-` separates; it begins with a letter."""
Tag = Annotated[str, Field(min_length=1, max_length=40, pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_. ]*[A-Za-z0-9])?$")]


class SkillSource(OpenEnum):
    """Origin of the code of a skill."""

    CODE = "Code"
    EXECUTION = "Execution"
    FOLDER = "Folder"


class ReviewDecision(StrEnum):
    """Decision of an approver on a version of a skill."""

    APPROVE = "Approve"
    DEPRECATE = "Deprecate"


class SkillRef(Model):
    """Reference to a skill in the namespace of the execution."""

    name: SkillName
    """Name of the skill."""
    version: Annotated[int | None, Field(ge=1, le=MAX_VERSION)] = None
    """Version; by default the newest approved one, or the newest draft of the caller's own if none is approved."""


class Provenance(Model):
    """Origin of a skill."""

    source: SkillSource
    """Code: sent as code, by a client or by `save_skill`. Execution: the code of a successful execution. Folder: a
    folder with a file SKILL.md."""
    execution: Annotated[str | None, Field(max_length=253)] = None
    """Name of the execution that the code is of, or whose code saved it."""
    execution_uid: Annotated[str | None, Field(max_length=64)] = None
    """Uid of that execution."""
    code_digest: Annotated[str | None, Field(max_length=71)] = None
    """SHA-256 of the code: `sha256:` and 64 hexadecimal digits."""
    at: MicroTime | None = None
    """Time when the skill was saved."""


class SkillReview(Model):
    """Decision of an approver. It counts only with the gateway's proof, for this object and this content."""

    decision: ReviewDecision
    """Approve: all executions of the namespace can use the version. Deprecate: only those that name the version."""
    by: Annotated[str, Field(max_length=253)] = ""
    """Caller who decided. The gateway sets it from the authenticated caller."""
    at: MicroTime
    """Time of the decision. A decision older than the last one is ignored."""
    comment: Annotated[str | None, Field(max_length=1024)] = None
    """Reason for the decision."""
    proof: Annotated[str, Field(max_length=128)] = ""
    """Proof that the gateway wrote the decision of a caller who may decide. Without it the decision is ignored."""


def _add_rules(schema: dict[str, JsonValue]) -> None:
    immutable: list[JsonValue] = [
        {
            "rule": f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})",
            "message": f"spec.{name} is immutable: save another version",
        }
        for name in (str(field.alias) for field in SkillSpec.model_fields.values())
        if name not in _MUTABLE
    ]
    kept: JsonValue = {"rule": "!has(oldSelf.review) || has(self.review)", "message": "spec.review cannot be removed"}
    schema["x-kubernetes-validations"] = [*immutable, kept]


class SkillSpec(Model):
    """One version of a skill. Only `review` can change."""

    model_config = ConfigDict(json_schema_extra=_add_rules)

    name: SkillName
    """Name of the skill. The object's name is NAME-vVERSION. Code imports it from `skills`, with `_` for each `-`."""
    version: Annotated[int, Field(ge=1, le=MAX_VERSION)]
    """Version, from 1."""
    description: Annotated[
        str, Field(min_length=1, max_length=1024, json_schema_extra={"pattern": r"^[^\x00-\x1f\x7f-\x9f]*$"})
    ]
    """What the skill does and when to use it, in one line. Searches find the skill by it."""
    code: Annotated[str, Field(min_length=1, max_length=MAX_CODE_BYTES)]
    """Source with a function `run`, plain or `async`, at most 256 KiB in UTF-8; TypeScript exports it."""
    language: Language = DEFAULT_LANGUAGE
    """Language of the code: python or typescript. Executions can use skills of their own language."""
    instructions: Annotated[str | None, Field(max_length=MAX_INSTRUCTIONS_BYTES)] = None
    """How to use the skill, in Markdown: the body of SKILL.md. At most 64 KiB in UTF-8."""
    tools: Annotated[list[ToolPattern], Field(max_length=64)] = Field(default_factory=list)
    """Tools that the code calls. An execution can use the skill only if its own `spec.tools` allows all of them."""
    tags: Annotated[list[Tag], Field(max_length=16)] = Field(default_factory=list)
    """Further words that searches match."""
    user: Annotated[str | None, Field(min_length=1, max_length=253)] = None
    """User on whose behalf it was saved. While it is a draft, only executions for this user can use it."""
    provenance: Provenance | None = None
    """Origin of the skill."""
    review: SkillReview | None = None
    """Decision of an approver. POST /v1/skills/NAME/versions/VERSION/approve writes it."""

    @field_validator("description")
    @classmethod
    def _is_one_line(cls, text: str) -> str:
        if not text.isprintable():
            raise ValueError("line breaks, tabs and other unprintable characters are not allowed")
        return text

    @field_validator("code", "instructions")
    @classmethod
    def _fits(cls, text: str | None, info: Any) -> str | None:
        limit = MAX_CODE_BYTES if info.field_name == "code" else MAX_INSTRUCTIONS_BYTES
        if text is not None and (size := len(text.encode("utf-8", "surrogatepass"))) > limit:
            raise ValueError(f"it has {size} bytes; at most {limit} are allowed")
        return text


class SkillStatus(Model):
    """State, interface and use of the skill. Only the operator writes it."""

    state: SkillState = SkillState.DRAFT
    """Draft: only executions of its author can use it. Approved: all executions of the namespace can. Deprecated: only
    executions that name its version can."""
    author: str | None = None
    """Caller who saved it, or `k8s/USERNAME` for an account that created it through the Kubernetes API. `claimed:`
    precedes a name that nothing proves; nobody can use such a draft, or one without an author. `release:mcp-exec` if
    the release brought it."""
    digest: str | None = None
    """Digest of the content that a review is about."""
    parameters: Annotated[
        dict[str, JsonValue] | None, Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})
    ] = None
    """JSON Schema of the parameters of `run`, from its signature and docstring."""
    code_findings: Annotated[list[Finding], Field(max_length=MAX_FINDINGS)] = Field(default_factory=list)
    """Findings of the static code check, High before Medium."""
    reviewed_by: str | None = None
    """Caller who decided last."""
    reviewed_at: MicroTime | None = None
    """Time of the last decision."""
    uses: Annotated[int | None, Field(ge=0)] = None
    """Executions that got the skill, because they name it. Counted within seconds; a crash may lose the last ones."""
    successes: Annotated[int | None, Field(ge=0)] = None
    """Those of them that succeeded."""
    last_used_at: MicroTime | None = None
    """End of the last execution that got it."""
    conditions: list[Condition] = Field(default_factory=list)
    """Valid: the code defines `run`, and the content is the one that was created. Proven, once it was false: author and
    decision have a proof that is accepted."""


UNOBSERVED_STATUS: Final[dict[str, Any]] = {"state": str(SkillState.DRAFT)}
"""Status of a skill that no operator has seen."""

SELECTABLE_FIELDS: Final = (".status.state", ".status.author", ".spec.name", ".spec.version")
PRINTER_COLUMNS: list[dict[str, Any]] = [
    {"name": "Skill", "type": "string", "jsonPath": ".spec.name"},
    {"name": "Version", "type": "integer", "jsonPath": ".spec.version"},
    {"name": "State", "type": "string", "jsonPath": ".status.state"},
    {"name": "Author", "type": "string", "jsonPath": ".status.author"},
    {"name": "Uses", "type": "integer", "jsonPath": ".status.uses"},
    {"name": "Successes", "type": "integer", "jsonPath": ".status.successes"},
    {"name": "Last-Used", "type": "date", "jsonPath": ".status.lastUsedAt"},
    {"name": "Language", "type": "string", "jsonPath": ".spec.language", "priority": 1},
    {"name": "Description", "type": "string", "jsonPath": ".spec.description", "priority": 1},
    {"name": "Valid", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Valid")].status', "priority": 1},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]


def object_name(name: str, version: int) -> str:
    """Return the name of the object of a version."""
    return f"{name}-v{version}"


def module_name(name: str, version: int | None = None) -> str:
    """Return the name of a skill's module below `skills`, or of one version."""
    module = name.replace("-", "_")
    if version is not None:
        return f"{module}_v{version}"
    return module + "_" if keyword.iskeyword(module) or keyword.issoftkeyword(module) else module


def read_language(spec: Mapping[str, Any]) -> Language:
    """Return the language of a stored skill. One of a release without languages has the default one."""
    language: Language = spec.get("language") or DEFAULT_LANGUAGE
    return language


def format_import(name: str, version: int | None, language: Language) -> str:
    """Return the statement that imports a skill's function `run`, of one version or of the one that is found."""
    return _IMPORTS[language].format(module=module_name(name, version))


def format_run(reference: SkillRef, language: Language) -> str:
    """Return code that runs a skill with the context as its arguments."""
    return f"{format_import(reference.name, reference.version, language)}\n{_CALLS[language]}\n"


def first_free(taken: Container[int], proven: Iterable[int]) -> int:
    """Return the smallest version that is not taken, after the newest proven one."""
    return next(version for version in count(max(proven, default=0) + 1) if version not in taken)


def split_module(module: str) -> tuple[str, int | None]:
    """Return the name and the version that `module_name` made a module's name of."""
    versioned = _VERSIONED.fullmatch(module)
    name, version = (versioned[1], int(versioned[2])) if versioned else (module, None)
    return name.rstrip("_").replace("_", "-"), version


def content_digest(spec: dict[str, Any]) -> str:
    """Return a digest of what a person reviews, of a spec as the API server has it, to detect changes."""
    defaults = {str(field.alias): field.default for field in SkillSpec.model_fields.values()}
    content = {
        name: spec[name]
        for name, default in defaults.items()
        if name not in _NOT_DIGESTED and spec.get(name) not in (None, "", [], default)
    }
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
