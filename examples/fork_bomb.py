"""A fork bomb ends as ProcessLimit and leaves nothing behind."""

import os

print("forking", flush=True)
while True:
    os.fork()
