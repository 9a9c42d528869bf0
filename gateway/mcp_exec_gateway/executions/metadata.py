"""What a request says about a new execution besides its spec: name, labels, conversation, use case."""

import hashlib
import json
import re
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, WithJsonSchema

from mcp_exec_api.code_execution import CodeExecutionSpec, UseCase
from mcp_exec_api.constants import LABEL_CONVERSATION, LABEL_USE_CASE
from mcp_exec_api.files.workspace import WorkspaceMode, WorkspaceRef
from mcp_exec_api.meta import Model
from mcp_exec_common.kube.objects import Object

MAX_LABELS: Final = 16
"""Own labels of an execution."""
_MAX_SHOWN_LABELS: Final = 64
"""Own labels that a view shows: those of executions from kubectl have no limit."""
_WORD: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
"""A label's value that is not empty, or its key without a prefix."""
_WORD_RULE: Final = "1 to 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends"
_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_GENERATED: Final = re.compile(r"exec-[0-9a-hjkmnp-tv-z]{12}")
_MAX_QUOTED: Final = 80
"""Characters of a wrong value that an error quotes."""


def check_label_value(value: str) -> str:
    """Return the value. Raises ValueError if it can't be a label's."""
    if not _WORD.fullmatch(value):
        raise ValueError(f"{_quote(value)} is not allowed: use {_WORD_RULE}")
    return value


def _check_name(name: str) -> str:
    if not _DNS_LABEL.fullmatch(name):
        rule = "use 1 to 63 lower-case letters, digits and '-', with a letter or digit at both ends"
        raise ValueError(f"{_quote(name)} is not allowed: {rule}")
    if _GENERATED.fullmatch(name):
        raise ValueError("names of exec- and 12 characters are generated; choose another one")
    return name


def _check_labels(labels: dict[str, str]) -> dict[str, str]:
    if len(labels) > MAX_LABELS:
        raise ValueError(f"{len(labels)} labels are given; at most {MAX_LABELS} are allowed")
    for key, value in labels.items():
        if not _WORD.fullmatch(key):
            prefix = ", and no prefix such as example.com/" if "/" in key else ""
            raise ValueError(f"the key {_quote(key)} is not allowed: use {_WORD_RULE}{prefix}")
        if value and not _WORD.fullmatch(value):
            raise ValueError(f"the value {_quote(value)} of {key} is not allowed: use {_WORD_RULE}, or nothing")
    return labels


def _quote(text: str) -> str:
    return repr(text[:_MAX_QUOTED]) + ("..." if len(text) > _MAX_QUOTED else "")


LabelValue = Annotated[str, AfterValidator(check_label_value)]
"""A label's value that is not empty."""


class ExecutionMetadata(Model):
    """Name and labels of a new execution."""

    name: Annotated[
        str,
        AfterValidator(_check_name),
        Field(json_schema_extra={"maxLength": 63, "pattern": r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"}),
    ] = ""
    """Name of the execution: 1 to 63 lower-case letters, digits and `-`. By default the gateway generates one. If
    another execution has the name, the response is a 409."""
    labels: Annotated[
        dict[str, str], AfterValidator(_check_labels), Field(json_schema_extra={"maxProperties": MAX_LABELS})
    ] = Field(default_factory=dict)
    """Own labels, at most 16, for `labelSelector` in lists. Keys have no prefix, and keys and values are 1 to 63
    letters, digits, `-`, `_` and `.`, with a letter or digit at both ends. A value may be empty."""
    conversation: Annotated[LabelValue, Field(json_schema_extra={"maxLength": 63})] = ""
    """Conversation that the execution is part of, in the form of a label's value. It becomes the label
    `mcp-exec.dev/conversation`."""
    use_case: UseCase | None = None
    """What the execution is for: filtering, workflow, polling or other. It becomes the label
    `mcp-exec.dev/use-case`."""

    def build_labels(self) -> dict[str, str]:
        """Return the labels of the object. Own keys have no prefix, so that none has a meaning for mcp-exec."""
        own = {LABEL_CONVERSATION: self.conversation, LABEL_USE_CASE: self.use_case and self.use_case.value}
        return {**self.labels, **{key: value for key, value in own.items() if value}}

    def extend_digest(self, digest: str) -> str:
        """Return a digest of the whole request, given that of its spec."""
        given = {name: value for name, value in self.to_api().items() if value}
        if not given:
            return digest
        return "sha256:" + hashlib.sha256(json.dumps([digest, given], sort_keys=True).encode()).hexdigest()


def _read_workspace(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return WorkspaceRef(name=value)
    except ValidationError as error:
        raise ValueError(f"{_quote(value)} is not allowed: {error.errors()[0]['msg']}") from None


class NewExecution(ExecutionMetadata, CodeExecutionSpec):
    """Body of a request for a new execution: the fields of the spec, and name and labels of the object."""

    workspace: Annotated[
        WorkspaceRef | None,
        BeforeValidator(_read_workspace),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "string", "maxLength": 50},
                    {
                        "type": "object",
                        "properties": {
                            "name": {"type": "string", "maxLength": 50},
                            "mode": {"enum": [mode.value for mode in WorkspaceMode], "default": "Write"},
                        },
                        "required": ["name"],
                        "additionalProperties": False,
                    },
                ],
            }
        ),
    ] = None
    """Workspace whose files the code has: its name, or name and mode. Write saves the changes as a new version, Read
    drops them."""

    def read_metadata(self) -> ExecutionMetadata:
        """Return what is no part of the spec."""
        return ExecutionMetadata.model_construct(
            **{name: getattr(self, name) for name in ExecutionMetadata.model_fields}
        )

    def read_spec(self) -> CodeExecutionSpec:
        """Return the spec."""
        fields = CodeExecutionSpec.model_fields
        return CodeExecutionSpec.model_construct(
            _fields_set=self.model_fields_set & set(fields), **{name: getattr(self, name) for name in fields}
        )


def read_own_labels(metadata: Object) -> dict[str, str]:
    """Return an object's labels without a prefix, in the order of their keys."""
    labels = metadata.get("labels") or {}
    return {key: labels[key] for key in sorted(key for key in labels if "/" not in key)[:_MAX_SHOWN_LABELS]}
