"""The CodeExecution controller: from a new object to its final status."""
