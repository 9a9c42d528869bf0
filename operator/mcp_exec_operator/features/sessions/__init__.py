"""Sessions: pods that are kept for one owner across executions."""
