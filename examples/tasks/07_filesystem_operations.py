"""07: files on a server. Twenty of them are written and searched; their text stays in the sandbox."""

from saving import run_task

CODE = """
import asyncio
from servers.filesystem import create_directory, list_directory, read_text_file, write_file

await create_directory(path="/data/logs")
await asyncio.gather(*(
    write_file(path=f"/data/logs/{day:03}.log", content=f"day {day}\\n" * 200 + ("ERROR disk\\n" if day % 9 == 0 else ""))
    for day in range(20)
))
names = sorted(line.split()[-1] for line in (await list_directory(path="/data/logs"))["content"].splitlines())
texts = await asyncio.gather(*(read_text_file(path=f"/data/logs/{name}") for name in names))
failed = [name for name, text in zip(names, texts) if "ERROR" in text["content"]]
print(f"{len(failed)} of {len(names)} days had errors")
failed
"""


def task(client):
    return [client.run(CODE, tools=["filesystem.*"], use_case="filtering")]


if __name__ == "__main__":
    run_task(task)
