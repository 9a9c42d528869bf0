"""Options of an execution, the request's body that they become, and errors that suggest options that exist."""

import inspect
import numbers
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from difflib import get_close_matches
from functools import cache, wraps
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Required, Self, TypeVar, Union, get_args, get_origin, is_typeddict

from mcp_exec_api.wire.execution_options import EXECUTION_OPTIONS, ExecutionOption, set_field
from mcp_exec_api.wire.execution_options import ExecutionOptions as ExecutionOptions
from mcp_exec_api.wire.execution_options import RunOptions as RunOptions

_Class = TypeVar("_Class", bound=type)

_CUTOFF: Final = 0.6
_MAX_NAME: Final = 60
_MIN_PART: Final = 3


def describe_unknown(name: str, known: Collection[str]) -> str:
    """Return a message about an option that does not exist, with one that may be meant and all there are."""
    folded = {_fold(each): each for each in sorted(known)}
    wanted = _fold(name[:_MAX_NAME])
    found = [folded[each] for each in get_close_matches(wanted, folded, n=1, cutoff=_CUTOFF)]
    found += [each for fold, each in folded.items() if len(wanted) >= _MIN_PART and (wanted in fold or fold in wanted)]
    question = f"did you mean {found[0]}? The options are" if found else "the options are"
    return f"unknown option {name[:_MAX_NAME]!r}; {question} {', '.join(sorted(known)) or 'none'}"


def suggesting(kind: _Class) -> _Class:
    """Let all public methods of a class read their arguments alike.

    None means that an optional argument is not given. An unknown one is a TypeError that suggests another one. One of
    another kind, such as a text in place of a list of texts or of a number, is a TypeError, too.
    """
    for name, method in vars(kind).copy().items():
        if inspect.isfunction(method) and (not name.startswith("_") or name == "__init__"):
            setattr(kind, name, _wrap(method))
    return kind


@dataclass(frozen=True, kw_only=True)
class _Arguments:
    """What the arguments of a method may be."""

    method: str
    positional: tuple[str, ...]
    """Arguments that may be given without their names, in order, with the one of the object."""
    known: frozenset[str] | None
    """All arguments that may be given by name, or None if any may."""
    omittable: frozenset[str]
    """Names of parameters that count as not given if they are None."""
    lists: frozenset[str]
    """Those that are lists of texts."""
    mappings: frozenset[str]
    """Those that are mappings."""
    nullable: frozenset[str]
    """Those that may be None."""
    plain: Mapping[str, tuple[type, ...]]
    """What those are annotated with that are texts, numbers, dates, bytes or paths, without None."""

    @classmethod
    def of(cls, method: Callable[..., Any]) -> Self:
        """Return what the signature of a method says."""
        is_open = False
        kinds: dict[str, Any] = {}
        omittable, positional = set(), []
        for parameter in inspect.signature(method).parameters.values():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                (declared,) = get_args(parameter.annotation) or (None,)
                if not is_typeddict(declared):
                    is_open = True
                    continue
                omittable |= declared.__optional_keys__
                kinds |= {name: _drop_row(kind) for name, kind in declared.__annotations__.items()}
            else:
                kinds[parameter.name] = parameter.annotation
                if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
                    positional.append(parameter.name)
                if parameter.default is not inspect.Parameter.empty and not _has_none(parameter.annotation):
                    omittable.add(parameter.name)
        return cls(
            method=method.__qualname__,
            positional=tuple(positional),
            known=None if is_open else frozenset(kinds.keys() - {"self"}),
            omittable=frozenset(omittable),
            lists=frozenset(name for name, kind in kinds.items() if _is_list(kind)),
            mappings=frozenset(name for name, kind in kinds.items() if _is_mapping(kind)),
            plain={name: parts for name, kind in kinds.items() if set(parts := _list_parts(kind)) <= _PLAIN.keys()},
            nullable=frozenset(omittable).union(name for name, kind in kinds.items() if _has_none(kind)),
        )

    def read(self, arguments: tuple[Any, ...], options: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments that are given. Raises TypeError for an unknown one, and for one of another kind."""
        if self.known is not None and (unknown := options.keys() - self.known):
            raise TypeError(f"{self.method}(): {describe_unknown(min(unknown), self.known)}")
        named = dict(zip(self.positional, arguments, strict=False))
        for name, value in (named | options).items():
            if name in self.plain and not (value is None and name in self.nullable):
                self._check_plain(name, value)
            if name in self.lists and isinstance(value, str):
                raise TypeError(f"{self.method}(): {name} is a list of texts; write {name}={[value[:_MAX_NAME]]!r}")
            if name in self.mappings and not (value is None or isinstance(value, Mapping)):
                raise TypeError(f"{self.method}(): {name} is a dict of names and values, not {type(value).__name__}")
        unset = [place for place, (name, value) in enumerate(named.items()) if value is None and name in self.omittable]
        if unset and not options.keys() & named.keys():
            options = {**dict(list(named.items())[unset[0] :]), **options}
            arguments = arguments[: unset[0]]
        return arguments, {
            name: value for name, value in options.items() if value is not None or name not in self.omittable
        }

    def _check_plain(self, name: str, value: object) -> None:
        kinds = self.plain[name]
        if not any(isinstance(value, _PLAIN[kind][0]) for kind in kinds):
            *others, last = dict.fromkeys(_PLAIN[kind][1] for kind in kinds)
            words = f"{', '.join(others)} or {last}" if others else last
            raise TypeError(f"{self.method}(): {name} is {words}, not {type(value).__name__}")


def _wrap(method: Callable[..., Any]) -> Callable[..., Any]:
    @cache
    def find() -> _Arguments:
        return _Arguments.of(method)

    @wraps(method)
    def call(*arguments: Any, **options: Any) -> Any:
        arguments, options = find().read(arguments, options)
        return method(*arguments, **options)

    @wraps(method)
    async def call_async(*arguments: Any, **options: Any) -> Any:
        arguments, options = find().read(arguments, options)
        return await method(*arguments, **options)

    return call_async if inspect.iscoroutinefunction(method) else call


_PLAIN: Final[Mapping[type, tuple[Any, str]]] = {
    str: (str, "a text"),
    int: (numbers.Number, "a number"),
    float: (numbers.Number, "a number"),
    datetime: (date, "a date"),
    bytes: ((bytes, bytearray, memoryview), "bytes"),
    Path: (os.PathLike, "a path"),
}
"""What may be given for an annotation, and its name."""


def _drop_row(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _list_parts(kind: Any) -> tuple[Any, ...]:
    parts = get_args(kind) if get_origin(kind) in (Union, UnionType, Required) else (kind,)
    return tuple(part for part in parts if part is not NoneType)


def _has_none(kind: Any) -> bool:
    return NoneType in get_args(kind)


def _is_mapping(kind: Any) -> bool:
    return [get_origin(part) for part in _list_parts(kind)] == [Mapping]


def _is_list(kind: Any) -> bool:
    """Return whether an annotation is that of a list of texts, where one text would be a list of its characters."""
    if get_origin(kind) in (Union, UnionType, Required):
        parts = get_args(kind)
        return str not in parts and any(map(_is_list, parts))
    return get_origin(kind) in (Sequence, Collection) and get_args(kind) == (str,)


def _fold(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


DEFAULT_WAIT_SECONDS: Final = 900.0
"""Wait for an execution's end, in the queue, for approvals and while it runs."""
_BEFORE_RUN_SECONDS: Final = 600.0
"""The part of it in the queue and for approvals, which a longer run leaves as it is."""


def default_wait(options: RunOptions) -> float:
    """Return the seconds that a client waits for the end of a run if its caller gives no other time."""
    return max(DEFAULT_WAIT_SECONDS, (options.get("timeout_seconds") or 0) + _BEFORE_RUN_SECONDS)


def build_body(code: str, options: RunOptions) -> dict[str, Any]:
    """Build the body of a request that creates an execution. Raises TypeError for an unknown option."""
    body: dict[str, Any] = {"code": code} if code or options.get("skill_ref") is None else {}
    for name, value in options.items():
        if name not in EXECUTION_OPTIONS:
            raise TypeError(describe_unknown(name, EXECUTION_OPTIONS))
        if value is not None:
            option = EXECUTION_OPTIONS[name]
            set_field(body, option.field, _to_json(option, value))
    return body


def _to_json(option: ExecutionOption, value: Any) -> Any:
    if option.name in ("workspace", "skill_ref") and isinstance(value, Mapping):
        return {key: item for key, item in value.items() if item is not None}
    return list(value) if option.kind == "texts" else value
