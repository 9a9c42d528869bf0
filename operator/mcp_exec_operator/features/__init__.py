"""What executions use beside a pod. A feature is one folder, registered in one line; the core knows none of them."""
