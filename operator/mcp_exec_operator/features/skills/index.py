"""The skills of all namespaces in memory, without their code, and requests about skills to the API server."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Self

from pydantic import ValidationError

from mcp_exec_api.constants import Language
from mcp_exec_api.files import Owner
from mcp_exec_api.meta import explain_errors
from mcp_exec_api.skill import SkillSource, SkillSpec, SkillState, first_free, module_name, object_name, read_language
from mcp_exec_common.broker.attestations import Attestor, drop_claim
from mcp_exec_common.broker.skill_proofs import LatestReviews, SkillReading, is_numbered_here
from mcp_exec_common.kube.objects import Object
from mcp_exec_operator.cluster.kube.observations import DeletedUids, is_older

MAX_CATALOG: Final = 200
"""Skills that code can search."""
_MAX_CATALOG_BYTES: Final = 256 * 1024


@dataclass(frozen=True, kw_only=True)
class SkillEntry:
    """One version of a skill."""

    namespace: str
    object: str
    """Name of its object."""
    uid: str
    revision: str
    """Resource version of the object."""
    name: str
    version: int
    description: str
    language: Language
    tools: tuple[str, ...]
    owner: Owner
    """Whose draft it is, as long as it is one."""
    reading: SkillReading
    status: Object
    """The newest status."""
    saved_by: tuple[str, str]
    """Uid of the execution that it comes from and digest of its code."""
    is_saved_by_code: bool
    """Whether code in a sandbox saved it. Else a client did, through the gateway."""
    problem: str = ""
    """Why nothing can use it; empty if it can be used."""

    @classmethod
    def from_object(cls, body: Object, *, reviews: LatestReviews) -> Self:
        """Read a skill's object, whoever wrote it."""
        meta, spec = body["metadata"], body.get("spec") or {}
        status = body.get("status") or {}
        reading = reviews.read(body)
        provenance = spec.get("provenance") or {}
        execution = str(provenance.get("executionUid") or "")
        return cls(
            namespace=meta["namespace"],
            object=meta["name"],
            uid=meta["uid"],
            revision=str(meta["resourceVersion"]),
            name=str(spec.get("name")),
            version=int(spec.get("version") or 0),
            description=str(spec.get("description")),
            language=read_language(spec),
            tools=tuple(map(str, spec.get("tools") or ())),
            owner=Owner(
                namespace=meta["namespace"], caller=drop_claim(reading.author), user=str(spec.get("user") or "")
            ),
            reading=reading,
            status=status,
            saved_by=(execution, str(provenance.get("codeDigest") or "")),
            is_saved_by_code=bool(execution) and provenance.get("source") == SkillSource.CODE,
            problem=_find_problem(body) or _find_change(status, reading),
        )

    @property
    def state(self) -> SkillState:
        """State of the version."""
        return self.reading.state

    @property
    def is_valid(self) -> bool:
        """Whether it can be used, as far as the operator has looked at it."""
        conditions = self.status.get("conditions") or ()
        return not self.problem and not any(
            condition.get("type") == "Valid" and condition.get("status") == "False" for condition in conditions
        )

    def is_draft_of(self, owner: Owner) -> bool:
        """Return whether it is a draft of this owner. Nobody has drafts."""
        return self.state is SkillState.DRAFT and self.owner.same_as(owner)

    def to_catalog(self) -> Object:
        """Return it as an entry of a search."""
        schema = self.status.get("parameters") or {"type": "object"}
        return {"name": module_name(self.name), "description": self.description, "inputSchema": schema}


@dataclass(kw_only=True, eq=False)
class SkillIndex:
    """Skills by namespace and name."""

    attestor: Attestor
    synced: dict[str, asyncio.Event] = field(default_factory=dict)
    """By namespace, set when its skills are known."""
    _versions: dict[tuple[str, str], dict[int, SkillEntry]] = field(default_factory=dict)
    _objects: dict[tuple[str, str], SkillEntry] = field(default_factory=dict)
    _deleted: DeletedUids = field(default_factory=DeletedUids)
    _reviews: LatestReviews = field(init=False)
    _catalogs: dict[str, dict[Language, list[Object]]] = field(default_factory=dict)
    """By namespace and language, until a skill changes. Searches are frequent, and a catalog takes milliseconds."""

    def __post_init__(self) -> None:
        self._reviews = LatestReviews(attestor=self.attestor)

    def observe(self, body: Object, *, deleted: bool) -> SkillEntry | None:
        """Take in an object of a watch or of an answer, which may be older. Return its entry unless it was deleted."""
        meta = body["metadata"]
        key = (meta["namespace"], meta["name"])
        known = self._objects.get(key)
        is_same = known is not None and known.uid == meta["uid"]
        if deleted:
            self._deleted.add(meta["uid"])
            self._reviews.forget(meta["uid"])
            if not is_same:
                return known
        elif meta["uid"] in self._deleted:
            return None
        elif known is not None and is_same and is_older(str(meta["resourceVersion"]), known.revision):
            return known
        self._objects.pop(key, None)
        self._catalogs.pop(key[0], None)
        if known is not None:
            versions = self._versions.get((known.namespace, known.name), {})
            versions.pop(known.version, None)
            if not versions:
                self._versions.pop((known.namespace, known.name), None)
        if deleted:
            return None
        entry = SkillEntry.from_object(body, reviews=self._reviews)
        self._objects[key] = entry
        if not entry.problem:
            self._versions.setdefault((entry.namespace, entry.name), {})[entry.version] = entry
        return entry

    def clear(self) -> None:
        """Forget all skills, until they are read again: what proved them may not be accepted any more."""
        for synced in self.synced.values():
            synced.clear()
        for known in (self._objects, self._versions, self._catalogs):
            known.clear()

    def get(self, namespace: str, name: str) -> SkillEntry | None:
        """Return the entry of an object."""
        return self._objects.get((namespace, name))

    def find(self, name: str, version: int | None, *, owner: Owner, language: Language) -> SkillEntry | None:
        """Return the version that an execution of this owner and language may use in its namespace, or None.

        Without a version it is the newest approved one, else the newest draft of the owner's own that a client saved,
        else the newest that code saved: code does not replace what its owner wrote.
        """
        versions = self._list(owner.namespace, name)
        entries = [entry for entry in versions if entry.is_valid and entry.language == language]
        if version is not None:
            allowed = (SkillState.APPROVED, SkillState.DEPRECATED)
            entries = [entry for entry in entries if entry.version == version]
            return next((entry for entry in entries if entry.state in allowed or entry.is_draft_of(owner)), None)
        approved = [entry for entry in entries if entry.state is SkillState.APPROVED]
        own = [entry for entry in entries if entry.is_draft_of(owner)]
        by_client = [entry for entry in own if not entry.is_saved_by_code]
        return next((found[-1] for found in (approved, by_client, own) if found), None)

    def list_catalog(self, namespace: str, language: Language) -> list[Object]:
        """Return the newest approved version of each skill of a language as an entry of a search, by name."""
        catalogs = self._catalogs.setdefault(namespace, {})
        if language not in catalogs:
            catalogs[language] = self._build_catalog(namespace, language)
        return catalogs[language]

    def _build_catalog(self, namespace: str, language: Language) -> list[Object]:
        names = sorted(name for space, name in self._versions if space == namespace)
        owner = Owner(namespace=namespace)
        entries = (self.find(name, None, owner=owner, language=language) for name in names)
        catalog: list[Object] = []
        left = _MAX_CATALOG_BYTES
        for entry in (entry for entry in entries if entry is not None):
            item = entry.to_catalog()
            left -= len(json.dumps(item))
            if left < 0 or len(catalog) == MAX_CATALOG:
                break
            catalog.append(item)
        return catalog

    def list_versions(self, namespace: str, name: str) -> list[SkillEntry]:
        """Return all versions of a skill, oldest first."""
        return list(self._list(namespace, name))

    def list_shipped(self, namespace: str) -> list[SkillEntry]:
        """Return all versions of all skills that a release brought."""
        return [entry for entry in self._objects.values() if entry.namespace == namespace and entry.reading.is_shipped]

    def next_version(self, namespace: str, name: str) -> int:
        """Return the first free version after the newest that a caller, the release or an approver stands for.

        Others could block the name by an object with the highest number.
        """
        entries = {entry.version: entry.reading for entry in self._list(namespace, name)}
        numbered = [number for number, each in entries.items() if is_numbered_here(each.state, each.author)]
        return first_free(entries, numbered)

    def count_drafts(self, namespace: str, author: str) -> int:
        """Return the number of an author's drafts."""
        return sum(
            entry.namespace == namespace and entry.state is SkillState.DRAFT and entry.reading.author == author
            for entry in self._objects.values()
        )

    def find_saved(self, namespace: str, name: str, saved_by: tuple[str, str]) -> SkillEntry | None:
        """Return the skill that an execution has saved with this code already, or None."""
        return next((entry for entry in self._list(namespace, name) if entry.saved_by == saved_by), None)

    def _list(self, namespace: str, name: str) -> Iterator[SkillEntry]:
        """Yield the versions of a skill, oldest first."""
        versions = self._versions.get((namespace, name), {})
        return (versions[number] for number in sorted(versions))


def _find_problem(body: Object) -> str:
    try:
        spec = SkillSpec.model_validate(body.get("spec"))
    except ValidationError as error:
        return explain_errors(error, SkillSpec, place="spec")
    if body["metadata"]["name"] != (name := object_name(spec.name, spec.version)):
        return f"the object of version {spec.version} of skill {spec.name} must have the name {name}"
    return ""


def _find_change(status: Object, reading: SkillReading) -> str:
    recorded = status.get("digest")
    return "" if recorded in (None, reading.digest) else "the spec was changed after creation; save another version"
