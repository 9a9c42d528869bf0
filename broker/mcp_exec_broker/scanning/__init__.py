"""Detection of secrets and personal data in arguments and results."""
