"""The API server as the operator uses it: requests and watches."""
