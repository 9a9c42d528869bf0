"""06: a skill of the namespace profiles a table, so that no model has to write that code."""

from saving import run_task

CODE = """
from servers.sheets import get_sheet
from skills.profile_table import run

profile = run(await get_sheet({"sheetId": "abc123"}))
{name: column.get("distinct") for name, column in profile["columns"].items()}
"""


def task(client):
    return [client.run(CODE, tools=["sheets.get_sheet"], use_case="filtering")]


if __name__ == "__main__":
    run_task(task)
