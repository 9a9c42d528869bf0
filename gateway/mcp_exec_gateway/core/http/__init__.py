"""HTTP without any resource: requests, problems, JSON, access log, shutdown."""
