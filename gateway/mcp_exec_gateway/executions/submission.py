"""Creates executions: what is written, and what is learnt where the write's outcome is in doubt."""

import uuid
from dataclasses import dataclass, field
from typing import Final

from mcp_exec_api.code_execution import CodeExecutionSpec, spec_digest
from mcp_exec_api.constants import (
    ANNOTATION_CREATED,
    API_VERSION,
    EXECUTIONS,
    LABEL_CALLER,
    LABEL_MANAGED_BY,
    MANAGED_BY,
)
from mcp_exec_api.meta import FieldError, micro_time, now
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.errors import ApiError, ApiUnreachable
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import ObjectKey
from mcp_exec_gateway.auth.authenticator import Caller
from mcp_exec_gateway.executions.index import Executions
from mcp_exec_gateway.executions.naming import (
    ANNOTATION_DIGEST,
    ANNOTATION_IDEMPOTENCY,
    ANNOTATION_REQUEST,
    Namer,
    idempotency_digest,
    idempotent_name,
)
from mcp_exec_gateway.executions.pools import Pools
from mcp_exec_gateway.http.problems import Problem, invalid_field, too_many, unavailable
from mcp_exec_tools.patterns import name_matches, within

_ATTEMPTS: Final = 5


@dataclass(frozen=True, kw_only=True)
class Submission:
    """An execution that is to be created."""

    key: ObjectKey
    manifest: Object
    idempotency: str | None = None
    """Digest of the Idempotency-Key, where one was sent."""

    @property
    def pool(self) -> str:
        """The pool that it is sent to."""
        return str(self.manifest["spec"]["poolRef"]["name"])

    def made(self, found: Object) -> bool:
        """Whether an object with this name is the one that this submission stands for."""
        annotations = found["metadata"].get("annotations") or {}
        name = ANNOTATION_IDEMPOTENCY if self.idempotency else ANNOTATION_REQUEST
        return bool(annotations.get(name) == self.manifest["metadata"]["annotations"][name])

    def same_spec(self, found: Object) -> bool:
        """Whether that object was asked for with the same body."""
        digest = (found["metadata"].get("annotations") or {}).get(ANNOTATION_DIGEST)
        return bool(digest == self.manifest["metadata"]["annotations"].get(ANNOTATION_DIGEST))


def fitted_spec(spec: CodeExecutionSpec, *, caller: Caller, pools: Pools) -> CodeExecutionSpec:
    """The spec, within the bounds of caller and pool; what was not asked for is lowered to them.

    Raises Problem: 403 for a pool, a tool or a user that is not the key's to use, 422 for a field that does not fit.
    """
    pool, limits = spec.pool_ref.name, caller.limits
    if limits.pools is not None and pool not in limits.pools:
        message = f"the API key {caller.name} may use only {', '.join(limits.pools)}"
        raise Problem("forbidden", 403, message, errors=[FieldError(field="poolRef.name", message=message)])
    _check_tools(spec, caller=caller)
    _check_user(spec, caller=caller)
    pool_seconds = pools.max_timeout_seconds(caller.namespace, pool)
    if pool_seconds is None:
        names = ", ".join(pools.names(caller.namespace)) or "none"
        raise invalid_field(
            "poolRef.name", f"there is no pool {pool} in namespace {caller.namespace}; there are: {names}"
        )
    return _fitted_priority(_fitted_time(spec, caller=caller, pool_seconds=pool_seconds), caller=caller)


def _check_tools(spec: CodeExecutionSpec, *, caller: Caller) -> None:
    allowed = caller.limits.tools
    if allowed is None:
        return
    may = f"the API key {caller.name} may use only {', '.join(allowed) or 'none'}"
    errors = [
        FieldError(field=f"tools.{number}", message=f"{pattern}: {may}")
        for number, pattern in enumerate(spec.tools)
        if not within(pattern, allowed)
    ]
    if errors:
        raise Problem("forbidden", 403, f"{errors[0].field}: {errors[0].message}", errors=errors)


def _check_user(spec: CodeExecutionSpec, *, caller: Caller) -> None:
    allowed = caller.limits.users
    if spec.user is None or allowed is None or any(name_matches(pattern, spec.user) for pattern in allowed):
        return
    message = f"the API key {caller.name} may name only {', '.join(allowed) or 'none'}"
    raise Problem("forbidden", 403, f"user: {message}", errors=[FieldError(field="user", message=message)])


def _fitted_time(spec: CodeExecutionSpec, *, caller: Caller, pool_seconds: int) -> CodeExecutionSpec:
    limits = caller.limits
    bounds = [(pool_seconds, f"pool {spec.pool_ref.name}")]
    if limits.max_timeout_seconds is not None:
        bounds.append((limits.max_timeout_seconds, f"API key {caller.name}"))
    seconds, whose = min(bounds)
    if spec.timeout_seconds <= seconds:
        return spec
    if "timeout_seconds" in spec.model_fields_set:
        raise invalid_field(
            "timeoutSeconds", f"{spec.timeout_seconds} is more than the {seconds} seconds that {whose} allows"
        )
    return spec.model_copy(update={"timeout_seconds": seconds})


def _fitted_priority(spec: CodeExecutionSpec, *, caller: Caller) -> CodeExecutionSpec:
    highest = caller.limits.max_priority
    if highest is None or spec.priority.rank >= highest.rank:
        return spec
    if "priority" in spec.model_fields_set:
        raise invalid_field("priority", f"{spec.priority} is more than the {highest} that API key {caller.name} allows")
    return spec.model_copy(update={"priority": highest})


@dataclass(frozen=True, kw_only=True)
class Submitter:
    """Writes executions, each once."""

    kube: KubeClient
    executions: Executions
    pools: Pools
    namer: Namer = field(default_factory=Namer)

    def prepare(self, spec: CodeExecutionSpec, *, caller: Caller, idempotency_key: str | None) -> Submission:
        """The manifest, under the name that the Idempotency-Key stands for, or a new one."""
        annotations = {ANNOTATION_CREATED: micro_time(now()), ANNOTATION_REQUEST: uuid.uuid4().hex}
        idempotency = None
        data = spec.to_api()
        if idempotency_key is not None:
            idempotency = idempotency_digest(namespace=caller.namespace, caller=caller.name, key=idempotency_key)
            annotations |= {ANNOTATION_IDEMPOTENCY: idempotency, ANNOTATION_DIGEST: spec_digest(data)}
        name = idempotent_name(idempotency) if idempotency else self.namer.new()
        manifest = {
            "apiVersion": API_VERSION,
            "kind": "CodeExecution",
            "metadata": {
                "name": name,
                "namespace": caller.namespace,
                "labels": {LABEL_MANAGED_BY: MANAGED_BY, LABEL_CALLER: caller.label},
                "annotations": annotations,
            },
            "spec": data,
        }
        return Submission(key=(caller.namespace, name), manifest=manifest, idempotency=idempotency)

    async def submit(self, submission: Submission, *, caller: Caller) -> Object | None:
        """The object as stored, created now or, by the same Idempotency-Key, before.

        None where another object has the name, which is then free to be chosen anew. Raises Problem where nothing was
        created, or where that is not known (503 with the execution's name).
        """
        key = submission.key
        try:
            self._check_room(submission, caller)
        except Problem:
            # a repeated request makes nothing new
            if submission.idempotency and (found := await self._find(key)) is not None:
                return self._claim(submission, found)
            raise
        self.executions.expect(key, caller.label)
        created: Object | None = None
        try:
            created = await self._create(submission)
        finally:
            if created is None:
                self.executions.forget(key)
        return created

    def _check_room(self, submission: Submission, caller: Caller) -> None:
        limit = caller.limits.max_concurrent
        if limit is not None and self.executions.under_way(caller.namespace, caller.label) >= limit:
            raise too_many(f"the API key {caller.name} has {limit} executions under way, which is all it may")
        self.pools.check_queue(caller.namespace, submission.pool)

    async def _create(self, submission: Submission) -> Object | None:
        path = custom_resource_path(EXECUTIONS, namespace=submission.key[0])
        name = submission.key[1]
        for _ in range(_ATTEMPTS):
            try:
                return await self.kube.create(path, submission.manifest)
            except ApiUnreachable as error:
                found = await self._find(submission.key)
                if found is None:
                    detail = "the API server did not answer; the execution may still come to be"
                    raise unavailable(detail, execution=name) from error
                return self._claim(submission, found)
            except ApiError as error:
                if error.code != 409:
                    raise refusal(error, namespace=submission.key[0]) from error
                # a creation that the API client repeated may have met itself
                if (found := await self._find(submission.key)) is not None:
                    return self._claim(submission, found)
        raise unavailable("the execution's name was taken and freed again and again", execution=name)

    async def _find(self, key: ObjectKey) -> Object | None:
        try:
            return await self.kube.get(custom_resource_path(EXECUTIONS, namespace=key[0], name=key[1]))
        except ApiError as error:
            if error.code == 404:
                return None
            raise unavailable("the API server does not answer", execution=key[1]) from error

    def _claim(self, submission: Submission, found: Object) -> Object | None:
        """What a submission that finds its name taken gets."""
        name = submission.key[1]
        self.executions.forget(submission.key)  # the watch shows it, or has shown it already
        if not submission.made(found):
            if submission.idempotency:
                raise Problem("conflict", 409, f"another object is named {name}, as this Idempotency-Key's would be")
            return None
        if submission.idempotency and not submission.same_spec(found):
            detail = f"the Idempotency-Key stands for execution {name}, which was created with another body"
            errors = [FieldError(field="Idempotency-Key", message="used before with another body")]
            raise Problem("key-reused", 422, detail, errors=errors, execution=name)
        return found


def refusal(error: ApiError, *, namespace: str) -> Problem:
    """The API server's refusal of a creation, told to the caller."""
    if error.code == 404:
        return unavailable(f"namespace {namespace} or the CodeExecution resource does not exist")
    if error.code == 413 or "request is too large" in error.message:
        return Problem("body-too-large", 413, "the execution is larger than the API server takes")
    if error.code == 403 and "exceeded quota" in error.message:
        return too_many(f"a quota of namespace {namespace} is used up: {error.message}", retry_after=5)
    if error.code in (400, 422) or "admission webhook" in error.message:
        causes = error.details.get("causes") or []
        errors = [
            FieldError(field=str(cause.get("field", "")).removeprefix("spec."), message=str(cause.get("message", "")))
            for cause in causes
        ]
        return Problem("refused", 422, error.message, errors=errors)
    return unavailable(f"the API server refused: {error.message or error.reason}")
