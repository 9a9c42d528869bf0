"""Triage: all open issues of a repository are read in code, the duplicates closed, and one summary issue is created."""

from saving import run_task

CODE = """
from servers.github import add_issue_comment, create_issue, list_issues, update_issue

where = {"owner": "acme", "repo": "web"}
issues = await list_issues({**where, "state": "open", "per_page": 100})
first, duplicates = {}, []
for issue in sorted(issues, key=lambda issue: issue["number"]):
    key = " ".join(issue["title"].lower().split())
    if key in first:
        duplicates.append(issue["number"])
        await add_issue_comment({**where, "issue_number": issue["number"], "body": f"A duplicate of #{first[key]}."})
        await update_issue({**where, "issue_number": issue["number"], "state": "closed"})
    else:
        first[key] = issue["number"]
made = await create_issue({**where, "title": "Triage", "body": f"{len(first)} open, {len(duplicates)} closed"})
{"open": len(first), "closed": len(duplicates), "summary": made["number"]}
"""


def task(client):
    return [client.run(CODE, tools=["github.*"], use_case="workflow")]


if __name__ == "__main__":
    run_task(task)
