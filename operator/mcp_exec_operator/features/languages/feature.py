"""Languages of executions in one namespace."""

from mcp_exec_operator.core.feature import Feature, FeatureContext
from mcp_exec_operator.features.languages.part import Languages


class LanguagesFeature(Feature):
    """Refuses executions whose language their pool does not run."""

    def __init__(self, context: FeatureContext) -> None:
        """Build its share of executions."""
        self.executions = Languages(pools=context.pools)
