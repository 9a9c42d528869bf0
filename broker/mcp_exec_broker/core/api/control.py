"""The control port: requests of operator and gateway, health, metrics. Sandboxes cannot reach it."""

import secrets
from collections.abc import Collection, Container
from dataclasses import dataclass, field

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from mcp_exec_api.constants import DEFAULT_LANGUAGE, LANGUAGES, find_language
from mcp_exec_broker.core.access.approvals import Approvals
from mcp_exec_broker.core.access.quotas import ExecutionQuotas, WaitingTime
from mcp_exec_broker.core.api.calls import CallsApi
from mcp_exec_broker.core.api.catalogs import NamespaceCatalogs
from mcp_exec_broker.core.api.health import BrokerHealth
from mcp_exec_broker.core.calls.denials import DenialCounter
from mcp_exec_broker.core.feature import Feature, Handler
from mcp_exec_broker.metrics import Metrics
from mcp_exec_common.broker.client import MAX_PENDING_APPROVALS, ApprovalWait, ExecutionCalls, PendingApprovals
from mcp_exec_common.broker.grants import MAX_GRANT_SECONDS, GrantError, GrantSigner
from mcp_exec_common.peers import PROOF_PATH, broker_key, compute_proof, is_nonce, normalize_address


@dataclass(kw_only=True, eq=False)
class ControlApi:
    """The routes of the control port."""

    signer: GrantSigner
    namespaces: Container[str]
    health: BrokerHealth
    catalogs: NamespaceCatalogs
    direct_calls: CallsApi
    quotas: ExecutionQuotas
    approvals: Approvals
    denials: DenialCounter
    features: Collection[Feature]
    metrics: Metrics
    serves_metrics: bool = True
    process: str = field(default_factory=lambda: secrets.token_hex(8))
    """Random id of this process. Measures of other ones are from before a restart."""

    def build_app(self) -> Starlette:
        """Return the ASGI application."""
        return Starlette(
            routes=[
                Route(self.direct_calls.path, self.direct_calls),  # first, because routes are compared in their order
                Route("/healthz", self._get_liveness),
                Route("/readyz", self._get_readiness),
                *([Route("/metrics", self._get_metrics)] if self.serves_metrics else []),
                Route(PROOF_PATH, self._prove),
                Route("/v1/executions/{uid}", self._authenticate(self._handle_execution), methods=["GET", "DELETE"]),
                Route("/v1/namespaces/{namespace}/catalog", self._authenticate(self._get_catalog)),
                Route("/v1/namespaces/{namespace}/wrappers", self._authenticate(self._get_wrappers)),
                Route("/v1/namespaces/{namespace}/approvals", self._authenticate(self._get_approvals)),
                *(route for feature in self.features for route in feature.build_routes(self._authenticate)),
            ]
        )

    async def _get_liveness(self, request: Request) -> Response:
        return self.health.report_liveness()

    async def _get_readiness(self, request: Request) -> Response:
        return self.health.report_readiness()

    async def _get_metrics(self, request: Request) -> Response:
        return Response(generate_latest(self.metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _prove(self, request: Request) -> Response:
        """Prove to a client that this is the broker, before it sends its token."""
        nonce = request.query_params.get("nonce", "")
        if request.client is None or not is_nonce(nonce):
            return PlainTextResponse("nonce: must be 64 lower-case hexadecimal digits\n", 400)
        address = normalize_address(request.client.host)
        proof = compute_proof(key=broker_key(self.signer.keys.signing), nonce=nonce, address=address)
        return JSONResponse({"proof": proof, "address": address})

    def _authenticate(self, handler: Handler) -> Handler:
        async def authenticated(request: Request) -> Response:
            scheme, _, token = request.headers.get("authorization", "").partition(" ")
            try:
                if scheme.lower() != "bearer":
                    raise GrantError("the request has no service token: send Authorization: Bearer TOKEN")
                self.signer.read_service_token(token)
            except GrantError as error:
                return PlainTextResponse(f"{error}\n", 401, headers={"WWW-Authenticate": "Bearer"})
            return await handler(request)

        return authenticated

    async def _handle_execution(self, request: Request) -> Response:
        """Return the calls and approvals of an execution; DELETE closes it first."""
        uid = request.path_params["uid"]
        if request.method == "DELETE":
            try:
                grant_seconds = _read_grant_seconds(request)
            except ValueError as error:
                return PlainTextResponse(f"{error}\n", 400)
            self._measure_execution(uid)
            self.quotas.close_execution(uid, grant_seconds=grant_seconds)
            self.approvals.close_execution(uid)
            for feature in self.features:
                await feature.close_execution(uid, grant_seconds=grant_seconds)
            await self.denials.write_counts(uid)
        quota = self.quotas.find(uid)
        calls = ExecutionCalls(approvals=self.approvals.list_approvals(uid))
        if quota is not None:
            waits = self._measure_waits(quota.waiting)
            calls = calls.model_copy(update={"tool_calls": quota.tool_calls, "waits": waits})
        return JSONResponse(calls.to_api())

    def _measure_execution(self, uid: str) -> None:
        """Count what an execution has called, once: its grant is dropped with its end."""
        quota = self.quotas.find(uid)
        if quota is not None and quota.grant is not None:
            self.metrics.record_execution(quota.grant.namespace, quota.servers, calls=quota.tool_calls.total)

    def _measure_waits(self, waiting: WaitingTime) -> list[ApprovalWait]:
        waited, remaining = waiting.seconds, waiting.remaining_seconds
        if not waited and not remaining:
            return []
        return [ApprovalWait(process=self.process, waited_seconds=waited, remaining_seconds=remaining)]

    async def _get_catalog(self, request: Request) -> Response:
        namespace = request.path_params["namespace"]
        if namespace not in self.namespaces:
            return _refuse_namespace(namespace)
        return JSONResponse(self.catalogs.describe(namespace))

    async def _get_wrappers(self, request: Request) -> Response:
        namespace = request.path_params["namespace"]
        if namespace not in self.namespaces:
            return _refuse_namespace(namespace)
        known, given = request.query_params.get("hash"), request.query_params.get("language", DEFAULT_LANGUAGE)
        language = find_language(given)
        if language is None:
            return PlainTextResponse(f"language: {given[:100]!r} is not one of {', '.join(LANGUAGES)}\n", 422)
        body = await self.catalogs.build_wrappers(namespace, language=language, known=known)
        return Response(body, media_type="application/json")

    async def _get_approvals(self, request: Request) -> Response:
        """Return the calls of a namespace, or of one caller there, that wait for an approval."""
        namespace = request.path_params["namespace"]
        if namespace not in self.namespaces:
            return _refuse_namespace(namespace)
        caller = request.query_params.get("caller")
        pending = self.approvals.list_pending(namespace, caller=caller, limit=MAX_PENDING_APPROVALS)
        return JSONResponse(PendingApprovals(items=pending).to_api())


def _read_grant_seconds(request: Request) -> int:
    """Return how long a grant may still be valid; the longest time if nobody says it. Raises ValueError."""
    text = request.query_params.get("grantSeconds", str(MAX_GRANT_SECONDS))
    if not (text.isascii() and text.isdigit() and len(text) < 8 and int(text) <= MAX_GRANT_SECONDS):
        raise ValueError(f"grantSeconds: must be an integer from 0 to {MAX_GRANT_SECONDS}")
    return int(text)


def _refuse_namespace(namespace: str) -> Response:
    return PlainTextResponse(f"this broker does not serve namespace {namespace[:100]!r}\n", 404)
