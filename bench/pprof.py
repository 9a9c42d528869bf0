"""Reader of stacks that profilers have sampled: Go's CPU profiles (pprof) and py-spy's raw text.

A CPU profile is a protobuf message, compressed by gzip. Only what stacks need is read: samples, the functions of their
locations, and names. (https://github.com/google/pprof/blob/main/proto/profile.proto)
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

MAX_BYTES: Final = 256 * 2**20
"""Longest profile, uncompressed. One of a minute has a few megabytes."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIZES: Final = {_FIXED64: 8, _FIXED32: 4}
_VARINT_BYTES: Final = 10
_SAMPLE, _LOCATION, _FUNCTION, _STRING = 2, 4, 5, 6
"""Fields of a profile."""
_GZIP: Final = zlib.MAX_WBITS | 16


class BadProfile(Exception):
    """A profile cannot be read. The text says why."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One stack, and how often it was seen."""

    frames: tuple[str, ...]
    """Names of functions, the innermost first. Those of Python have their file and line in brackets."""
    count: int


def read_go_profile(data: bytes) -> list[Sample]:
    """Return the stacks of a CPU profile. Raises BadProfile."""
    profile = _Profile()
    try:
        for number, value in _read_fields(_decompress(data)):
            profile.add(number, value)
        return profile.build_samples()
    except (IndexError, KeyError, TypeError, UnicodeDecodeError, zlib.error) as error:
        raise BadProfile(f"the CPU profile is malformed: {type(error).__name__} {error}") from error


def read_python_profile(text: str) -> list[Sample]:
    """Return the stacks of `py-spy record --format raw`: a line each, the outermost frame first. Raises BadProfile."""
    samples = []
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        if not stack or not count.isdecimal():
            raise BadProfile(f"a line of py-spy must end with a count: {line[:100]!r}")
        samples.append(Sample(frames=tuple(reversed(stack.split(";"))), count=int(count)))
    return samples


@dataclass(kw_only=True)
class _Profile:
    """The tables of a profile, which may come in any order."""

    names: list[str] = field(default_factory=list)
    functions: dict[int, int] = field(default_factory=dict)
    """Index of the name by the function's id."""
    locations: dict[int, list[int]] = field(default_factory=dict)
    """Ids of functions by the location's id; of inlined ones the innermost comes first."""
    stacks: list[tuple[list[int], int]] = field(default_factory=list)
    """Ids of locations, and the count."""

    def add(self, number: int, value: int | bytes) -> None:
        """Add one field of the message."""
        if number == _STRING:
            self.names.append(_as_bytes(value).decode())
        elif number == _FUNCTION:
            found = dict(_read_fields(_as_bytes(value)))
            self.functions[_as_number(found[1])] = _as_number(found.get(2, 0))
        elif number == _LOCATION:
            self._add_location(_as_bytes(value))
        elif number == _SAMPLE:
            locations, values = list[int](), list[int]()
            for each, inner in _read_fields(_as_bytes(value)):
                if each in (1, 2):
                    (locations if each == 1 else values).extend(_unpack(inner))
            self.stacks.append((locations, values[0]))

    def _add_location(self, data: bytes) -> None:
        identity, functions = 0, list[int]()
        for each, inner in _read_fields(data):
            if each == 1:
                identity = _as_number(inner)
            elif each == 4:
                line = dict(_read_fields(_as_bytes(inner)))
                functions.append(_as_number(line.get(1, 0)))
        self.locations[identity] = functions

    def build_samples(self) -> list[Sample]:
        """Return the stacks with the names of their functions."""
        named = {
            identity: [self.names[self.functions[function]] for function in functions]
            for identity, functions in self.locations.items()
        }
        return [
            Sample(frames=tuple(name for location in locations for name in named[location]), count=count)
            for locations, count in self.stacks
        ]


def _decompress(data: bytes) -> bytes:
    reader = zlib.decompressobj(_GZIP)
    found = reader.decompress(data, MAX_BYTES)
    if reader.unconsumed_tail:
        raise BadProfile(f"the CPU profile has more than {MAX_BYTES} bytes")
    if not reader.eof:
        raise BadProfile(f"the CPU profile is cut after {len(data)} bytes")
    return found


def _read_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field of a message."""
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _read_varint(data, at)
            yield number, value
            continue
        if kind == _BYTES:
            size, at = _read_varint(data, at)
        elif (fixed := _SIZES.get(kind)) is not None:
            size = fixed
        else:
            raise BadProfile(f"the CPU profile has a field of the unknown type {kind}")
        if at + size > len(data):
            raise BadProfile(f"the CPU profile has a field of {size} bytes, but only {len(data) - at} follow")
        yield number, data[at : at + size]
        at += size


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number and the position after it."""
    value = 0
    for index in range(_VARINT_BYTES):
        byte = data[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    raise BadProfile(f"the CPU profile has a number of more than {_VARINT_BYTES} bytes")


def _unpack(value: int | bytes) -> list[int]:
    """Return the numbers of a repeated field, which may be packed."""
    if isinstance(value, int):
        return [value]
    found, at = list[int](), 0
    while at < len(value):
        number, at = _read_varint(value, at)
        found.append(number)
    return found


def _as_bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise TypeError("a number stands in the place of a message")
    return value


def _as_number(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise TypeError("a message stands in the place of a number")
    return value
