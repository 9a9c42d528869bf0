"""The transcripts of the token benchmark as code in TypeScript would have them.

The model's turns are the same but for the code, which is in bench/data/typescript.json by task. The results of searches
have the names, imports and signatures of TypeScript. What the code prints is taken to be the same.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from transcripts import ROOT, Transcript

from mcp_exec_tools.search.index import Index
from mcp_exec_tools.wrappers.signature import format_signature

TASKS: Final = ROOT / "bench" / "data" / "typescript.json"
"""Blocks of code of each task, in the order of the transcript."""


def load_tasks() -> dict[str, list[str]]:
    """Return the blocks of code by task."""
    tasks: dict[str, list[str]] = json.loads(TASKS.read_text())
    return tasks


def translate(transcript: Transcript, blocks: Sequence[str], index: Index) -> Transcript:
    """Return the transcript with this code and with TypeScript in what searches found.

    Raises ValueError if the transcript has another number of blocks.
    """
    waiting, searches = list(blocks), set[str]()
    messages = []
    for message in transcript.arms["code"]:
        content = [_translate_block(block, waiting, searches, index) for block in message["content"]]
        messages.append({**message, "content": content})
    if waiting:
        raise ValueError(f"{transcript.task}: {len(waiting)} blocks of code are left over")
    return replace(transcript, arms={**transcript.arms, "code": messages})


def _translate_block(
    block: Mapping[str, Any], waiting: list[str], searches: set[str], index: Index
) -> Mapping[str, Any]:
    if block["type"] == "tool_use" and block["name"] == "search_tools":
        searches.add(block["id"])
    if block["type"] == "tool_use" and block["name"] == "execute_code":
        return {**block, "input": {**block["input"], "code": waiting.pop(0)}}
    if block["type"] == "tool_result" and block["tool_use_id"] in searches:
        found = [_translate_entry(entry, index) for entry in json.loads(block["content"])]
        return {**block, "content": json.dumps(found, ensure_ascii=False, separators=(",", ":"))}
    return block


def _translate_entry(entry: Mapping[str, Any], index: Index) -> dict[str, Any]:
    known = index.find(f"{entry['server']}.{entry['name']}", language="typescript")
    if known is None:
        raise ValueError(f"there is no tool {entry['server']}.{entry['name']}")
    changed = {field: known[field] for field in ("name", "import") if field in entry}
    if "signature" in entry:
        changed["signature"] = format_signature(
            known["name"], entry["input_schema"], entry["output_schema"], language="typescript"
        )
    return {**entry, **changed}
