"""What one plain execution needs: executions, pods, pools, queueing and scaling. It does not depend on features."""
