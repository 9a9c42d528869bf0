"""Models that the options, variables and files of a command name."""
