"""Skills: reusable code that an approver has approved.

from skills.profile_table import run        # the newest approved version; skills.profile_table_v2 is version 2
from skills import search_skills, run_skill, save_skill
search_skills("remove duplicates")
report = await run_skill("profile-table", rows=rows)
save_skill("double", "def run(value: int) -> int:\\n    return 2 * value", "Double a number.")
"""

from mcp_exec_sandbox.skills import run_skill, save_skill, search_skills

__all__ = ["run_skill", "save_skill", "search_skills"]
__path__: list[str] = []
