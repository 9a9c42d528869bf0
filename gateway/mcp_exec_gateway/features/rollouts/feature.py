"""Registration of rollouts."""

from typing import Final

from mcp_exec_common.broker.records import RecordsClient
from mcp_exec_gateway.core.dependencies import Dependencies, Feature
from mcp_exec_gateway.features.records.service import Records
from mcp_exec_gateway.features.rollouts.examples import EXAMPLES
from mcp_exec_gateway.features.rollouts.exposures import ExposureLog
from mcp_exec_gateway.features.rollouts.routes import router
from mcp_exec_gateway.features.rollouts.service import RolloutCache, Rollouts, RolloutSteering


def build(core: Dependencies) -> None:
    """Build the rollouts. Reports about conversations find the arms of their units."""
    cache, client = RolloutCache(), None if core.broker is None else RecordsClient(core.broker)
    rollouts = Rollouts(
        cache=cache,
        steering=RolloutSteering(kube=core.kube, cache=cache),
        exposures=ExposureLog(client=client, metrics=core.metrics),
        records=client,
    )
    core.add(rollouts)
    core.extensions.caches["rollouts"] = cache
    core.extensions.tasks["exposures"] = rollouts.exposures.run
    if (records := core.find(Records)) is not None:
        records.find_arm = rollouts.find_arm


ROLLOUTS: Final = Feature(build=build, routers=(router,), examples=EXAMPLES)
