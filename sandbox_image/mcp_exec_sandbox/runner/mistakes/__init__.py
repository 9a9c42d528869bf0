"""Mistakes of code that its run reports: a forgotten `await`, errors that nothing reads, names without a definition."""
