"""Whether a call may be made: policy, approvals and quotas."""
