"""CustomResourceDefinitions of the cluster, which the operator upgrades to those of its own version when it starts.

Helm installs the chart's `crds/` and never changes them again. A release whose templates contain pools cannot have the
definitions in its templates, too: Helm resolves the kinds of all objects before it creates the first one.
"""

import asyncio
import logging
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

from mcp_exec_api.constants import ANNOTATION_RELEASE_VERSION
from mcp_exec_api.crd_schema import SELECTABLE, build_definitions
from mcp_exec_api.wire.version import RELEASE
from mcp_exec_common.kube.client import KubeClient, resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.cluster.preflight import CannotStart

log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0
_VERSION: Final = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})(?:-([0-9A-Za-z.-]{1,64}))?")


@dataclass(frozen=True, kw_only=True)
class Definitions:
    """The definitions of this operator's version, and those of the cluster.

    Several operators, also of several releases, may upgrade them at once: a write names the version that was read, and
    no operator replaces what a newer one wrote.
    """

    kube: KubeClient
    wait_seconds: float
    """Seconds to wait for an API server that does not accept them."""
    version: str = RELEASE
    definitions: list[Object] = field(default_factory=lambda: list(build_definitions().values()))

    async def upgrade(self) -> None:
        """Create or replace the definitions that differ. Raises CannotStart if the API server accepts one too late."""
        deadline = monotonic() + self.wait_seconds
        for definition in self.definitions:
            while True:
                try:
                    await self._upgrade(definition)
                    break
                except ApiError as error:
                    name = definition["metadata"]["name"]
                    if monotonic() >= deadline:
                        raise CannotStart(f"the CustomResourceDefinition {name} can't be upgraded: {error}") from error
                    log.warning("the CustomResourceDefinition %s can't be upgraded yet: %s", name, error)
                    await asyncio.sleep(_RETRY_SECONDS)

    async def _upgrade(self, definition: Object) -> None:
        name = definition["metadata"]["name"]
        stored = await self.kube.find(_path(name))
        if stored is None:
            await self.kube.create(_path(), self._mark(definition))
            log.info("the CustomResourceDefinition %s is created", name)
            return
        written = (stored["metadata"].get("annotations") or {}).get(ANNOTATION_RELEASE_VERSION, "")
        if _order(written) > _order(self.version):
            log.info("the CustomResourceDefinition %s is of the newer version %s", name, written)
        elif written != self.version or not _contains(stored["spec"], definition["spec"], dropped={SELECTABLE}):
            try:
                # a whole spec: a patch would keep what the new one lacks
                await self.kube.replace(_path(name), self._mark(stored | {"spec": definition["spec"]}))
            except ApiError as error:
                if error.code != 403 or not _contains(stored["spec"], definition["spec"], dropped={SELECTABLE}):
                    raise
                # the admission policy allows the mark of the chart's version only, and the image may be of another one
                log.info("the CustomResourceDefinition %s keeps the mark %s", name, written or "of no version")
            else:
                log.info("the CustomResourceDefinition %s is upgraded", name)

    def _mark(self, definition: Object) -> Object:
        metadata = definition["metadata"]
        annotations = (metadata.get("annotations") or {}) | {ANNOTATION_RELEASE_VERSION: self.version}
        return definition | {"metadata": metadata | {"annotations": annotations}}


def _path(name: str | None = None) -> str:
    return resource_path("customresourcedefinitions", name=name, group="apiextensions.k8s.io/v1")


def _contains(stored: Any, wanted: Any, *, dropped: Collection[str]) -> bool:
    """Return whether a stored value is the wanted one. The API server may have added defaults to it.

    An earlier API server may have dropped fields with the names `dropped`.
    """
    if isinstance(wanted, dict):
        return isinstance(stored, dict) and all(
            _contains(stored[key], value, dropped=dropped) if key in stored else key in dropped
            for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(stored, list)
            and len(stored) == len(wanted)
            and all(_contains(one, other, dropped=dropped) for one, other in zip(stored, wanted, strict=True))
        )
    return bool(stored == wanted)


def _order(version: str) -> tuple[Any, ...]:
    """Return a key that sorts versions as Semantic Versioning does. A text that is none comes first."""
    match = _VERSION.fullmatch(version.partition("+")[0])
    if match is None:
        return ()
    *numbers, label = match.groups()
    parts = [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in (label or "").split(".")]
    return (*map(int, numbers), label is None, parts)
