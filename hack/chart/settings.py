"""Values of the chart that the processes' settings declare by `ChartValue`: their types, and the variables they set."""

import inspect
import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

from pydantic import Field, TypeAdapter, create_model
from pydantic.alias_generators import to_snake
from pydantic.fields import FieldInfo
from pydantic_settings import NoDecode

from mcp_exec_api.meta import Model
from mcp_exec_broker.settings import Settings as BrokerSettings
from mcp_exec_common.process.settings import AS_SET, PREFIX, ChartValue, ProcessSettings
from mcp_exec_gateway.settings import Settings as GatewaySettings
from mcp_exec_operator.settings import Settings as OperatorSettings

Processes = Mapping[str, type[ProcessSettings]]
"""Settings of each process by its name in the chart."""

PROCESSES: Final[Processes] = {"operator": OperatorSettings, "gateway": GatewaySettings, "broker": BrokerSettings}


def add_settings(values: type[Model], processes: Processes = PROCESSES) -> type[Model]:
    """Return a model of values with those of the settings added to its objects.

    Raises ValueError if an object on a value's path is not declared, or if the value is declared twice.
    """
    added: dict[str, FieldInfo] = {}
    for settings in processes.values():
        for _, value, field in _list_values(settings):
            if _compared(added.setdefault(value.path, field)) != _compared(field):
                raise ValueError(f"{value.path} is declared by two fields of settings")
    built = {path: _build_field(path, field) for path, field in added.items()}
    return _extend(values, "", built)


def build_variables(processes: Processes = PROCESSES) -> str:
    """Return files/variables.json: the variables of each process that values set, in the order of its settings."""
    found = {
        process: [
            {"name": PREFIX + name.upper(), "path": value.path} | ({"times": value.times} if value.times != 1 else {})
            for name, value, _ in _list_values(settings)
        ]
        for process, settings in processes.items()
    }
    return json.dumps(found, indent=1) + "\n"


def _list_values(settings: type[ProcessSettings]) -> Iterator[tuple[str, ChartValue, FieldInfo]]:
    for name, field in settings.model_fields.items():
        for value in field.metadata:
            if isinstance(value, ChartValue):
                yield name, value, field


def _compared(field: FieldInfo) -> tuple[Any, ...]:
    return field.annotation, field.metadata, field.default, field.description


def _build_field(path: str, field: FieldInfo) -> tuple[Any, FieldInfo]:
    """Return type and field of a value from its setting's field."""
    (value,) = (each for each in field.metadata if isinstance(each, ChartValue))
    bounds = [each for each in field.metadata if not isinstance(each, ChartValue) and each is not NoDecode]
    kind: Any = value.kind or (Annotated[(field.annotation, *bounds)] if bounds else field.annotation)
    default = field.default if value.default is AS_SET else value.default
    if value.times != 1:
        default //= value.times
    default = TypeAdapter(kind).validate_python(list(default) if isinstance(default, tuple) else default)
    alias = path.rsplit(".", 1)[-1]
    return kind, Field(default=default, alias=alias, description=field.description)


def _extend(model: type[Model], prefix: str, added: dict[str, tuple[Any, FieldInfo]]) -> type[Model]:
    """Return a model with the added fields below its own and above inherited ones, which all workloads have."""
    inner = {path: each for path, each in added.items() if path.startswith(prefix)}
    if not inner:
        return model
    here = {path.removeprefix(prefix): each for path, each in inner.items() if "." not in path.removeprefix(prefix)}
    deeper = {path.removeprefix(prefix).split(".")[0] for path in inner} - here.keys()
    if taken := here.keys() & {field.alias for field in model.model_fields.values()}:
        raise ValueError(f"{prefix}{min(taken)} is declared by hack/chart and by settings")
    fields: dict[str, Any] = {}
    own = inspect.get_annotations(model)
    field: Any
    for name, field in sorted(model.model_fields.items(), key=lambda item: item[0] not in own):
        if name not in own and here:
            fields |= {to_snake(alias): here.pop(alias) for alias in list(here)}
        alias = field.alias or name
        fields[name] = (field.annotation, field)
        if alias in deeper:
            deeper.remove(alias)
            extended = _extend(field.annotation, f"{prefix}{alias}.", inner)
            given = {key: getattr(field.default, key) for key in field.default.model_fields_set}
            fields[name] = (extended, Field(default=extended(**given), alias=alias, description=field.description))
    if deeper:
        raise ValueError(f"hack/chart declares no {prefix}{min(deeper)}, which is on the path of a setting's value")
    fields |= {to_snake(alias): each for alias, each in here.items()}
    return create_model(model.__name__, __base__=Model, __doc__=model.__doc__, **fields)
