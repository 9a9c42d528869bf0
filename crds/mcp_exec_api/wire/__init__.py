"""Bodies of requests and responses, each declared once for all who send or read it.

The gateway builds most responses without these models, because validating an output costs more than the rest of a
request; tests compare them. The client parses responses with the context `LENIENT`.
"""
