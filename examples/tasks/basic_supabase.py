"""A database by Supabase's tools: the tables of a project, then one query whose rows stay in the sandbox."""

from saving import run_task

CODE = """
from servers import supabase

tables = await supabase.list_tables(project_id="demo", schemas=["public"], verbose=False)
users = await supabase.execute_sql(project_id="demo", query="SELECT id, country FROM users ORDER BY id")
countries = {}
for user in users["result"]:
    countries[user["country"]] = countries.get(user["country"], 0) + 1
print(", ".join(f"{table['name']}: {table['rows']} rows" for table in tables["tables"]))
sorted(countries.items(), key=lambda item: -item[1])[:3]
"""


def task(client):
    return [client.run(CODE, tools=["supabase.*"], use_case="filtering")]


if __name__ == "__main__":
    run_task(task)
