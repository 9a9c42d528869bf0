"""The shipped skills in a sandbox: all examples of their pages in one run, and details."""

from tests.component.sandbox.conftest import SandboxProcess
from tests.support.broker_calls import FakeBrokerCalls
from tests.support.shipped_skills import build_examples, build_job, check_answers


def test_the_examples_of_all_shipped_skills_return_what_they_should(sandbox: SandboxProcess) -> None:
    run = sandbox.run(build_examples(), skills=build_job())
    assert run.phase == "Succeeded", run.error
    check_answers(run.result)
    assert "| Oslo | 7 |" in run.stdout


def test_shipped_skills_call_tools_and_bear_odd_input(sandbox: SandboxProcess, broker: FakeBrokerCalls) -> None:
    code = """
import json, zipfile
from pathlib import Path
from skills import batch, chart, compare_documents, convert_table, deduplicate, docs_lookup, paginate, poll_until
from skills import profile_table, retry, sql_report, text_statistics

async def error(awaitable):
    try:
        return await awaitable
    except Exception as problem:
        return str(problem)

rows = [{"text": '<&"\\x01', "n": -1.5, "flag": True, "list": [1]}, {"other": "é"}]
Path("odd.json").write_text(json.dumps(rows))
for name in ("odd.xlsx", "odd.csv", "odd.tsv", "odd.jsonl"):
    convert_table.run("odd.json", name)
chart.run({"a<b": -2, "c": None or 3}, kind="line", title="<x>", path="out/line.svg")
{
    "docs": json.loads(await docs_lookup.run("starlette", "How?", library_id="/encode/starlette")),
    "batch": (await batch.run([1, 2], tool="a.b", parameter="n"))["results"],
    "poll": (await poll_until.run(tool="a.b", arguments={"s": {"p": "up"}}, field="s.p", values=["up"]))["ok"],
    "pages": await paginate.run(lambda page: [page] * 2 if page < 4 else [], pages=True),
    "late": (await poll_until.run(lambda: 0, every=0.01, seconds=0.02))["ok"],
    "none": [await error(each.run()) for each in (paginate, poll_until, retry)],
    "excel": convert_table.run("odd.xlsx"),
    "csv": convert_table.run("odd.csv")[1]["other"],
    "lines": convert_table.run("odd.jsonl") == rows,
    "ending": await error(retry.run(lambda: convert_table.run("odd.pdf"), attempts=2, first_delay=0.01)),
    "svg": "&lt;x&gt;" in Path("out/line.svg").read_text(),
    "empty": [profile_table.run([])["rows"], deduplicate.run([])["removed"], text_statistics.run("")["words"],
              compare_documents.run("", "")["similarity"], sql_report.run({"t": []}, "SELECT count(*) AS n FROM t")],
    "injection": sql_report.run({'t"x': [{'a"b': "'; DROP"}]}, 'SELECT * FROM "t""x"'),
}
"""
    run = sandbox.run(code, skills=build_job(), tools={**broker.job, "allow": ["*.*"]})
    assert run.phase == "Succeeded", run.error
    answers = run.result
    assert answers["docs"] == {"libraryId": "/encode/starlette", "query": "How?"}
    assert answers["batch"] == [{"n": 1}, {"n": 2}]
    assert (answers["poll"], answers["late"]) == (True, False)
    assert answers["pages"] == {"items": [1, 1, 2, 2, 3, 3], "pages": 4, "complete": True}
    assert answers["none"] == ["give fetch or tool", "give check or tool", "give action or tool"]
    assert answers["excel"][0] == {"text": '<&"', "n": -1.5, "flag": True, "list": "[1]", "other": None}
    assert answers["excel"][1]["other"] == answers["csv"] == "é"
    assert answers["lines"]
    assert "the ending .pdf" in answers["ending"]
    assert answers["svg"]
    assert answers["empty"] == [0, 0, 0, 1.0, [{"n": 0}]]
    assert answers["injection"] == [{'a"b': "'; DROP"}]


def test_shipped_skills_are_bounded_and_say_what_is_wrong_or_missing(sandbox: SandboxProcess) -> None:
    code = """
import asyncio, inspect, zipfile
from pathlib import Path
from skills import batch, chart, compare_documents, convert_table, deduplicate, paginate, poll_until
from skills import profile_table, retry, sql_report, text_statistics

async def error(call):
    try:
        value = call()
        return await value if inspect.isawaitable(value) else value
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"

def fail(item):
    raise ValueError("no")

Path("a.csv").write_text("id,zip,price,note,price\\n1,01234,1.50,x,2\\n2,04321,2,,3\\n,,,,\\n")
Path("b.json").write_text("[[1], [2]]")
convert_table.run("a.csv", "deep/a.xlsx")
cells = '<row><c t="inlineStr"><is><t>day</t></is></c><c t="inlineStr"><is><t>at</t></is></c></row>'
cells += '<row><c s="1"><v>46349</v></c><c s="2"><v>46349.5</v></c></row>'
styles = '<numFmts><numFmt numFmtId="164" formatCode="yyyy\\\\-mm hh:mm"/></numFmts><cellXfs><xf numFmtId="0"/>'
styles += '<xf numFmtId="14"/><xf numFmtId="164"/></cellXfs>'
with zipfile.ZipFile("deep/a.xlsx") as old, zipfile.ZipFile("dates.xlsx", "w") as new:
    for name in old.namelist():
        if "sheet1" not in name:
            new.writestr(name, old.read(name))
    spaces = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    new.writestr("xl/worksheets/sheet1.xml", f"<worksheet {spaces}><sheetData>{cells}</sheetData></worksheet>")
    new.writestr("xl/styles.xml", f"<styleSheet {spaces}>{styles}</styleSheet>")
started = []
rows = [{"id": 1, "n": 2**70}]
{
    "csv": convert_table.run("a.csv"),
    "excel": convert_table.run("deep/a.xlsx") == convert_table.run("a.csv"),
    "dates": convert_table.run("dates.xlsx"),
    "lists": await error(lambda: convert_table.run("b.json")),
    "sheet": await error(lambda: convert_table.run("deep/a.xlsx", sheet=2)),
    "batch": {key: value for key, value in (await batch.run(range(9), fail, concurrency=2, max_errors=3)).items()
              if key != "results"},
    "chart": await error(lambda: chart.run({str(number): 1 for number in range(1001)})),
    "gap": [chart.run({"a": 1, "b": None, "c": float("nan"), "d": 2}, kind="line")["max"],
            Path("artifacts/chart.svg").read_text().count("<polyline")],
    "diff": compare_documents.run("a\\n" * 3000, "b\\n" + "a\\n" * 3000)["added"],
    "long": await error(lambda: compare_documents.run("a\\n" * 50001, "")),
    "typo": await error(lambda: deduplicate.run([{"mail": 1}], keys=["post"])),
    "field": await error(lambda: paginate.run(lambda cursor: {"issues": [1]})),
    "nested": await paginate.run(lambda cursor: {"data": {"all": [1]}, "meta": {}}, items="data.all", next="meta.next"),
    "circle": await error(lambda: paginate.run(lambda cursor: {"items": [1], "next_cursor": "same"})),
    "cut": (await paginate.run(lambda page: [page], pages=True, max_pages=2))["complete"],
    "poll": (await poll_until.run(lambda: {"items": [{"state": "up"}]}, field="items.0.state", values=["up"]))["ok"],
    "wide": profile_table.run([{f"c{number}": 1 for number in range(150)}])["other_columns"],
    "range": profile_table.run([{"day": "2026-02-01"}, {"day": "2026-01-31"}])["columns"]["day"]["last"],
    "bug": await error(lambda: retry.run(lambda: started.append(1) or missing_name)),
    "started": len(started),
    "attempts": await error(lambda: retry.run(lambda: 1, attempts=0)),
    "sql": sql_report.run({"a": rows, "b": rows}, "SELECT a.id, b.id, a.n FROM a JOIN b USING (id)"),
    "more": len(sql_report.run({"a": rows * 5}, "SELECT * FROM a", limit=2)),
    "dots": text_statistics.run("." * 200_000 + "x")["sentences"],
}
"""
    run = sandbox.run(code, skills=build_job())
    assert run.phase == "Succeeded", run.error
    answers = run.result
    assert answers["csv"] == [
        {"id": 1, "zip": "01234", "price": 1.5, "note": "x", "price_5": 2},
        {"id": 2, "zip": "04321", "price": 2, "note": None, "price_5": 3},
    ]
    assert answers["excel"]
    assert answers["dates"] == [{"day": "2026-11-23", "at": "2026-11-23T12:00:00"}]
    assert "row 0 is no object" in answers["lists"]
    assert "there is no sheet 2; it has 1" in answers["sheet"]
    assert (answers["batch"]["succeeded"], answers["batch"]["started"]) == (0, 4)
    assert "1001 labels in 1 series" in answers["chart"]
    assert answers["gap"] == [2.0, 2]
    assert answers["diff"] == 1
    assert "at most 50000" in answers["long"]
    assert "no row has the columns ['post']" in answers["typo"]
    assert "it has ['issues']" in answers["field"]
    assert answers["nested"]["items"] == [1]
    assert "names its own cursor 'same'" in answers["circle"]
    assert (answers["cut"], answers["poll"], answers["wide"]) == (False, True, 50)
    assert answers["range"] == "2026-02-01"
    assert answers["bug"].startswith("NameError")
    assert answers["started"] == 1
    assert "at least 1" in answers["attempts"]
    assert answers["sql"] == [{"id": 1, "id_2": 1, "n": str(2**70)}]
    assert answers["more"] == 2
    assert "only the first 2 are returned" in run.stdout
    assert answers["dots"] == 1
