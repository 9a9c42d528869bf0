"""What lasts beyond a run: sessions, workspaces and their files, artifacts."""
