"""What is printed goes back to the caller, and to `kubectl get cex NAME -o yaml`."""

print("Hello from a sandbox")
