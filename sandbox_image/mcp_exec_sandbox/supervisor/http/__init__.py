"""HTTP interface of the supervisor: connections, routes and their messages."""
