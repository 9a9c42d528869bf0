"""Registration of skills, with examples of their bodies."""

from typing import Any, Final

from mcp_exec_gateway.core.dependencies import Dependencies, Feature
from mcp_exec_gateway.core.openapi import Examples, show
from mcp_exec_gateway.features.skills.cache import SkillCache
from mcp_exec_gateway.features.skills.routes import router
from mcp_exec_gateway.features.skills.service import SkillService
from mcp_exec_gateway.features.tools.service import Tools

_SKILL: Final[dict[str, Any]] = {
    "name": "profile-table",
    "version": 2,
    "namespace": "agents",
    "description": "Profile a table of rows.",
    "state": "Approved",
    "import": "from skills.profile_table_v2 import run",
    "author": "team-a",
    "tools": [],
    "tags": ["statistics"],
    "parameters": {"type": "object", "properties": {"rows": {"type": "array"}}, "required": ["rows"]},
    "digest": "sha256:0f343b0931126a20f133d67c2b018a3b5e4c3f2a1e2d3c4b5a69788796a5b4c3",
    "reviewedBy": "release-team",
    "reviewedAt": "2026-11-21T20:00:01.000000Z",
    "uses": 12,
    "successes": 11,
    "lastUsedAt": "2026-11-21T21:00:01.000000Z",
}
"""An approved version of a skill."""
_EXAMPLES: Final[Examples] = {
    "NewSkill": show(
        code={"name": "profile-table", "description": "Profile a table of rows.", "code": "def run(rows): ..."},
    ),
    "NewApproval": show(read={"digest": _SKILL["digest"], "comment": "read and tried"}),
    "NewDeprecation": show(replaced={"comment": "version 2 replaces it"}),
    "Skill": show(approved={**_SKILL, "code": "def run(rows): ..."}),
    "Skill 201": show(draft={**_SKILL, "state": "Draft", "uses": 0, "successes": 0}),
    "SkillList": show(one={"items": [_SKILL]}),
}


def build(core: Dependencies) -> None:
    """Build the skills, which searches for tools find too."""
    cache = SkillCache(attestor=core.attestor)
    core.add(
        SkillService(
            kube=core.kube,
            cache=cache,
            attestor=core.attestor,
            executions=core.executions,
            self_approval=core.settings.skill_self_approval,
        )
    )
    core.extensions.caches["skills"] = cache
    if (tools := core.find(Tools)) is not None:
        tools.catalogs.skills = cache.get_catalogs


SKILLS: Final = Feature(build=build, routers=(router,), examples=_EXAMPLES)
