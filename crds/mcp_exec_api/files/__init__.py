"""Files that outlive their execution: its workspace and its artifacts."""
