"""Bodies of requests and responses: each is declared once, in `mcp_exec_api`."""

from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from pkgutil import walk_packages
from typing import get_args

import pytest
from pydantic import BaseModel

from mcp_exec_api.files import WorkspaceRef, WorkspaceStatus
from mcp_exec_api.wire.events import STREAM_EVENTS
from mcp_exec_client.events import OtherEvent
from mcp_exec_client.state.results import SyncResult
from mcp_exec_common.supervisor import protocol
from mcp_exec_common.supervisor.protocol import EndedWorkspace, Job, JobFiles, JobSkill, JobSkills, JobTools
from mcp_exec_gateway.app import list_routers
from mcp_exec_gateway.core.openapi import list_request_models, list_response_models
from mcp_exec_sandbox.supervisor.execution.job_request import ExecutionRequest

PACKAGES = ("mcp_exec_api", "mcp_exec_common", "mcp_exec_broker", "mcp_exec_gateway", "mcp_exec_operator")
WIRE = "mcp_exec_api.wire."
FEW_FIELDS = 3
"""Models with fewer fields may have the same by chance."""
OF_THE_CLIENT = {OtherEvent, SyncResult}
"""Models with fields that no gateway sends."""


def list_models(*packages: str) -> Iterator[type[BaseModel]]:
    for package in map(import_module, packages):
        for found in walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__"):
                members = vars(import_module(found.name)).values()
                yield from (
                    each
                    for each in members
                    if isinstance(each, type) and issubclass(each, BaseModel) and each.__module__ == found.name
                )


def names(model: type[BaseModel]) -> frozenset[str]:
    return frozenset(field.alias or name for name, field in model.model_fields.items())


def test_a_wire_model_is_declared_once() -> None:
    models = list(list_models(*PACKAGES))
    wire = {names(model): model for model in models if model.__module__.startswith(WIRE)}
    pairs = [(model, wire[names(model)]) for model in models if names(model) in wire]
    again = [
        f"{model.__module__}.{model.__name__}"
        for model, declared in pairs
        if len(names(model)) >= FEW_FIELDS and not issubclass(model, declared) and not issubclass(declared, model)
    ]
    assert again == []


def test_the_bodies_of_all_routes_are_declared_for_all_processes() -> None:
    models = list_request_models(list_routers()) + list_response_models(list_routers())
    assert len(models) > 40
    assert [model.__name__ for model in models if not model.__module__.startswith("mcp_exec_api.")] == []


def test_the_client_declares_no_field_of_a_response_itself() -> None:
    own = {
        f"{model.__module__}.{model.__name__}": sorted(added)
        for model in list_models("mcp_exec_client")
        if model not in OF_THE_CLIENT and (added := names(model) - inherited(model) - {"root"})
    }
    assert own == {}


def inherited(model: type[BaseModel]) -> frozenset[str]:
    bases = [each for each in model.__mro__ if each.__module__.startswith("mcp_exec_api.")]
    return frozenset().union(*(names(each) for each in bases if issubclass(each, BaseModel)))


EVENTS_OF_SANDBOXES = {
    get_args(event.model_fields["type"].annotation): event for event in get_args(get_args(protocol.Event)[0])
}


@pytest.mark.parametrize("sent", [each for each in STREAM_EVENTS if each.__name__ != "EndEvent"])
def test_an_event_of_a_stream_has_the_fields_of_the_sandbox_s_event(sent: type[BaseModel]) -> None:
    found = EVENTS_OF_SANDBOXES[get_args(sent.model_fields["type"].annotation)]
    identity = {"id", "call", "approval", "artifact"}  # of a stream's event, `id` is the position
    added = {"phase"} if sent.__name__ == "StatusEvent" else set()
    assert names(sent) - identity == names(found) - identity | added


def test_the_report_of_a_sandbox_about_a_workspace_has_the_fields_of_the_status() -> None:
    assert names(EndedWorkspace) == names(WorkspaceStatus)


def test_the_parser_in_the_sandbox_reads_every_field_of_a_job() -> None:
    address = {"url": "http://10.0.0.1:8080", "token": "t"}
    job = Job(
        id="e1",
        code="1",
        context={"a": 1},
        timeout_seconds=5,
        output_bytes=1000,
        tools=JobTools(**address, allow=["a.b"]),
        files=JobFiles(**address, workspace=WorkspaceRef(name="w"), max_artifacts=2, max_artifact_bytes=3),
        owner="0" * 32,
        session=True,
        skills=JobSkills(sources={"s-v1": JobSkill(code="2", tools=["a.b"])}, modules={"s": "s-v1"}, catalog=[]),
        libraries={"numpy": [["data", "2.3"]]},
    )
    assert {field.name for field in fields(Job) if not getattr(job, field.name)} == set()
    read = ExecutionRequest.from_body(job.to_json())
    same = ("id", "code", "context", "timeout_seconds", "output_bytes", "owner", "session", "libraries")
    assert {name: getattr(read, name) for name in same} == {name: getattr(job, name) for name in same}
    assert {field.name for field in fields(read)} == {field.name for field in fields(Job)}
    assert read.tools is not None
    assert (read.tools.url, read.tools.token, read.tools.allow) == ("http://10.0.0.1:8080", "t", ("a.b",))
    assert read.files is not None
    assert read.files.workspace is not None
    assert (read.files.host, read.files.port, read.files.token) == ("10.0.0.1", 8080, "t")
    assert (read.files.max_artifacts, read.files.max_artifact_bytes) == (2, 3)
    assert (read.files.workspace.name, read.files.workspace.mode) == ("w", "Write")
    assert read.skills is not None
    assert (read.skills.sources, read.skills.modules) == (
        {"s-v1": {"code": "2", "tools": ["a.b"]}},
        {"s": "s-v1"},
    )
