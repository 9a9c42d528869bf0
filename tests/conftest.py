"""What all tests share."""

from hypothesis import settings

# Tests have a time limit as a whole: one example may be slow where the machine has much else to do.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
