"""Registration of skills."""

from typing import Final

from mcp_exec_gateway.core.dependencies import Dependencies, Feature
from mcp_exec_gateway.features.skills.cache import SkillCache
from mcp_exec_gateway.features.skills.examples import EXAMPLES
from mcp_exec_gateway.features.skills.routes import router
from mcp_exec_gateway.features.skills.service import SkillService
from mcp_exec_gateway.features.tools.service import Tools


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
        tools.catalogs.skills = cache.get_catalog


SKILLS: Final = Feature(build=build, routers=(router,), examples=EXAMPLES)
