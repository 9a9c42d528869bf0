"""Kubernetes label selectors, evaluated here because the API server does not list the newest first."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_MAX_REQUIREMENTS: Final = 32
_KEY: Final = r"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_REQUIREMENTS: Final = (
    re.compile(rf"(?P<key>{_KEY})\s*(?P<operator>==|=|!=)\s*(?P<values>[^,()]*)"),
    re.compile(rf"(?P<key>{_KEY})\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)"),
    re.compile(rf"(?P<operator>!?)\s*(?P<key>{_KEY})(?P<values>)"),
)
_PART: Final = re.compile(r"(?:[^,()]|\([^()]*\))+")
_NEGATIVE: Final = ("!", "!=", "notin")
_RULE: Final = "use KEY=VALUE, KEY!=VALUE, KEY in (A,B), KEY notin (A,B), KEY or !KEY, separated by commas"


@dataclass(frozen=True, kw_only=True)
class _Requirement:
    key: str
    values: frozenset[str] | None
    """Values of which the label has one; None if any value will do."""
    negative: bool

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        return (value is not None and (self.values is None or value in self.values)) is not self.negative


@dataclass(frozen=True, kw_only=True)
class LabelSelector:
    """Requirements that an object's labels fulfil. A label that is absent fulfils `!=`, `notin` and `!`."""

    requirements: tuple[_Requirement, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels fulfil all requirements."""
        return all(requirement.matches(labels) for requirement in self.requirements)


def parse_label_selector(text: str) -> LabelSelector:
    """Parse a selector as kubectl takes it. Raises ValueError with the part that is wrong and what is allowed."""
    requirements: list[_Requirement] = []
    position, text = 0, text.strip()
    while position < len(text):
        part = _PART.match(text, position)
        if part is None or len(requirements) >= _MAX_REQUIREMENTS:
            reason = f"more than {_MAX_REQUIREMENTS} requirements" if part else f"at {text[position : position + 40]!r}"
            raise ValueError(f"{reason}: {_RULE}")
        requirements.append(_parse_requirement(part[0].strip()))
        position = part.end()
        if position < len(text):
            if text[position] != "," or position + 1 == len(text):
                raise ValueError(f"at {text[position : position + 40]!r}: {_RULE}")
            position += 1
    return LabelSelector(requirements=tuple(requirements))


def _parse_requirement(text: str) -> _Requirement:
    for pattern in _REQUIREMENTS:
        if (found := pattern.fullmatch(text)) is None:
            continue
        operator = found["operator"]
        if operator in ("", "!"):
            return _Requirement(key=found["key"], values=None, negative=operator == "!")
        values = [value.strip() for value in found["values"].split(",")]
        if all(_VALUE.fullmatch(value) for value in values):
            return _Requirement(key=found["key"], values=frozenset(values), negative=operator in _NEGATIVE)
    raise ValueError(f"{text[:80]!r}: {_RULE}")
