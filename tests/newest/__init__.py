"""The CRDs on the newest Kubernetes' API server for custom resources; `make newest` builds and names it."""
