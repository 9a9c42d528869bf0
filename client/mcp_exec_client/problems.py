"""What a user of the command can do something about."""


class Problem(Exception):
    """Something went wrong; the text is for the user, and whole."""
