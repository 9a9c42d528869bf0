"""Operations on skills: save, find, review, delete, export."""

import asyncio
import base64
import binascii
import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ValidationError

from mcp_exec_api.code_execution import Phase
from mcp_exec_api.code_findings import CHECKED_LANGUAGES
from mcp_exec_api.constants import ANNOTATION_CALLER, DEFAULT_LANGUAGE, SKILLS, Language
from mcp_exec_api.meta import field_errors, micro_time, now
from mcp_exec_api.skill import (
    Provenance,
    ReviewDecision,
    SkillSource,
    SkillSpec,
    SkillState,
    content_digest,
    object_name,
    read_language,
)
from mcp_exec_api.wire.skills import NewApproval, NewDeprecation, NewSkill
from mcp_exec_common.broker.attestations import Attestor
from mcp_exec_common.broker.skill_proofs import build_skill, is_from_release
from mcp_exec_common.code_check.rules import find_issues
from mcp_exec_common.kube.client import KubeClient, custom_resource_path
from mcp_exec_common.kube.errors import ApiError
from mcp_exec_common.kube.objects import Object
from mcp_exec_common.skills.folder import SkillFolder, build_archive, read_archive
from mcp_exec_common.skills.interface import InvalidSkill
from mcp_exec_common.skills.languages import promote_code, read_interface
from mcp_exec_gateway.core.auth.callers import Caller, check_user
from mcp_exec_gateway.core.executions.limits import check_tools
from mcp_exec_gateway.core.executions.service import ExecutionService
from mcp_exec_gateway.core.http.problems import (
    HttpProblem,
    invalid,
    invalid_field,
    too_many,
    translate_refusal,
    unavailable,
)
from mcp_exec_gateway.features.skills.cache import SkillCache
from mcp_exec_tools.patterns import TOOL_PATTERN

_SOURCES: Final = ("code", "fromExecution", "archive")


def check_source(new: NewSkill) -> None:
    """Raise HttpProblem unless exactly one source of the code is given."""
    given = [name for name, value in zip(_SOURCES, (new.code, new.from_execution, new.archive), strict=True) if value]
    if len(given) != 1:
        raise invalid_field(
            "code", f"exactly one of {', '.join(_SOURCES)} is needed; given: {', '.join(given) or 'none'}"
        )


async def build_spec(new: NewSkill, execution: Object | None, *, language: Language) -> SkillSpec:
    """Return the spec of a new skill of a language, as version 1. A folder has a language of its own.

    Raises HttpProblem, a 422.
    Code and archives are read in a thread, because that takes longer than other requests should wait.
    """
    fields: dict[str, Any] = {
        "version": 1,
        "language": language,
        "user": new.user,
        "tags": new.tags,
        "instructions": new.instructions,
    }
    fields |= {"name": new.name or "", "description": new.description or "", "tools": new.tools or []}
    source, origin = SkillSource.CODE, {}
    try:
        if new.archive is not None:
            source = SkillSource.FOLDER
            fields |= await asyncio.to_thread(_read_folder, new.archive, new.name)
        elif execution is not None:
            source = SkillSource.EXECUTION
            names = sorted(execution["spec"].get("context") or {})
            code = execution["spec"].get("code") or ""
            fields["code"] = await asyncio.to_thread(promote_code, code, names, language)
            fields["tools"] = _list_called(execution) if new.tools is None else new.tools
            fields["user"] = execution["spec"].get("user")
            origin = {"execution": execution["metadata"]["name"], "execution_uid": execution["metadata"]["uid"]}
        else:
            fields["code"] = new.code
    except InvalidSkill as error:
        raise invalid_field("archive" if new.archive is not None else "fromExecution", str(error)) from None
    digest = "sha256:" + hashlib.sha256(fields["code"].encode("utf-8", "replace")).hexdigest()
    fields["instructions"] = fields["instructions"] or None  # Kubernetes 1.20 reads an empty text as null
    provenance = Provenance(source=source, code_digest=digest, at=now(), **origin)
    try:
        return SkillSpec.model_validate({**fields, "provenance": provenance})
    except ValidationError as error:
        raise invalid(*field_errors(error, SkillSpec)) from None


def check_execution(execution: Object, *, caller: str, label: str) -> None:
    """Raise HttpProblem if the execution is not the caller's own (`label`), or did not succeed."""
    name = execution["metadata"]["name"]
    if caller != label:
        raise HttpProblem("forbidden", 403, f"execution {name} is not one of the caller's own")
    phase = (execution.get("status") or {}).get("phase")
    if phase != Phase.SUCCEEDED:
        raise invalid_field("fromExecution", f"execution {name} is {phase or 'Pending'}; it must have Succeeded")
    if not execution["spec"].get("code"):
        raise invalid_field("fromExecution", f"execution {name} ran a skill and has no code of its own")


def _read_folder(archive: str, name: str | None) -> dict[str, Any]:
    try:
        data = base64.b64decode(archive, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidSkill("it is no base64") from None
    folder = read_archive(data)
    if name is not None and name != folder.name:
        raise InvalidSkill(f"SKILL.md has the name {folder.name[:60]!r}, and the request {name!r}")
    return dict(vars(folder))


def _list_called(execution: Object) -> list[str]:
    called = ((execution.get("status") or {}).get("toolCalls") or {}).get("byTool") or {}
    return sorted(tool for tool in called if re.fullmatch(TOOL_PATTERN, tool) and len(tool) <= 256)[:64]


MAX_DRAFTS: Final = 100
"""Drafts of one caller in one namespace."""
_MAX_ATTEMPTS: Final = 8


@dataclass(frozen=True, kw_only=True)
class SkillService:
    """Skills as the API server has them."""

    kube: KubeClient
    cache: SkillCache
    attestor: Attestor
    executions: ExecutionService
    self_approval: bool = False
    """Whether approvers may approve what they saved themselves."""
    _saving: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Drafts that are being saved, by namespace and author."""

    async def save(self, new: NewSkill, *, caller: Caller) -> Object:
        """Save a draft of the caller and return it. Raises HttpProblem."""
        check_source(new)
        execution = None
        if new.from_execution is not None:
            execution = await self.executions.find(new.from_execution, caller=caller)
            check_execution(execution, caller=self.attestor.read_caller(execution), label=caller.label)
        spec = await build_spec(new, execution, language=self._find_language(new, execution))
        check_tools(spec.tools, caller=caller)
        check_user(spec.user, caller=caller)
        with self._count_draft(caller):
            found = await asyncio.to_thread(_inspect, spec.code, spec.language)
            return await self._create(spec, found, caller=caller)

    def _find_language(self, new: NewSkill, execution: Object | None) -> Language:
        """Return the language of the code: what the request names, or that of the execution."""
        if execution is None:
            return new.language or DEFAULT_LANGUAGE
        spec, namespace = execution["spec"], execution["metadata"]["namespace"]
        pool = self.executions.pools.find(namespace, (spec.get("poolRef") or {}).get("name", ""))
        language: Language = spec.get("language") or (DEFAULT_LANGUAGE if pool is None else pool.language)
        if new.language not in (None, language):
            raise invalid_field("language", f"execution {execution['metadata']['name']} is in {language}")
        return language

    @contextmanager
    def _count_draft(self, caller: Caller) -> Iterator[None]:
        """Count a draft from its request on, so that parallel ones count. Raises HttpProblem, a 429."""
        author = (caller.namespace, caller.label)
        if self.cache.count_drafts(*author) + self._saving[author] >= MAX_DRAFTS:
            raise too_many(f"the caller has {MAX_DRAFTS} drafts; delete some, or have them approved", retry_after=60)
        self._saving[author] += 1
        try:
            yield
        finally:
            self._saving[author] -= 1
            if not self._saving[author]:
                del self._saving[author]

    def list_visible(self, caller: Caller, *, drafts_of_all: bool = False) -> list[Object]:
        """Return the versions that the caller may see: all but drafts of others, unless the caller is an approver."""
        skills = self.cache.list_all(caller.namespace)
        return [skill for skill in skills if drafts_of_all or _is_visible(skill, caller)]

    def list_versions(self, name: str, *, caller: Caller, drafts_of_all: bool = False) -> list[Object]:
        """Return the versions of a skill that the caller may see, newest first. Raises HttpProblem, a 404, if none."""
        skills = self.list_visible(caller, drafts_of_all=drafts_of_all)
        if found := [skill for skill in skills if skill["spec"]["name"] == name]:
            return found
        raise _not_found(caller, name[:50])

    async def find(self, name: str, version: int, *, caller: Caller, drafts_of_all: bool = False) -> Object:
        """Return a version with its code. Raises HttpProblem, a 404, if the caller may not see it."""
        path = self._path(caller, name, version)
        stored = await self.kube.find(path)
        skill = stored and {**stored, "status": self.cache.read_status(stored)}
        if skill is None or not (drafts_of_all or _is_visible(skill, caller)):
            raise _not_found(caller, object_name(name, version))
        return skill

    async def review(
        self, name: str, version: int, decision: ReviewDecision, new: NewApproval | NewDeprecation, *, caller: Caller
    ) -> Object:
        """Write the decision of an approver, and return the version. Raises HttpProblem."""
        for _ in range(_MAX_ATTEMPTS):
            skill = await self.find(name, version, caller=caller, drafts_of_all=True)
            digest = content_digest(skill["spec"])
            if new.digest is not None and new.digest != digest:
                raise HttpProblem("conflict", 409, f"digest: version {version} has another content, {digest}")
            if decision is ReviewDecision.APPROVE:
                self._check_author(skill, caller)
                _check_code(skill["spec"]["code"], read_language(skill["spec"]))
            review = {"decision": str(decision), "by": caller.name[:253], "at": micro_time(now())}
            review |= {"comment": new.comment} if new.comment else {}
            review["proof"] = self.attestor.sign_review(review, uid=skill["metadata"]["uid"], digest=digest)
            # with the version that was read, the second of two concurrent decisions gets a 409 and reads again
            metadata = {"resourceVersion": skill["metadata"]["resourceVersion"]}
            patch = {"metadata": metadata, "spec": {"review": {"comment": None, **review}}}
            try:
                stored = await self.kube.patch(self._path(caller, name, version), patch)
            except ApiError as error:
                if error.code != 409:
                    raise
                continue
            self.cache.on_change(stored, False)
            return {**stored, "status": self.cache.read_status(stored)}
        raise unavailable(f"the skill changed during each of {_MAX_ATTEMPTS} attempts")

    async def delete(self, skill: Object) -> None:
        """Delete a version that was found."""
        meta = skill["metadata"]
        path = custom_resource_path(SKILLS, namespace=meta["namespace"], name=meta["name"])
        await self.kube.delete(path, uid=meta["uid"])
        self.cache.on_change(skill, True)

    @staticmethod
    def is_own_draft(skill: Object, caller: Caller) -> bool:
        """Return whether a skill that was found is a draft of the caller's own."""
        status = skill["status"]
        return bool(status["state"] == SkillState.DRAFT and status.get("author") == caller.label)

    @staticmethod
    def export(skill: Object) -> bytes:
        """Return a version's folder as a tar archive."""
        return build_archive(SkillFolder.from_spec(skill["spec"]), version=skill["spec"]["version"])

    async def _create(self, spec: SkillSpec, found: Object, *, caller: Caller) -> Object:
        first = self.cache.next_version(caller.namespace, spec.name)
        for number in range(_MAX_ATTEMPTS):
            numbered = spec.model_copy(update={"version": first + number})
            manifest = build_skill(
                numbered, namespace=caller.namespace, author=caller.label, attestor=self.attestor, moment=now()
            )
            manifest["metadata"]["annotations"][ANNOTATION_CALLER] = caller.name
            try:
                skill = await self.kube.create(custom_resource_path(SKILLS, namespace=caller.namespace), manifest)
            except ApiError as error:
                if error.code != 409:
                    raise translate_refusal(error, kind="Skill", namespace=caller.namespace) from error
                continue
            self.cache.on_change(skill, False)
            return {**skill, "status": {**self.cache.read_status(skill), **found}}
        raise unavailable(f"{_MAX_ATTEMPTS} versions in a row were taken")

    def _check_author(self, skill: Object, caller: Caller) -> None:
        """Raise HttpProblem, a 403, if the caller saved the skill, or may have: nobody approves what is their own."""
        author, name = skill["status"].get("author") or "", skill["metadata"]["name"]
        if self.self_approval:
            return
        rule = "(the chart's value skills.selfApproval lifts this rule)"
        if author == caller.label:
            detail = f"{caller.label} saved {name}, so another approver must approve it {rule}"
            raise HttpProblem("forbidden", 403, detail)
        if not is_from_release(author):
            detail = f"nobody knows who wrote {name}, so nobody may approve it: save it through the gateway {rule}"
            raise HttpProblem("forbidden", 403, detail)

    @staticmethod
    def _path(caller: Caller, name: str, version: int) -> str:
        try:
            return custom_resource_path(SKILLS, namespace=caller.namespace, name=object_name(name, version))
        except ApiError as error:
            raise _not_found(caller, object_name(name[:50], version)) from error


def _is_visible(skill: Object, caller: Caller) -> bool:
    return skill["status"]["state"] != SkillState.DRAFT or SkillService.is_own_draft(skill, caller)


def _check_code(code: str, language: Language) -> None:
    try:
        read_interface(code, language)
    except InvalidSkill as error:
        raise invalid_field("code", str(error)) from None


def _inspect(code: str, language: Language) -> Object:
    """Return what the operator will write of the code. Raises HttpProblem if it is no skill's."""
    try:
        interface = read_interface(code, language)
    except InvalidSkill as error:
        raise invalid_field("code", str(error)) from None
    findings = find_issues(code) if language in CHECKED_LANGUAGES else []
    return {"parameters": interface.parameters, "codeFindings": [each.to_api() for each in findings]}


def _not_found(caller: Caller, name: str) -> HttpProblem:
    return HttpProblem("not-found", 404, f"there is no skill {name} in namespace {caller.namespace}")
