"""The rules of what people and accounts may do, read again whenever their ConfigMap changes."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from pydantic import TypeAdapter, ValidationError

from mcp_exec_api.meta import explain_errors
from mcp_exec_api.wire.stats import KeyLimits
from mcp_exec_common.access import RULES_ENTRY, AccessRule
from mcp_exec_common.process.mounts import MountedFolder
from mcp_exec_common.process.namespaces import ServedNamespaces
from mcp_exec_tools.patterns import NamePatterns

log = logging.getLogger(__name__)

SCOPE_RUN: Final = "run"
SCOPE_TOOLS: Final = "tools"
SCOPE_APPROVE: Final = "approve"
"""Scopes that narrow a rule, if `gateway.oidc.narrowByScopes` is set."""
_RULES: Final[TypeAdapter[list[AccessRule]]] = TypeAdapter(list[AccessRule])


class SignedIn(Protocol):
    """A person or an account, as rules name them."""

    @property
    def name(self) -> str:
        """Name of the caller."""

    @property
    def rule_name(self) -> str:
        """The name with its kind: `oidc/ALIAS/SUBJECT` or `k8s/USERNAME`."""

    @property
    def rule_groups(self) -> tuple[str, ...]:
        """Groups, each with its kind as well."""

    @property
    def username(self) -> str:
        """Name of the user that the caller may name if its rule says nothing else."""

    @property
    def scopes(self) -> frozenset[str] | None:
        """What the token may be used for, of what the rule allows; None for all of it."""

    def name_scope(self, scope: str) -> str:
        """Return the name by which a client asks for a scope."""


class _CompiledRule:
    def __init__(self, rule: AccessRule) -> None:
        self.rule = rule
        self._users = NamePatterns(rule.users)
        self._groups = frozenset(rule.groups)
        self._wildcards = NamePatterns(group for group in rule.groups if group.endswith("*"))

    def fits(self, name: str, groups: frozenset[str]) -> bool:
        """Return whether the rule is for this caller. Most rules name whole groups: a set finds one of hundreds."""
        if self._users.match(name) or not self._groups.isdisjoint(groups):
            return True
        return any(self._wildcards.match(group) for group in groups)


@dataclass(frozen=True, kw_only=True)
class Grant:
    """A rule as it applies to one caller in one namespace."""

    namespace: str
    limits: KeyLimits
    approver: bool


@dataclass(kw_only=True)
class AccessRules:
    """The rules as they are now. Without any, only API keys and rights in Kubernetes let a caller in."""

    served: ServedNamespaces
    _rules: tuple[_CompiledRule, ...] = field(default=(), init=False)

    async def follow(self, folder: MountedFolder) -> None:
        """Read the rules whenever they change, for ever. Invalid ones are logged, and the last ones stay in use."""
        await folder.follow(self.replace)

    def replace(self, entries: Mapping[str, bytes]) -> None:
        """Use the rules of these entries. Raises ValueError, and keeps the present ones, if one is invalid."""
        try:
            rules = _RULES.validate_json(entries.get(RULES_ENTRY, b"[]"), strict=True)
        except ValidationError as error:
            raise ValueError(f"{RULES_ENTRY}: {explain_errors(error)}") from error
        self._rules = tuple(map(_CompiledRule, rules))
        log.info("access rules: %d in use", len(self._rules))

    def find(self, user: SignedIn, namespace: str | None) -> Grant | None:
        """Return what the first fitting rule grants in a namespace, or in the first served one of the rule.

        None if no rule fits, or if the namespace is not served.
        """
        name, groups = user.rule_name, frozenset(user.rule_groups)
        for compiled in self._rules:
            rule = compiled.rule
            wanted = rule.namespaces if namespace is None else {namespace}.intersection(rule.namespaces)
            chosen = next((each for each in wanted if each in self.served), None)
            if chosen is not None and compiled.fits(name, groups):
                return Grant(namespace=chosen, limits=_complete(rule.limits, user), approver=rule.approver)
        return None


def _complete(limits: KeyLimits, user: SignedIn) -> KeyLimits:
    """Return the limits. Unless they list users, a caller may name only itself.

    A token without the scope `tools` uses no tools.
    """
    changes: dict[str, Any] = {}
    if limits.users is None:
        # a star at its end would be a pattern of others
        changes["users"] = [] if "*" in user.username else [user.username]
    if user.scopes is not None and SCOPE_TOOLS not in user.scopes:
        changes["tools"] = []
    given = {name: getattr(limits, name) for name in limits.model_fields_set}
    return KeyLimits(**given | changes) if changes else limits
