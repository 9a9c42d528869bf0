"""All keys of the release, which the operator creates: the sandbox key, and the first API key of the gateway.

What is absent is created, and what exists is kept. If two operators create a Secret at once, both use the one that the
API server accepted. The Secret with the text of the first API key is created last: until then, each attempt makes a new
key.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf
from time import monotonic
from typing import Final

from mcp_exec_api.constants import GROUP
from mcp_exec_api.meta import now
from mcp_exec_common.api_keys import KeyEntry, digest_key, generate_key
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.kube.client import KubeClient
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.sandbox_keys import SandboxKeys
from mcp_exec_operator.cluster.keys.renewal import ProofRenewer
from mcp_exec_operator.cluster.keys.rotation import Renewal, RotationRules, plan_renewal
from mcp_exec_operator.cluster.keys.sandbox_key import SandboxKeySecret
from mcp_exec_operator.cluster.keys.secrets import ReleaseSecrets, build_secret, read_entry
from mcp_exec_operator.metrics import Metrics
from mcp_exec_operator.settings import InitialApiKey, Settings

log = logging.getLogger(__name__)

ANNOTATION_EXPIRES_AT: Final = f"{GROUP}/expires-at"
INITIAL_KEY: Final = "initial"
"""Name of the first API key: its entry in the Secret with the API keys, which belongs to the operator."""
_TEXT_ENTRY: Final = "api-key"
_REPEAT_SECONDS: Final = 600.0
"""Interval of renewals while a Secret of somebody else has a next key."""
_RETRY_SECONDS: Final = 60.0
"""Seconds until a renewal that was not complete is repeated."""


@dataclass(kw_only=True, eq=False)
class ReleaseKeys:
    """The Secrets with the release's keys, in its namespace."""

    settings: Settings
    kube: KubeClient
    metrics: Metrics
    served: Iterable[str] = ()
    """The namespaces that are served now, whose proofs are renewed."""
    named: Callable[[], Iterable[str]] = tuple
    """Returns the namespaces that the release names. Those that are not served now have proofs, too."""
    clock: Callable[[], datetime] = now
    check_seconds: float = 20.0
    """Seconds until what is deleted is restored, and what is changed is used."""
    _seen: tuple[tuple[bytes, ...], datetime | None] = field(default=((), None), init=False, repr=False)
    """The sandbox keys at the last look, and when they changed; None if they did not since the start."""
    _renewed: Renewal | None = field(default=None, init=False)
    """The last renewal that was complete."""
    _renewed_in: frozenset[str] = field(default=frozenset(), init=False)
    """The namespaces of that renewal."""
    _repeat_at: float = field(default=-inf, init=False)
    """When it is repeated until the next key signs, by the monotonic clock."""
    _retry_at: float = field(default=-inf, init=False)
    """When a renewal that was not complete is repeated, by the monotonic clock."""
    _problem: str = field(default="", init=False)
    """What is wrong with the annotation of the Secret, as it was last logged."""

    async def obtain_sandbox_keys(self) -> SandboxKeys:
        """Return the sandbox keys. Raises CannotStart if there is none after `api_wait_seconds`."""
        return await self._sandbox_key.obtain(wait_seconds=self.settings.api_wait_seconds)

    async def refresh(self, sandbox_keys: SandboxKeys) -> None:
        """Use the sandbox keys as they are now, before anything is done with them. Raises ApiError.

        A standby may have started before the last rotation. With former keys it would recognize no pod and no skill.
        """
        try:
            await self._sandbox_key.refresh(sandbox_keys)
        except ValueError as error:
            log.error("the sandbox keys can't be read, so those in use stay: %s", error)

    async def run(self, sandbox_keys: SandboxKeys) -> None:
        """Follow the Secrets and restore what is deleted, for ever."""
        while True:
            await asyncio.sleep(self.check_seconds)
            await self.check(sandbox_keys)
            await self.renew_proofs(sandbox_keys)

    async def check(self, sandbox_keys: SandboxKeys, *, renews: bool = True) -> None:
        """Create the Secrets that are absent, and use the sandbox keys as they are now.

        Without `renews`, a step that needs a renewal of all proofs is left to the next check. An error is logged: the
        operator has keys, and executions need no API key.
        """

        async def may_sign(secret: Object) -> bool:
            plan = self._plan_renewal(secret)
            return renews and (plan is None or await self._renew(plan) or plan.is_overdue)

        try:
            secret = await self._sandbox_key.follow(sandbox_keys, may_sign=may_sign)
            self._report(self._sandbox_key.find_problem(secret))
        except (ApiError, ValueError) as error:
            log.error("the sandbox keys can't be read, so those in use stay: %s", error)
        try:
            if self.settings.api_keys_secret:
                await self._restore_api_keys()
        except (ApiError, ValueError) as error:
            log.error("the Secrets with API keys can't be created or read: %s", error)

    async def renew_proofs(self, sandbox_keys: SandboxKeys) -> None:
        """Renew what has no time limit, if that is due: see `plan_renewal`. Errors are logged."""
        keys = tuple(sandbox_keys)
        if keys != self._seen[0]:
            self._seen = keys, self.clock() if self._seen[0] else None
        if len(keys) == 1:
            return
        try:
            secret = await self._secrets.find(self.settings.sandbox_key_secret)
            plan = None if secret is None else self._plan_renewal(secret)
        except (ApiError, ValueError) as error:
            log.error("the sandbox keys can't be read, so no proof is renewed: %s", error)
            return
        if plan is not None:
            await self._renew(plan)

    def _plan_renewal(self, secret: Object) -> Renewal | None:
        return plan_renewal(secret, seen_at=self._seen[1], moment=self.clock())

    async def _renew(self, plan: Renewal) -> bool:
        """Renew all proofs. Return whether none of a former key is left."""
        served = tuple(self.served)
        is_renewed = plan == self._renewed and set(served) <= self._renewed_in
        if is_renewed and (plan.before is not None or monotonic() < self._repeat_at):
            return True
        if monotonic() < self._retry_at:
            return False
        renewer = ProofRenewer(
            kube=self.kube,
            attestor=Attestor(keys=SandboxKeys(*plan.keys)),
            before=plan.before,
            namespaces=served,
            metrics=self.metrics,
        )
        is_complete = await renewer.renew_all()
        if absent := sorted(set(self.named()) - set(served)):
            log.error("proofs in namespaces that are not served now are not renewed: %s", ", ".join(absent))
            is_complete = False
        if is_complete:
            self._renewed, self._repeat_at = plan, monotonic() + _REPEAT_SECONDS
            self._renewed_in = frozenset(served)
            return True
        self._retry_at = monotonic() + _RETRY_SECONDS
        return False

    def _report(self, problem: str) -> None:
        """Log a problem once."""
        if problem and problem != self._problem:
            log.error("%s", problem)
        self._problem = problem

    @property
    def _sandbox_key(self) -> SandboxKeySecret:
        settings = self.settings
        return SandboxKeySecret(
            secrets=self._secrets,
            name=settings.sandbox_key_secret,
            is_own=settings.create_sandbox_key,
            rules=RotationRules.of(
                rotate_days=settings.sandbox_key_rotate_days, max_ttl_seconds=settings.max_ttl_seconds
            ),
            clock=self.clock,
        )

    @property
    def _secrets(self) -> ReleaseSecrets:
        settings = self.settings
        return ReleaseSecrets(
            kube=self.kube,
            namespace=settings.release_namespace,
            service_account=settings.service_account,
            metrics=self.metrics,
        )

    async def _restore_api_keys(self) -> None:
        names, initial, known = self.settings, self.settings.initial_api_key, self._secrets
        text = await known.find(names.initial_api_key_secret)
        if initial is not None and text is None:
            await self._create_initial_key(initial)
            return
        if await known.find(names.api_keys_secret) is None:
            entries = {} if initial is None or text is None else {INITIAL_KEY: self._build_entry(text, initial)}
            await known.create(build_secret(names.api_keys_secret, entries))
        if initial is None and text is not None:
            await known.patch(names.api_keys_secret, {"data": {INITIAL_KEY: None}})
            await known.delete(text)
            log.warning("the API key %s is revoked, since the settings have none", INITIAL_KEY)

    async def _create_initial_key(self, initial: InitialApiKey) -> None:
        annotations = {}
        if initial.valid_days:
            expires_at = self.clock().replace(microsecond=0) + timedelta(days=initial.valid_days)
            annotations[ANNOTATION_EXPIRES_AT] = expires_at.isoformat().replace("+00:00", "Z")
        made = build_secret(self.settings.initial_api_key_secret, {_TEXT_ENTRY: generate_key().encode()}, annotations)
        await self._store_entry(self._build_entry(made, initial))
        stored = await self._secrets.create(made, owned=True)
        if stored["data"] != made["data"]:
            await self._store_entry(self._build_entry(stored, initial))

    async def _store_entry(self, entry: bytes) -> None:
        made = build_secret(self.settings.api_keys_secret, {INITIAL_KEY: entry})
        stored = await self._secrets.create(made)
        wanted = made["data"][INITIAL_KEY]
        if (stored.get("data") or {}).get(INITIAL_KEY) != wanted:
            await self._secrets.patch(self.settings.api_keys_secret, {"data": {INITIAL_KEY: wanted}})

    def _build_entry(self, secret: Object, initial: InitialApiKey) -> bytes:
        """Return the entry of the first API key, from the Secret with its text, which may be malformed: ValueError."""
        expires_at = (secret["metadata"].get("annotations") or {}).get(ANNOTATION_EXPIRES_AT)
        entry = KeyEntry(
            sha256=digest_key(read_entry(secret, _TEXT_ENTRY).decode()),
            namespace=initial.namespace or self._find_first_namespace(),
            limits=initial.limits,
            approver=initial.approver,
            expires_at=datetime.fromisoformat(expires_at) if expires_at else None,
        )
        return json.dumps(entry.to_api(), separators=(",", ":")).encode()

    def _find_first_namespace(self) -> str:
        """Return the first namespace that is served now, or the first one that the release names."""
        named, served = self.settings.namespaces, set(self.served)
        return next((each for each in (*named, *self.served) if each in served), named[0])
