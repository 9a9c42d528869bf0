"""ExecutionRollouts: their stages, and the warm pods that their pools need."""
