"""What one plain execution needs: executions, pods, pools, queueing and scaling. Knows no feature."""
