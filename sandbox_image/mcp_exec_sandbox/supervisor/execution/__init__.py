"""The one execution of a sandbox: request, runner process, limits in force, events and outcome."""
