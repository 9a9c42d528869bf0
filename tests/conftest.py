"""What all tests share."""

import os

from hypothesis import settings

from tests.support.fuzz import FACTOR_VARIABLE

# Tests have a time limit as a whole: one example may be slow where the machine has much else to do.
settings.register_profile("unhurried", deadline=None)
# The same examples in each run: a change fails for what it changes. `make fuzz` searches for new ones.
settings.register_profile("repeatable", settings.get_profile("unhurried"), derandomize=True)
settings.load_profile("unhurried" if FACTOR_VARIABLE in os.environ else "repeatable")
