"""Objects that outlive a run: sessions, workspaces and their files, artifacts, skills."""
