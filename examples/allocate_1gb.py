"""More memory than the sandbox has ends the run as OutOfMemory."""

print("allocating")
block = bytearray(1024**3)
print("never printed")
