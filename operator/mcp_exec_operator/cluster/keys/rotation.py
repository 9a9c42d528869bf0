"""Decides the next step of a rotation of the sandbox key. No I/O.

The Secret has two keys at most. A step waits until every process that reads the Secret has the step before it, and the
former key goes when nothing that it has signed is valid any more. After a leak there is one step, which waits for
nothing.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from mcp_exec_api.constants import GROUP, MAX_SESSION_AGE_SECONDS
from mcp_exec_api.meta import micro_time
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.sandbox_keys import KEY_ENTRIES, NEXT_ENTRY, PREVIOUS_ENTRY, SIGNING_ENTRY
from mcp_exec_operator.cluster.keys.secrets import decode_entries, encode

ANNOTATION_ROTATE: Final = f"{GROUP}/rotate"
"""Annotation of the Secret that begins a rotation. The operator removes it."""
ROTATE_NOW: Final = "now"
"""Its value for a rotation that loses nothing."""
ROTATE_COMPROMISED: Final = "compromised"
"""Its value after a leak: all keys of the Secret are replaced at once, and nothing that they have signed is renewed."""
ANNOTATION_SINCE: Final = f"{GROUP}/keys-since"
"""Annotation of the Secret: when it got the keys that it has now."""
PUBLISHED_FOR: Final = timedelta(minutes=5)
"""How long a new key is accepted everywhere before it signs. The kubelet writes a changed Secret within two minutes."""
_SIGNS_AFTER: Final = timedelta(hours=1)
"""How long the next key waits for the renewal of all proofs, which an object that can't be written may prevent."""
_RENEWED_FOR: Final = 3 * PUBLISHED_FOR
"""How long after its last signature, at most, proofs of a former key are renewed."""
_MARGIN: Final = timedelta(days=1)
"""For runs, waits for approvals and links to artifacts: a run ends within hours, and a link is valid for a day."""


class Step(StrEnum):
    """Steps of a rotation. The values are labels of a metric."""

    PUBLISH = "publish"
    """Add a new key, which is only accepted."""
    SIGN = "sign"
    """Sign with the new key. The former one is only accepted."""
    RETIRE = "retire"
    """Remove the former key."""
    WITHDRAW = "withdraw"
    """Replace all keys by a new one, because they have leaked."""


@dataclass(frozen=True, kw_only=True)
class RotationRules:
    """When the steps of a rotation are due."""

    rotate_after: timedelta | None
    """Age of a key at which it is replaced; None if only an annotation replaces it."""
    retire_after: timedelta
    """How long the former key is accepted."""

    @classmethod
    def of(cls, *, rotate_days: int, max_ttl_seconds: float) -> "RotationRules":
        """Return the rules. What lasts longest is an execution that is kept for its TTL, or a sandbox with an owner."""
        longest = timedelta(seconds=max(max_ttl_seconds, MAX_SESSION_AGE_SECONDS))
        return cls(rotate_after=timedelta(days=rotate_days) if rotate_days else None, retire_after=longest + _MARGIN)


@dataclass(frozen=True, kw_only=True)
class PlannedChange:
    """A change of the Secret."""

    step: Step | None
    """None if only the time is noted since which the Secret has its keys."""
    entries: Mapping[str, str | None]
    """Entries in base64; None removes one."""
    annotations: Mapping[str, str | None]

    def build_patch(self, secret: Object) -> Object:
        """Return the merge patch. It fails if somebody has changed the Secret since it was read."""
        version = secret["metadata"]["resourceVersion"]
        return {
            "metadata": {"resourceVersion": version, "annotations": dict(self.annotations)},
            "data": dict(self.entries),
        }


def create_key() -> bytes:
    """Return a new key of 384 random bits."""
    return secrets.token_urlsafe(48).encode()


def plan_change(secret: Object, rules: RotationRules, *, moment: datetime) -> PlannedChange | None:
    """Return the change that is due now, or None."""
    annotations = secret["metadata"].get("annotations") or {}
    data = {entry: content for entry, content in (secret.get("data") or {}).items() if content}
    since = _read_time(annotations.get(ANNOTATION_SINCE))
    present = {ANNOTATION_SINCE: micro_time(moment)}
    if annotations.get(ANNOTATION_ROTATE) == ROTATE_COMPROMISED:
        # who has read the Secret has the next key, too
        entries: dict[str, str | None] = {SIGNING_ENTRY: encode(create_key()), NEXT_ENTRY: None, PREVIOUS_ENTRY: None}
        return PlannedChange(step=Step.WITHDRAW, entries=entries, annotations={**present, ANNOTATION_ROTATE: None})
    if since is None:  # a new Secret, or somebody else has changed it
        return PlannedChange(step=None, entries={}, annotations=present)
    age = moment - since
    if PREVIOUS_ENTRY in data:
        if age < rules.retire_after:
            return None
        # the signing key stays as old as it is
        return PlannedChange(step=Step.RETIRE, entries={PREVIOUS_ENTRY: None}, annotations={})
    if NEXT_ENTRY in data:
        if age < PUBLISHED_FOR:
            return None
        entries = {SIGNING_ENTRY: data[NEXT_ENTRY], PREVIOUS_ENTRY: data[SIGNING_ENTRY], NEXT_ENTRY: None}
        return PlannedChange(step=Step.SIGN, entries=entries, annotations=present)
    is_old = rules.rotate_after is not None and age >= rules.rotate_after
    if is_old or annotations.get(ANNOTATION_ROTATE) == ROTATE_NOW:
        entries = {NEXT_ENTRY: encode(create_key())}
        return PlannedChange(step=Step.PUBLISH, entries=entries, annotations={**present, ANNOTATION_ROTATE: None})
    return None


def find_problem(secret: Object, *, is_own: bool) -> str:
    """Return why the annotation of a rotation begins none; empty if there is no problem."""
    value = (secret["metadata"].get("annotations") or {}).get(ANNOTATION_ROTATE)
    if value is None:
        return ""
    name = f"annotation {ANNOTATION_ROTATE} of Secret {secret['metadata']['name']}"
    if not is_own:
        return f"{name} has no effect: its owner rotates the keys (sandboxKey.existingSecret)"
    if value not in (ROTATE_NOW, ROTATE_COMPROMISED):
        return f"{name} has no effect: it is {value[:64]!r}, and must be {ROTATE_NOW} or {ROTATE_COMPROMISED}"
    return ""


@dataclass(frozen=True, kw_only=True)
class Renewal:
    """A renewal of the proofs that have no time limit."""

    keys: tuple[bytes, ...] = field(repr=False)
    """The key that signs, and the one whose proofs are renewed."""
    before: datetime | None
    """Only what was made until then is renewed; None for all."""
    is_overdue: bool = field(default=False, compare=False)
    """Whether the next key signs even if the renewal was not complete."""


def plan_renewal(secret: Object, *, seen_at: datetime | None, moment: datetime) -> Renewal | None:
    """Return the renewal that is due now, or None.

    `seen_at` is when this process saw that the keys changed: it counts for a Secret without the time. All proofs are
    signed with the next key before that signs anything else. Afterwards, only those that slow processes have signed
    with the former key in the meantime are renewed, and only for some minutes: else somebody who has read the former
    key in an old backup could have forged proofs renewed.
    """
    since = _read_time((secret["metadata"].get("annotations") or {}).get(ANNOTATION_SINCE)) or seen_at
    entries = decode_entries(secret)
    signing, following, former = (entries.get(name, b"").strip() for name in KEY_ENTRIES)
    if since is None or (age := moment - since) < PUBLISHED_FOR or not signing:
        return None
    if following:
        return Renewal(keys=(following, signing), before=None, is_overdue=age >= _SIGNS_AFTER)
    if former and age < _RENEWED_FOR:
        return Renewal(keys=(signing, former), before=since + PUBLISHED_FOR)
    return None


def _read_time(text: object) -> datetime | None:
    """Return a moment with its time zone, or None if the text is none."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
