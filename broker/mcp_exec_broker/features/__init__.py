"""What the broker does besides calling tools: each folder is one feature, with one entry in the table here."""

from typing import Final

from mcp_exec_broker.core.feature import OpenFeature
from mcp_exec_broker.features.files.feature import FilesFeature
from mcp_exec_broker.features.records.feature import RecordsFeature
from mcp_exec_broker.features.scanning.feature import ScanningFeature

FEATURES: Final[dict[str, OpenFeature]] = {
    "files": FilesFeature.open,
    "records": RecordsFeature.open,
    "scanning": ScanningFeature.open,
}
"""How each feature is opened, by its name, which is that of its folder."""
