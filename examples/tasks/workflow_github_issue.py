"""Issues from a document: minutes of meetings are read in code, and each open task in them becomes one issue."""

from saving import run_task

CODE = """
import re
from servers.github import create_issue, get_file_contents, list_issues

where = {"owner": "acme", "repo": "web"}
document = await get_file_contents({**where, "path": "docs/minutes.md"})
known = {issue["title"] for issue in await list_issues({**where, "state": "all", "per_page": 100})}
made = []
for meeting, notes in re.findall(r"^## (.+)\\n((?:(?!## ).*\\n?)*)", document["content"], re.MULTILINE):
    for title, owner in re.findall(r"^- \\[ \\] (.+) \\(@(\\w+)\\)$", notes, re.MULTILINE):
        if title not in known:
            known.add(title)
            made.append(await create_issue({**where, "title": title, "body": f"{meeting}, for @{owner}"}))
print(f"{len(document['content']):,} characters read, {len(made)} issues created")
[issue["title"] for issue in made]
"""


def task(client):
    return [client.run(CODE, tools=["github.*"], use_case="workflow")]


if __name__ == "__main__":
    run_task(task)
