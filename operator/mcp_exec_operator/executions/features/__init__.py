"""What executions use besides a pod: code checks, skills, tools, files and sessions."""
