"""The language of an execution, which must be that of its pool."""

from dataclasses import dataclass

from mcp_exec_api.code_execution import Phase
from mcp_exec_api.reasons.execution import Reason
from mcp_exec_api.sandbox_pool import format_languages
from mcp_exec_common.supervisor.protocol import Event
from mcp_exec_operator.core.executions.execution import Execution
from mcp_exec_operator.core.executions.outcome import EndedBeforeRun, build_failure
from mcp_exec_operator.core.executions.part import JobDraft, Part
from mcp_exec_operator.core.feature import Feature, FeatureContext
from mcp_exec_operator.core.pools.pool import Pool
from mcp_exec_operator.core.pools.registry import PoolRegistry


@dataclass(kw_only=True, eq=False)
class LanguagePart(Part):
    """The language that one execution names."""

    execution: Execution
    pools: PoolRegistry

    async def admit(self) -> None:
        """Refuse the execution if its pool runs another language."""
        self._check(self.pools.get(self.execution.facts.pool))

    async def join(self, job: JobDraft) -> None:
        """Check again: the pool may have been created, or created again, since."""
        if self.execution.seen.phase is Phase.PENDING and self.execution.binding is not None:
            self._check(self.execution.binding.pool)

    def _check(self, pool: Pool) -> None:
        language = self.execution.spec.language
        if language is None or pool.shape.spec is None or pool.shape.language == language:
            return
        specs = {each.name: each.shape.spec for each in self.pools.list_pools(pool.namespace)}
        there = format_languages({name: spec.language for name, spec in specs.items() if spec is not None})
        message = f"spec.language: pool {pool.name} runs {pool.shape.language}, not {language}; the pools are {there}"
        raise EndedBeforeRun(build_failure(Reason.LANGUAGE_NOT_OFFERED, message))


@dataclass(frozen=True, kw_only=True)
class Languages:
    """Languages of executions that name one."""

    pools: PoolRegistry
    events: tuple[type[Event], ...] = ()

    def take_part(self, execution: Execution, *, pool: Pool, event: Event | None = None) -> Part | None:
        """Take part if the spec names a language."""
        if not (execution.source.spec or {}).get("language"):
            return None
        return LanguagePart(execution=execution, pools=self.pools)


class LanguagesFeature(Feature):
    """Refuses executions whose language their pool does not run."""

    def __init__(self, context: FeatureContext) -> None:
        """Build its share of executions."""
        self.executions = Languages(pools=context.pools)
