"""CPython's own tests as the judge of the sandbox: each module once in a run, and once in a child process of a run."""
