"""Skills: the interface that their code defines, and folders with a file SKILL.md."""
