"""Workspaces and artifacts in one namespace."""

from mcp_exec_operator.core.feature import Feature, FeatureContext
from mcp_exec_operator.features.files.part import Files


class FilesFeature(Feature):
    """Grants files to executions."""

    def __init__(self, context: FeatureContext) -> None:
        """Build its share of executions."""
        self.executions = Files(broker=context.broker, writer=context.writer, tasks=context.tasks)
