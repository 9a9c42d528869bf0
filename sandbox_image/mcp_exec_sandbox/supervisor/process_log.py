"""Log of the supervisor: one JSON object a line on stdout. Only `LogMirror` writes what code wrote."""

import json
import sys
import traceback


def log(message: str, **fields: object) -> None:
    """Write a line."""
    sys.stdout.write(json.dumps({"message": message, **fields}) + "\n")
    sys.stdout.flush()


def log_failure(message: str, error: BaseException) -> None:
    """Write a line about an unexpected error: its type and place, without its text, which may quote code's data."""
    places = [f"{frame.name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-8:]]
    log(message, error=type(error).__name__, at=places)
