"""Who may sign in besides API keys: issuers of tokens, and the rules of what people and accounts may do."""

import re
from collections.abc import Sequence
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from mcp_exec_api.meta import Model
from mcp_exec_api.wire.stats import KeyLimits
from mcp_exec_common.process.outgoing import build_client_tls

OIDC_PREFIX: Final = "oidc/"
"""Prefix of the caller name of a person: `oidc/ALIAS/SUBJECT`."""
RULES_ENTRY: Final = "rules.json"
"""Entry of the ConfigMap that has the rules."""

CALLER_PATTERN: Final = r"^(oidc/[a-z0-9-]+|k8s)/([^*]+\*?|\*)$"
SCOPE: Final = r"^[!#-+\--\[\]-~]+$"
"""A scope as RFC 6749 has it, without a comma."""
HTTPS: Final = re.compile(r"^https://[^\s/?#@]+(/[^\s?#]*)?$")
_Claim = Annotated[str, Field(min_length=1, max_length=128)]
_CallerPattern = Annotated[str, Field(max_length=512, pattern=CALLER_PATTERN)]


class OidcIssuer(Model):
    """An identity provider whose tokens the gateway accepts."""

    alias: Annotated[str, Field(max_length=20, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    """Short name of the issuer. Its people are the callers `oidc/ALIAS/SUBJECT`, its groups `oidc/ALIAS/GROUP`. Another
    alias makes other callers."""
    url: Annotated[str, Field(max_length=512, pattern=HTTPS.pattern)]
    """The issuer, exactly as tokens have it in `iss`."""
    audience: Annotated[str, Field(min_length=1, max_length=512)]
    """Audience that tokens must have in `aud`: what the provider calls the API or the resource, or the client's id."""
    user_claim: _Claim = "sub"
    """Claim with the name of the person, which must never pass to somebody else. `email` needs `email_verified`."""
    groups_claim: _Claim = "groups"
    """Claim with the person's groups: a list of texts, or one text."""
    jwks_url: Annotated[str, Field(max_length=512, pattern=rf"^({HTTPS.pattern[1:-1]})?$")] = ""
    """Address of the issuer's keys. Empty means that of its discovery document."""
    ca: Annotated[str, Field(max_length=8192)] = ""
    """Certificates in PEM of authorities that are trusted for this issuer, in addition to the public ones and those of
    `caBundle`."""
    clock_skew_seconds: Annotated[int, Field(ge=0, le=300)] = 30
    """Seconds that the clocks of issuer and gateway may differ."""


def check_issuers(issuers: Sequence[OidcIssuer]) -> None:
    """Raise ValueError if two issuers have the same alias or URL, as a token could be of either, or one has no usable
    certificate in `ca`."""
    for issuer in issuers:
        try:
            build_client_tls(*filter(None, [issuer.ca]))
        except ValueError as error:
            raise ValueError(f"the `ca` of the issuer {issuer.alias} {error}") from None
    for name in ("alias", "url"):
        values = [getattr(issuer, name) for issuer in issuers]
        if repeated := sorted({value for value in values if values.count(value) > 1}):
            raise ValueError(f"two issuers have the {name} {repeated[0]}; each needs its own")


class AccessRule(Model):
    """What some people and accounts may do in some namespaces. The first rule that fits caller and namespace counts."""

    users: Annotated[list[_CallerPattern], Field(max_length=1024)] = Field(default_factory=list)
    """Callers: `oidc/ALIAS/SUBJECT`, or `k8s/USERNAME` for an account of Kubernetes. A `*` at the end matches any
    ending."""
    groups: Annotated[list[_CallerPattern], Field(max_length=1024)] = Field(default_factory=list)
    """Groups of callers: `oidc/ALIAS/GROUP`, or `k8s/GROUP`. A `*` at the end matches any ending."""
    namespaces: Annotated[list[Annotated[str, Field(max_length=63)]], Field(min_length=1, max_length=256)]
    """Served namespaces. A request without `namespace` is in the first one."""
    limits: KeyLimits = KeyLimits()
    """Limits, as those of an API key. Without `users`, a caller may name only itself as the user of an execution."""
    approver: bool = False
    """Whether the callers may decide on approvals."""

    @model_validator(mode="after")
    def _check_callers(self) -> Self:
        if not self.users and not self.groups:
            raise ValueError("the rule fits nobody; give it users or groups")
        return self
