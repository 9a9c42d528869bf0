"""The Secret with the sandbox keys: created if absent, followed while the operator leads, restored and rotated."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Final

from mcp_exec_api.meta import micro_time
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.sandbox_keys import PREVIOUS_ENTRY, SIGNING_ENTRY, SandboxKeys, read_keys
from mcp_exec_operator.cluster.keys.rotation import (
    ANNOTATION_SINCE,
    RotationRules,
    Step,
    create_key,
    find_problem,
    plan_change,
)
from mcp_exec_operator.cluster.keys.secrets import ReleaseSecrets, build_secret, decode_entries
from mcp_exec_operator.cluster.preflight import CannotStart

log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0


@dataclass(frozen=True, kw_only=True)
class SandboxKeySecret:
    """The Secret with the sandbox keys. If it belongs to somebody else, it is only read."""

    secrets: ReleaseSecrets
    name: str
    is_own: bool
    """Whether the operator creates and changes it."""
    rules: RotationRules
    clock: Callable[[], datetime]

    async def obtain(self, *, wait_seconds: float) -> SandboxKeys:
        """Return the keys: those of the Secret, or a new one if the operator creates it and there is none.

        Raises CannotStart if there is none after `wait_seconds`.
        """
        deadline = monotonic() + wait_seconds
        while True:
            try:
                return SandboxKeys(*_read(await self._find_or_create({SIGNING_ENTRY: create_key()})))
            except (ApiError, ValueError) as error:
                if monotonic() >= deadline:
                    raise CannotStart(f"the sandbox key can't be read: {error}") from error
                log.warning("the sandbox key can't be read yet: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def refresh(self, keys: SandboxKeys) -> None:
        """Use the keys that the Secret has now. If there is none, those in use stay. Raises ApiError and ValueError."""
        if (secret := await self.secrets.find(self.name)) is not None:
            self._use(keys, secret)

    async def follow(self, keys: SandboxKeys, *, may_sign: Callable[[Object], Awaitable[bool]]) -> Object:
        """Use the keys that the Secret has now, take the step of their rotation that is due, and return the Secret.

        An absent Secret gets the keys in use. The next key signs if it `may_sign`. Raises ApiError and ValueError.
        """
        signing, *others = keys
        in_use = {SIGNING_ENTRY: signing, **({PREVIOUS_ENTRY: others[0]} if others else {})}
        secret = await self._find_or_create(in_use)
        self._use(keys, secret)
        change = plan_change(secret, self.rules, moment=self.clock()) if self.is_own else None
        if change is None or (change.step is Step.SIGN and not await may_sign(secret)):
            return secret
        secret = await self.secrets.patch(self.name, change.build_patch(secret))
        if change.step is not None:
            self.secrets.metrics.key_steps.labels(change.step).inc()
            log.info("rotation of the sandbox key: %s", change.step)
        self._use(keys, secret)
        return secret

    def find_problem(self, secret: Object) -> str:
        """Return why the Secret's annotation begins no rotation; empty if there is no problem."""
        return find_problem(secret, is_own=self.is_own)

    def _use(self, keys: SandboxKeys, secret: Object) -> None:
        accepted, former = _read(secret), set(keys)
        if keys.replace(accepted):
            log.info("the sandbox keys have changed: %s", keys.describe())
            if not former & set(accepted):
                log.warning("Secret %s has none of the former keys: what they have signed is refused", self.name)

    async def _find_or_create(self, entries: dict[str, bytes]) -> Object:
        """Return the Secret, created with these entries if it is absent. Raises ValueError if it is another's."""
        secret = await self.secrets.find(self.name)
        if secret is None and self.is_own:
            annotations = {ANNOTATION_SINCE: micro_time(self.clock())}
            secret = await self.secrets.create(build_secret(self.name, entries, annotations), owned=True)
        if secret is None:
            raise ValueError(f"Secret {self.name} does not exist in namespace {self.secrets.namespace}")
        return secret


def _read(secret: Object) -> tuple[bytes, ...]:
    """Return the keys of the Secret. Raises ValueError."""
    try:
        return read_keys(decode_entries(secret))
    except ValueError as error:
        raise ValueError(f"Secret {secret['metadata']['name']}: {error}") from error
