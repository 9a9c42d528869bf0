"""Workspaces and artifacts: files that outlive a run, on a volume or in S3."""
