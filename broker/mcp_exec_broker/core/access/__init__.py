"""Decisions on whether a call may be made: policy, approvals and quotas."""
