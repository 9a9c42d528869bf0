"""The runner: an interpreter that is started ahead, waits for one job, runs it and reports."""
