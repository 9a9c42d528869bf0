"""A loop without end is interrupted when its time is over; what it printed until then is kept."""

print("looping")
while True:
    pass
