"""Errors for options that do not exist, with those that may be meant."""

import inspect
from collections.abc import Callable, Collection
from difflib import get_close_matches
from functools import cache, wraps
from typing import Any, Final, TypeVar, get_args, is_typeddict

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
    """Let all public methods of a class answer an unknown option by a TypeError that suggests another one."""
    for name, method in vars(kind).copy().items():
        if inspect.isfunction(method) and (not name.startswith("_") or name == "__init__"):
            setattr(kind, name, _wrap(method))
    return kind


def _wrap(method: Callable[..., Any]) -> Callable[..., Any]:
    @cache
    def find_known() -> frozenset[str] | None:
        return _find_options(method)

    def check(options: dict[str, Any]) -> None:
        known = find_known() if options else None
        if known is not None and (unknown := options.keys() - known):
            raise TypeError(f"{method.__qualname__}(): {describe_unknown(min(unknown), known)}")

    @wraps(method)
    def call(*arguments: Any, **options: Any) -> Any:
        check(options)
        return method(*arguments, **options)

    @wraps(method)
    async def call_async(*arguments: Any, **options: Any) -> Any:
        check(options)
        return await method(*arguments, **options)

    return call_async if inspect.iscoroutinefunction(method) else call


def _find_options(method: Callable[..., Any]) -> frozenset[str] | None:
    """Return the names of all arguments that may be given by name, or None if any may."""
    known: set[str] = set()
    for parameter in list(inspect.signature(method).parameters.values())[1:]:
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            known.add(parameter.name)
            continue
        (declared,) = get_args(parameter.annotation) or (None,)
        if not is_typeddict(declared):
            return None
        known |= declared.__annotations__.keys()
    return frozenset(known)


def _fold(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
