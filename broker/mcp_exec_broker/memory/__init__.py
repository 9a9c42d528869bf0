"""Memory of calls in flight: what arguments, answers of servers and unread results may take."""
