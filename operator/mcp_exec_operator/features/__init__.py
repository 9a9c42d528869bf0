"""What the operator does besides plain executions: each folder is one feature, with one entry in the table here."""

from typing import Final

from mcp_exec_operator.core.feature import Feature
from mcp_exec_operator.features.checks.feature import ChecksFeature
from mcp_exec_operator.features.files.feature import FilesFeature
from mcp_exec_operator.features.languages.feature import LanguagesFeature
from mcp_exec_operator.features.records.feature import RecordsFeature
from mcp_exec_operator.features.rollouts.feature import RolloutsFeature
from mcp_exec_operator.features.sessions.feature import SessionsFeature
from mcp_exec_operator.features.skills.feature import SkillsFeature
from mcp_exec_operator.features.tools.feature import ToolsFeature

FEATURES: Final[dict[str, type[Feature]]] = {
    "languages": LanguagesFeature,
    "sessions": SessionsFeature,  # before all that hold: whoever waits for a turn holds nothing else meanwhile
    "checks": ChecksFeature,
    "tools": ToolsFeature,
    "skills": SkillsFeature,
    "files": FilesFeature,
    "rollouts": RolloutsFeature,
    "records": RecordsFeature,
}
"""How each feature of a namespace is built, by its name, which is that of its folder; in the order of their parts."""
