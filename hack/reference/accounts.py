"""docs/reference/accounts.md: what accounts inside a served namespace may do, by the roles that grant it."""

from collections.abc import Iterable
from typing import Final

from hack.accounts.model import Row, read_sections
from hack.accounts.rights import list_rights, read_file
from hack.reference.markdown import GENERATED, build_table, format_code

_HEAD: Final = """# Accounts in a served namespace

An account with a role of Kubernetes or of the chart in a served namespace reaches mcp-exec past the gateway. This page
lists each verb on each kind that the roles `view`, `edit` and `admin` of Kubernetes {version} and the chart's
[roles for tenants](rbac.md#roles-to-bind) grant, what it changes here, and what answers it:

"""
_ANSWERS: Final = {
    "refused": "the API server refuses it, by itself or by the named"
    " [admission policy](../platform/identities.md#admission-policies) (Kubernetes 1.30 or later)",
    "detected": "it is accepted, and mcp-exec undoes or reports it",
    "trusted": "it is accepted; the account is trusted not to misuse it, by the row of that name in"
    " [what is trusted](../platform/security.md#what-is-trusted)",
    "harmless": "it is accepted, and nothing that mcp-exec promises depends on it",
}
_NOTES: Final = """
A role has the rights of those before it, in the orders `view`, `edit`, `admin` and `mcp-exec-viewer`,
`mcp-exec-caller`, `mcp-exec-manager`; a row names the first one. With `aggregateRoles: true`, Kubernetes' roles include
the chart's. No role here may write a status, `pods/ephemeralcontainers`, `pods/resize`, `pods/binding`, Endpoints,
EndpointSlices, ResourceQuotas or LimitRanges.

tests/component/accounts/test_accounts.py binds each role on a real API server. It sends each write as a dry run, for
each object that a row names, and compares the answer. It asks the API server for the other rights: reads, and what has
no dry run. It also compares the roles with those of this page.
"""
_TABLE: Final = ("role", "verbs", "kinds", "of", "what it changes", "answer")
_UNSERVED: Final = """
## Rights without effect

Kubernetes' roles also grant verbs on kinds that Kubernetes {version} does not serve:

"""


def build_page() -> str:
    """Build the page."""
    version = read_file()["version"]
    answers = build_table(("answer", "meaning"), _ANSWERS.items())
    parts = [GENERATED, _HEAD.format(version=version), answers, _NOTES]
    for section in read_sections():
        parts += [f"\n## {section.title}\n\n", build_table(_TABLE, map(_build_cells, section.rows))]
    return "".join([*parts, _UNSERVED.format(version=version), build_table(("kind", "verbs"), _list_unserved())])


def _build_cells(row: Row) -> tuple[str, ...]:
    answer = f"{row.verdict}: {_join_code(row.policies) or row.because}"
    return (
        _join_code(row.by), ", ".join(row.verbs), _join_code(row.kinds), ", ".join(row.what),
        row.effect, answer,
    )  # fmt: skip


def _join_code(names: Iterable[str]) -> str:
    return ", ".join(map(format_code, names))


def _list_unserved() -> list[tuple[str, str]]:
    verbs: dict[str, set[str]] = {}
    for right in list_rights()[1]:
        verbs.setdefault(right.kind, set()).add(right.verb)
    return [(format_code(kind), ", ".join(sorted(found))) for kind, found in sorted(verbs.items())]
