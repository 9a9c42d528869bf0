import re

import pytest

from mcp_exec_gateway.core.auth.callers import format_caller_label
from mcp_exec_gateway.core.executions.submission import (
    ExecutionNamer,
    derive_name,
    digest_idempotency_key,
    is_object_name,
)

LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def test_names_sort_by_time_and_never_come_twice() -> None:
    moments = iter([1_795_000_000.0] * 2000 + [1_795_000_000.5] * 10 + [1_794_999_999.0] * 10)
    namer = ExecutionNamer(clock=lambda: next(moments))
    names = [namer.create_name() for _ in range(2020)]
    assert names == sorted(set(names))
    assert all(re.fullmatch(r"exec-[0-9a-hjkmnp-tv-z]{12}", name) for name in names)


def test_the_first_ten_characters_are_the_milliseconds_as_in_a_ulid() -> None:
    assert ExecutionNamer(clock=lambda: 1_469_918_176.385).create_name().startswith("exec-01aryz6s41")


def test_a_key_stands_for_one_name_of_one_caller_in_one_namespace() -> None:
    parts = [("n", "c", "k"), ("m", "c", "k"), ("n", "d", "k"), ("n", "c", "l"), ("nc", "", "k")]
    names = {derive_name(digest_idempotency_key(namespace=n, caller=c, key=k)) for n, c, k in parts}
    assert len(names) == len(parts)
    assert all(re.fullmatch(r"exec-[0-9a-hjkmnp-tv-z]{12}", name) for name in names)
    digest = digest_idempotency_key(namespace="n", caller="c", key="k")
    assert derive_name(digest) == derive_name(digest)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("team-a", "team-a"),
        ("system:serviceaccount:agents:bot", "system.serviceaccount.agents.bot"),
    ],
)
def test_a_caller_is_told_by_a_label_that_people_can_read(name: str, label: str) -> None:
    assert format_caller_label(name) == label


def test_long_service_accounts_keep_labels_apart() -> None:
    names = [f"system:serviceaccount:{'n' * 63}:{'b' * 100}{number}" for number in range(3)]
    labels = {format_caller_label(name) for name in names}
    assert len(labels) == 3
    assert all(LABEL.fullmatch(label) for label in labels)
    assert all(re.search(r"-[0-9a-f]{16}\Z", label) for label in labels), "32 bits are two hours of hashing"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a?b", "A", "a b", "-a", "a-", "a\n", "a" * 254, "é"])
def test_what_is_no_name_is_known(name: str) -> None:
    assert not is_object_name(name)


@pytest.mark.parametrize("name", ["a", "exec-01k9x3v5t8q2", "a.b-c", "a" * 253])
def test_what_is_a_name_is_known(name: str) -> None:
    assert is_object_name(name)
