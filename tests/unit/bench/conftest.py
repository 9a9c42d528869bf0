"""Makes the benchmarks' modules known, which are no package: they are run by their paths."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "bench"))
