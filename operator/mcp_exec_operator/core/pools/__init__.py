"""The SandboxPool controller: warm pods of each template, and who gets them."""
