"""Number of examples of the fuzzers, which `make fuzz` multiplies."""

import os
from typing import Final

from hypothesis import HealthCheck, settings

FACTOR_VARIABLE: Final = "MCP_EXEC_FUZZ_FACTOR"


def fuzz_settings(examples: int, **options: object) -> settings:
    """Return the settings of a fuzzer: `examples` of them in CI, MCP_EXEC_FUZZ_FACTOR times as many in `make fuzz`."""
    factor = int(os.environ.get(FACTOR_VARIABLE, "1"))
    return settings(
        max_examples=examples * factor,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        **options,  # type: ignore[arg-type]
    )
