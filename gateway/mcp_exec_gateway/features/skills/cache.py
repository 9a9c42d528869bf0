"""Skills of the served namespaces without their code, kept current by watches."""

from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from mcp_exec_api.constants import SKILLS, Language
from mcp_exec_api.skill import SkillState, first_free, format_import, module_name, read_language
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.broker.skill_proofs import is_numbered_here, read_skill
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.kube.reflector import Reflector
from mcp_exec_common.skills.folder import SkillFolder, digest_files
from mcp_exec_tools.catalog import Catalog
from mcp_exec_tools.search.index import MAX_LIMIT, Index

_DROPPED = ("code", "instructions")
_MAX_INDEXES: Final = 8
_PROBLEMS: Final = ("Valid", "Proven")
"""Conditions that are problems if they are false."""


@dataclass(kw_only=True)
class SkillCache:
    """Skills by namespace and object name. The reflectors call `on_change`."""

    attestor: Attestor
    _skills: dict[str, dict[str, Object]] = field(default_factory=dict, init=False)
    _versions: dict[str, int] = field(default_factory=dict, init=False)
    _indexes: dict[tuple[object, ...], Index] = field(default_factory=dict, init=False)
    """By what they contain, the least recently used first. Callers with drafts have their own."""
    _lock: Lock = field(default_factory=Lock, init=False)
    """Guards `_indexes`: searches run in threads."""

    def build_reflector(self, *, kube: KubeClient, namespace: str) -> Reflector:
        """Build the reflector of one namespace's skills."""
        path = custom_resource_path(SKILLS, namespace=namespace)
        reflector = Reflector(kube=kube, path=path, on_change=self.on_change, transform=_strip)
        self.attestor.keys.withdrawn.connect(reflector.relist)
        return reflector

    def on_change(self, skill: Object, deleted: bool) -> None:
        """Observe one change."""
        namespace, name = skill["metadata"]["namespace"], skill["metadata"]["name"]
        self._versions[namespace] = self._versions.get(namespace, 0) + 1
        skills = self._skills.setdefault(namespace, {})
        if deleted:
            skills.pop(name, None)
        else:
            skills[name] = self.reduce(skill)

    def reduce(self, skill: Object) -> Object:
        """Return a skill without code and instructions, and with the state that holds now.

        An approved one has `files`: digest and size of the files of its folder.
        """
        whole, status = skill.get("spec") or {}, self.read_status(skill)
        spec = {name: value for name, value in whole.items() if name not in _DROPPED}
        is_approved = status["state"] == SkillState.APPROVED
        files = digest_files(SkillFolder.from_spec(whole), version=whole["version"]) if is_approved else {}
        return {**skill, "spec": spec, "status": status, "files": files}

    def list_newest(self, namespace: str) -> list[Object]:
        """Return the newest approved version of each skill of a namespace, by name."""
        skills = reversed(self.list_all(namespace))
        approved = [skill for skill in skills if skill["status"]["state"] == SkillState.APPROVED]
        newest = {skill["spec"]["name"]: skill for skill in approved}
        return [newest[name] for name in sorted(newest)]

    def read_status(self, skill: Object) -> Object:
        """Return the status with the state by the review, which the operator writes a moment later."""
        status = skill.get("status") or {}
        reading = read_skill(skill, attestor=self.attestor)
        is_older = reading.state is SkillState.DRAFT and status.get("digest") == reading.digest
        state = str(status.get("state") or reading.state) if is_older else str(reading.state)
        reviewed = {"reviewedBy": reading.reviewed_by, "reviewedAt": reading.reviewed_at}
        fields = {"state": state, "author": reading.author, "digest": reading.digest, **reviewed}
        return {**status, **{name: value for name, value in fields.items() if value}}

    def list_all(self, namespace: str) -> list[Object]:
        """Return all versions of all skills of a namespace, by name and newest version first."""
        skills = self._skills.get(namespace, {}).values()
        return sorted(skills, key=lambda skill: (str(skill["spec"].get("name")), -int(skill["spec"].get("version", 0))))

    def count_drafts(self, namespace: str, author: str) -> int:
        """Return the number of an author's drafts."""
        statuses = (skill["status"] for skill in self._skills.get(namespace, {}).values())
        return sum(status["state"] == SkillState.DRAFT and status.get("author") == author for status in statuses)

    def next_version(self, namespace: str, name: str) -> int:
        """Return the first free version after the newest that a caller, the release or an approver stands for."""
        skills = [skill for skill in self.list_all(namespace) if skill["spec"].get("name") == name]
        versions = {int(skill["spec"].get("version", 0)): skill["status"] for skill in skills}
        numbered = [
            each for each, status in versions.items() if is_numbered_here(status["state"], status.get("author", ""))
        ]
        return first_free(versions, numbered)

    def search(self, skills: list[Object], query: str) -> list[Object]:
        """Return those of the skills that match a query, best first."""
        by_module = {module_name(skill["spec"]["name"], skill["spec"]["version"]): skill for skill in skills}
        index = self._get_index(by_module)
        return [by_module[found["name"]] for found in index.search(query, limit=MAX_LIMIT)]

    def _get_index(self, by_module: dict[str, Object]) -> Index:
        """Return the index of these skills, an earlier one if they are the same: it takes 0.1 ms for each of them."""
        key = tuple((name, _identify(skill)) for name, skill in by_module.items())
        with self._lock:
            index = self._indexes.pop(key, None)
        if index is None:
            index = Index([Catalog.from_skills(_build_entry(name, skill) for name, skill in by_module.items())])
        with self._lock:
            self._indexes[key] = index
            while len(self._indexes) > _MAX_INDEXES:
                del self._indexes[next(iter(self._indexes))]
        return index

    def get_catalogs(self, namespace: str) -> tuple[int, dict[Language, Catalog]]:
        """Return the approved skills for searches, by language, and a number that changes with them."""
        entries: dict[Language, list[Object]] = {}
        for skill in self.list_all(namespace):
            if skill["status"]["state"] == SkillState.APPROVED:
                entry = _build_entry(module_name(skill["spec"]["name"]), skill)
                entries.setdefault(read_language(skill["spec"]), []).append(entry)
        catalogs = {language: Catalog.from_skills(found) for language, found in entries.items()}
        return self._versions.get(namespace, 0), catalogs


def _build_entry(module: str, skill: Object) -> Object:
    spec = skill["spec"]
    schema = skill["status"].get("parameters") or {"type": "object"}
    tags = ", ".join(spec.get("tags") or ())
    return {
        "name": module,
        "description": f"{spec['description']} ({tags})" if tags else spec["description"],
        "inputSchema": schema,
    }


def _identify(skill: Object) -> tuple[object, ...]:
    """Return what changes if the entry of a search does: a spec is immutable, and the status gets parameters once."""
    return skill["metadata"].get("uid"), skill["status"].get("digest"), "parameters" in skill["status"]


def _strip(skill: Object) -> Object:
    metadata = skill["metadata"]
    return {"metadata": {name: metadata.get(name, "") for name in ("namespace", "name")}}


def build_view(skill: Object) -> Object:
    """Return a skill, with the status that `SkillCache.read_status` returned, as responses show it."""
    spec, status = skill["spec"], skill["status"]
    conditions = status.get("conditions") or ()
    problem = next(
        (each.get("message") for each in conditions if each["type"] in _PROBLEMS and each["status"] == "False"), None
    )
    fields = {
        "name": spec["name"],
        "version": spec["version"],
        "namespace": skill["metadata"]["namespace"],
        "description": spec["description"],
        "language": read_language(spec),
        "import": format_import(spec["name"], spec["version"], read_language(spec)),
        "user": spec.get("user"),
        "tools": spec.get("tools") or [],
        "tags": spec.get("tags") or [],
        "uses": status.get("uses") or 0,
        "successes": status.get("successes") or 0,
        "problem": problem,
        "provenance": spec.get("provenance"),
        "code": spec.get("code"),
        "instructions": spec.get("instructions"),
    }
    shown = ("state", "author", "parameters", "digest", "reviewedBy", "reviewedAt", "lastUsedAt", "codeFindings")
    fields |= {name: status.get(name) for name in shown}
    return {name: value for name, value in fields.items() if value is not None}
