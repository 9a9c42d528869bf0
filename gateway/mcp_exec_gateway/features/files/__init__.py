"""Files that outlive their execution: artifacts and workspaces, which the broker stores."""
