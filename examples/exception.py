"""An exception ends the run with its type, its message and the line of the code that raised it."""


def average(values):
    return sum(values) / len(values)


print("before")
print(average([]))
