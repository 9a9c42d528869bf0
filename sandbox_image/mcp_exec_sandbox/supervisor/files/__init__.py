"""Files that outlive a run: the workspace's, which are put in place and saved, and artifacts.

All of it is done by a thread of the supervisor, while no code runs. Its token never leaves the supervisor.
"""
