"""Creates and names each execution once, also if the API server's response is lost or the client retries."""

import asyncio
import hashlib
import re
import secrets
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from mcp_exec_api.code_execution import CodeExecutionSpec, spec_digest
from mcp_exec_api.code_findings import CHECKED_LANGUAGES, CodeCheckMode
from mcp_exec_api.constants import (
    ANNOTATION_CALLER,
    ANNOTATION_CALLER_PROOF,
    ANNOTATION_CREATED,
    ANNOTATION_LIMITED_TOOLS,
    API_VERSION,
    EXECUTIONS,
    GROUP,
    LABEL_CALLER,
    LABEL_MANAGED_BY,
    MANAGED_BY,
)
from mcp_exec_api.meta import FieldError, micro_time, now
from mcp_exec_api.wire.executions import ExecutionMetadata
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.code_check import rules as code_rules
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.errors import ApiError, ApiUnreachable
from mcp_exec_common.kube.objects import Object, drop_empty_fields
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_gateway.core.auth.callers import Caller
from mcp_exec_gateway.core.executions.index import ANNOTATION_IDEMPOTENCY, ExecutionIndex
from mcp_exec_gateway.core.executions.limits import measure_spec
from mcp_exec_gateway.core.http.problems import HttpProblem, too_many, translate_refusal, unavailable
from mcp_exec_gateway.core.pools import PoolCache
from mcp_exec_gateway.metrics import Metrics

ANNOTATION_REQUEST: Final = f"{GROUP}/request-id"
"""Id of the request that created an execution; shows whether a creation without a response was carried out."""
ANNOTATION_DIGEST: Final = f"{GROUP}/request-digest"
"""Digest of the spec as requested; the API server may store numbers in another form."""

_MAX_ATTEMPTS: Final = 5
_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_LENGTH: Final = 12
_RANDOM_BITS: Final = 10
_OBJECT_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def _encode_base32(number: int) -> str:
    digits = []
    for _ in range(_LENGTH):
        number, digit = divmod(number, 32)
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))


@dataclass(kw_only=True)
class ExecutionNamer:
    """Creates names such as `exec-01k9x3v5t8q2` that sort by time: milliseconds, then random bits.

    A process never creates a name twice. Two replicas can create the same name within a millisecond: the API server
    then rejects the second, which tries another name.
    """

    clock: Callable[[], float] = time.time
    _last: int = field(default=0, init=False)

    def create_name(self) -> str:
        """Create a new name."""
        number = (int(self.clock() * 1000) << _RANDOM_BITS) | secrets.randbits(_RANDOM_BITS)
        self._last = number if number > self._last else self._last + 1
        return "exec-" + _encode_base32(self._last)


def digest_idempotency_key(*, namespace: str, caller: str, key: str) -> str:
    """Return the digest of one caller's Idempotency-Key in one namespace."""
    return hashlib.sha256("\0".join((namespace, caller, key)).encode()).hexdigest()


def derive_name(idempotency_digest: str) -> str:
    """Return the name of the execution that belongs to an Idempotency-Key."""
    return "exec-" + _encode_base32(int(idempotency_digest[:15], 16))


def is_object_name(name: str) -> bool:
    """Return whether an object can have this name. Other text must not become part of an API server path."""
    return _OBJECT_NAME.fullmatch(name) is not None


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A new execution with the name that it will have."""

    key: ObjectKey
    manifest: Object
    idempotency: str | None = None
    """Digest of the Idempotency-Key, if the request has one."""
    is_named: bool = False
    """Whether the request chose the name."""

    @property
    def pool(self) -> str:
        """Name of the execution's pool."""
        return str(self.manifest["spec"]["poolRef"]["name"])

    def is_origin_of(self, execution: Object) -> bool:
        """Return whether an execution with this name comes from this request or from one with the same key."""
        annotations = execution["metadata"].get("annotations") or {}
        name = ANNOTATION_IDEMPOTENCY if self.idempotency else ANNOTATION_REQUEST
        return bool(annotations.get(name) == self.manifest["metadata"]["annotations"][name])

    def created(self, execution: Object) -> bool:
        """Return whether an execution comes from this very request."""
        annotations = execution["metadata"].get("annotations") or {}
        return bool(annotations.get(ANNOTATION_REQUEST) == self.manifest["metadata"]["annotations"][ANNOTATION_REQUEST])

    def has_spec_of(self, execution: Object) -> bool:
        """Return whether that execution was requested with the same body."""
        digest = (execution["metadata"].get("annotations") or {}).get(ANNOTATION_DIGEST)
        return bool(digest == self.manifest["metadata"]["annotations"].get(ANNOTATION_DIGEST))


@dataclass(frozen=True, kw_only=True)
class Submitter:
    """Writes executions to the API server, each once."""

    kube: KubeClient
    index: ExecutionIndex
    pools: PoolCache
    attestor: Attestor
    namer: ExecutionNamer = field(default_factory=ExecutionNamer)

    def build_submission(
        self,
        spec: CodeExecutionSpec,
        *,
        metadata: ExecutionMetadata,
        caller: Caller,
        idempotency_key: str | None,
        marks: Mapping[str, str] = MappingProxyType({}),
        marks_of_call: Mapping[str, str] = MappingProxyType({}),
    ) -> Submission:
        """Build the manifest with the requested name, the one that belongs to the Idempotency-Key, or a new one.

        `marks` are labels and `marks_of_call` annotations of the gateway's own.
        """
        annotations = {
            **marks_of_call,
            ANNOTATION_CALLER: caller.name,
            ANNOTATION_CREATED: micro_time(now()),
            ANNOTATION_REQUEST: uuid.uuid4().hex,
            **({} if caller.limits.tools is None else {ANNOTATION_LIMITED_TOOLS: "true"}),
        }
        idempotency = None
        data = drop_empty_fields(spec.to_api())  # Kubernetes 1.20 reads an empty text as null
        if idempotency_key is not None:
            idempotency = digest_idempotency_key(namespace=caller.namespace, caller=caller.name, key=idempotency_key)
            annotations |= {
                ANNOTATION_IDEMPOTENCY: idempotency,
                ANNOTATION_DIGEST: metadata.extend_digest(spec_digest(data)),
            }
        name = metadata.name or (derive_name(idempotency) if idempotency else self.namer.create_name())
        manifest: Object = {
            "apiVersion": API_VERSION,
            "kind": "CodeExecution",
            "metadata": {
                "name": name,
                "namespace": caller.namespace,
                "labels": {
                    **metadata.build_labels(),
                    **marks,
                    LABEL_MANAGED_BY: MANAGED_BY,
                    LABEL_CALLER: caller.label,
                },
                "annotations": annotations,
            },
            "spec": data,
        }
        annotations[ANNOTATION_CALLER_PROOF] = self.attestor.sign_caller(manifest)
        return Submission(
            key=(caller.namespace, name), manifest=manifest, idempotency=idempotency, is_named=bool(metadata.name)
        )

    async def submit(self, submission: Submission, *, caller: Caller) -> Object | None:
        """Create the execution and return it as stored; with an Idempotency-Key, it may exist already.

        Returns None if another object has the name, so that the caller can try another. Raises HttpProblem if nothing
        was created, or if that is unknown (503 with the execution's name).
        """
        key = submission.key
        await self._check_other_name(submission)
        stored_bytes = measure_spec(submission.manifest["spec"])
        try:
            self._check_limits(submission, caller, stored_bytes=stored_bytes)
        except HttpProblem:
            # a retry creates nothing, so limits do not apply to it
            if submission.idempotency and (existing := await self._find(key)) is not None:
                return self._resolve_conflict(submission, existing)
            raise
        self.index.add_expectation(key, caller.label, stored_bytes=stored_bytes)
        digest = submission.idempotency
        is_new_key = digest is not None and self.index.request_keys.add(key, digest)
        created: Object | None = None
        try:
            created = await self._create(submission)
        finally:
            if created is None:
                self.index.remove_expectation(key)
                if is_new_key and digest is not None:
                    self.index.request_keys.discard(key, digest)
        return created

    async def _check_other_name(self, submission: Submission) -> None:
        """Raise HttpProblem if the Idempotency-Key belongs to an execution of another name."""
        namespace, name = submission.key
        digest = submission.idempotency
        other = digest and self.index.request_keys.find(namespace, digest)
        if not other or other == name:
            return
        existing = await self._find((namespace, other))
        if existing is None or self._is_own(submission, existing):
            raise _key_reused(other)

    def _check_limits(self, submission: Submission, caller: Caller, *, stored_bytes: int) -> None:
        limit = caller.limits.max_concurrent
        if limit is not None and self.index.count_active(caller.namespace, caller.label) >= limit:
            raise too_many(f"{caller.title} has {limit} unfinished executions, which is its limit")
        pool = self.pools.find(caller.namespace, submission.pool)
        if pool is not None:
            pool.check_queue()
        self.index.check_stored(caller, stored_bytes=stored_bytes)

    async def _create(self, submission: Submission) -> Object | None:
        path = custom_resource_path(EXECUTIONS, namespace=submission.key[0])
        name = submission.key[1]
        for _ in range(_MAX_ATTEMPTS):
            try:
                return await self.kube.create(path, submission.manifest)
            except ApiUnreachable as error:
                existing = await self._find(submission.key)
                if existing is None:
                    detail = "the API server did not respond; it may still create the execution"
                    raise unavailable(detail, execution=name) from error
                return self._resolve_conflict(submission, existing)
            except ApiError as error:
                if error.code != 409:
                    raise translate_refusal(error, namespace=submission.key[0], kind="CodeExecution") from error
                # the API client retries, so this can be the execution of its first attempt
                if (existing := await self._find(submission.key)) is not None:
                    return self._resolve_conflict(submission, existing)
        detail = f"the execution's name was taken and freed again during each of {_MAX_ATTEMPTS} attempts"
        raise unavailable(detail, execution=name)

    async def _find(self, key: ObjectKey) -> Object | None:
        try:
            return await self.kube.find(custom_resource_path(EXECUTIONS, namespace=key[0], name=key[1]))
        except ApiError as error:
            raise unavailable("the API server does not respond", execution=key[1]) from error

    def _is_own(self, submission: Submission, existing: Object) -> bool:
        """Return whether an execution comes from this request or one with the same key, and from the same caller.

        If no admission policy refuses it, anybody can write the annotation of somebody else's Idempotency-Key.
        """
        caller = submission.manifest["metadata"]["labels"][LABEL_CALLER]
        return submission.is_origin_of(existing) and self.attestor.read_caller(existing) == caller

    def _resolve_conflict(self, submission: Submission, existing: Object) -> Object | None:
        """Return the execution that has the submission's name if it is its own, None if it is another's."""
        name = submission.key[1]
        self.index.remove_expectation(submission.key)  # the execution exists, so the watch counts it
        if not self._is_own(submission, existing):
            if submission.is_named:
                detail = f"an execution {name} exists and is not a result of this request; choose another name"
                errors = [FieldError(field="name", message=f"{name} is taken")]
                raise HttpProblem("conflict", 409, detail, errors=errors, execution=name)
            if submission.idempotency:
                detail = f"another object has the name {name}, which belongs to this Idempotency-Key"
                raise HttpProblem("conflict", 409, detail)
            return None
        if submission.idempotency and not submission.has_spec_of(existing):
            raise _key_reused(name)
        return existing


def _key_reused(name: str) -> HttpProblem:
    detail = f"the Idempotency-Key belongs to execution {name}, which was created with another body"
    errors = [FieldError(field="Idempotency-Key", message="already used with another body")]
    return HttpProblem("key-reused", 422, detail, errors=errors, execution=name)


async def check_code(spec: CodeExecutionSpec, *, namespace: str, pools: PoolCache, metrics: Metrics) -> None:
    """Raise HttpProblem, a 422 with all findings, if the pool's mode is Strict. The operator checks again.

    Code that the pool's rules cannot read is refused in any mode but Off.
    """
    pool = pools.find(namespace, spec.pool_ref.name)
    if pool is None or pool.code_check.mode is CodeCheckMode.OFF:
        return
    if pool.language not in CHECKED_LANGUAGES:
        message = f"pool {pool.name} checks code before it runs, and has no rules for {pool.language}"
        errors = [FieldError(field="language", message=message)]
        raise HttpProblem("language-not-checked", 422, f"language: {message}", errors=errors)
    if pool.code_check.mode is not CodeCheckMode.STRICT:
        return
    # in a thread, because long code takes longer than other requests should wait
    findings = await asyncio.to_thread(code_rules.check_code, spec.code, pool.code_check)
    if not findings:
        return
    for finding in findings:
        metrics.code_findings.labels(finding.rule).inc()
    errors = [FieldError(field="code", message=str(finding)) for finding in findings]
    detail = f"pool {spec.pool_ref.name} rejects the code: {'; '.join(error.message for error in errors)}"
    raise HttpProblem("code-refused", 422, detail, errors=errors)
