"""Checks of code in one namespace."""

from mcp_exec_operator.core.feature import Feature, FeatureContext
from mcp_exec_operator.features.checks.part import CodeChecks


class ChecksFeature(Feature):
    """Checks the code of executions by the rules of their pools."""

    def __init__(self, context: FeatureContext) -> None:
        """Build its share of executions."""
        self.executions = CodeChecks(pools=context.pools, metrics=context.metrics)
