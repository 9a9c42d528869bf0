"""The runner: an interpreter that starts before its job, waits for it, runs it and reports."""
