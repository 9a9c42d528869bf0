"""Of a hundred megabytes of output the head and the tail are kept, with the size of the cut between them."""

import sys

line = "x" * 1023 + "\n"
for _ in range(100 * 1024):
    sys.stdout.write(line)
print("the end")
