"""The API server as the operator uses it: requests, watches, leader election."""
