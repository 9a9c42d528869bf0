"""Bodies of requests and responses: each is declared once, in `mcp_exec_api.wire`."""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages

from pydantic import BaseModel

PACKAGES = (
    "mcp_exec_api",
    "mcp_exec_common",
    "mcp_exec_broker",
    "mcp_exec_gateway",
    "mcp_exec_operator",
    "mcp_exec_client",
)
WIRE = "mcp_exec_api.wire."
FEW_FIELDS = 3
"""Models with fewer fields may have the same by chance."""


def list_models() -> Iterator[type[BaseModel]]:
    for package in map(import_module, PACKAGES):
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
    models = list(list_models())
    wire = {names(model): model for model in models if model.__module__.startswith(WIRE)}
    pairs = [(model, wire[names(model)]) for model in models if names(model) in wire]
    again = [
        f"{model.__module__}.{model.__name__}"
        for model, declared in pairs
        if len(names(model)) >= FEW_FIELDS and not issubclass(model, declared) and not issubclass(declared, model)
    ]
    assert again == []
