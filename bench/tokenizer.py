"""Offline tokenizer (OpenAI's o200k) of the benchmarks, and the check of the product's estimate against it.

The package bpe-openai carries its vocabulary, so nothing is downloaded at run time. It is no dependency of the project:
`load` installs it into .cache/tokenizer. Claude's tokenizer is not public: only the API's `count_tokens` uses it.

    python bench/tokenizer.py             # error of tools/mcp_exec_tools/text.py, by kind of text
    python bench/tokenizer.py --record    # write the counts that the unit tests compare the estimate with
"""

import argparse
import base64
import hashlib
import importlib
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness import table

from mcp_exec_tools.catalog import Catalog
from mcp_exec_tools.text import METHOD, estimate_tokens
from mcp_exec_tools.wrappers import build_files

ROOT = Path(__file__).parents[1]
CACHE = ROOT / ".cache" / "tokenizer"
RECORDED = ROOT / "tests" / "data" / "tokens.json"
CATALOGS = ROOT / "servers" / "catalogs"
ENCODING = "o200k_base"
REQUIREMENT = """bpe-openai==0.1.4 \\
  --hash=sha256:91dde48b7c27a155ec94563ef488d95267bd17e2e8db360aba299ca9819335ba \\
  --hash=sha256:08fee77717d56bd6ffa86b46283f8ce5553151cc0e4967001af26f37b81c3276 \\
  --hash=sha256:a754c738d85dca11bfd1d7ce474419bf39a3e2bdb79b7a0c40329c97f350cfa5
"""
INSTALL_SECONDS = 300
SAMPLE = 2000
"""Characters of a sample of code or documentation."""
CODE = ("tools/mcp_exec_tools", "client/mcp_exec_client", "servers_image/mcp_exec_servers")
WRAPPERS = ("github", "expenses", "supabase", "filesystem")
LANGUAGES = {
    "German": "Der Betreiber listet zuerst sämtliche Pods auf, bevor er einen neuen anlegt. Für größere Änderungen an "
    "der Übergabe müssen die Verantwortlichen zustimmen; außerdem schließt die Prüfung sämtliche Zugriffsrechte ein.",
    "French": "L'opérateur énumère tous les pods avant d'en créer un nouveau. Après l'échec d'une tâche, le système "
    "réessaie jusqu'à l'épuisement du délai fixé, où qu'il ait été défini.",
    "Russian": "Оператор перечисляет все поды, прежде чем создать новый. После сбоя задачи система повторяет попытку, "
    "пока не будет превышен предел.",
    "Chinese": "操作员在创建新的容器之前会列出所有的容器。任务失败后,系统会重试,直到超过限制为止。请检查所有访问权限。",
}
Count = Callable[[str], int]


def load() -> Count:
    """Return the function that counts tokens. Installs the tokenizer into the cache at first use."""
    if not (CACHE / "bpe_openai").is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        (CACHE / "requirements.txt").write_text(REQUIREMENT)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += ["--require-hashes", "--target", str(CACHE), "--requirement", str(CACHE / "requirements.txt")]
        subprocess.run(command, check=True, timeout=INSTALL_SECONDS)
    sys.path.append(str(CACHE))
    encoding = importlib.import_module("bpe_openai").get_encoding(ENCODING)
    return lambda text: len(encoding.encode_ordinary(text))


def digest(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def dump_definition(tool: dict[str, Any]) -> str:
    """Return a tool's definition as a Messages API request carries it."""
    fields = {"name": tool["name"], "description": tool.get("description", ""), "input_schema": tool["inputSchema"]}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def catalog_texts() -> dict[str, str]:
    """Return the definitions of each catalog."""
    found = {path.stem: json.loads(path.read_text())["tools"] for path in sorted(CATALOGS.glob("*.json"))}
    return {server: f"[{','.join(dump_definition(tool) for tool in tools)}]" for server, tools in found.items()}


def sample_texts() -> Iterator[tuple[str, str]]:
    """Yield kinds and texts to record: code, wrappers, documentation, data and languages."""
    for folder in CODE:
        for path in sorted((ROOT / folder).glob("*.py"))[:6]:
            yield "code", path.read_text()[:SAMPLE]
    for server in WRAPPERS:
        tools = json.loads((CATALOGS / f"{server}.json").read_text())["tools"]
        files = build_files([Catalog.from_tools(server, tools)], stubs=True)
        for _, text in sorted(files.items())[:6]:
            yield "wrappers", text[:SAMPLE]
    for path in sorted((ROOT / "docs" / "agents").glob("*.md"))[:6]:
        yield "documentation", path.read_text()[:SAMPLE]
    for text in data_texts():
        yield "data", text[:SAMPLE]
    for text in LANGUAGES.values():
        yield "languages", text


def data_texts() -> Iterator[str]:
    """Yield results of tools: rows, identifiers, a CSV file, a log, floats, and hexadecimal digits."""
    numbers = random.Random(5)
    rows = [
        {"id": f"exp_{index:04d}", "user_name": numbers.choice(["Ana Ruiz", "Bo Chen", "Carla Meyer"]),
         "amount": round(numbers.random() * 900, 2), "date": f"2026-07-{index % 28 + 1:02d}T08:15:00Z",
         "status": numbers.choice(["open", "paid", "late"])}
        for index in range(40)
    ]  # fmt: skip
    yield json.dumps(rows)
    yield json.dumps(rows, indent=2)
    yield json.dumps([{"sha": hashlib.sha1(str(index).encode()).hexdigest()} for index in range(40)])
    yield "\n".join(f"{index},{numbers.randint(1, 9999)},{numbers.random():.4f},2026-03-01" for index in range(80))
    yield "\n".join(
        f"2026-11-24T02:{i % 60:02d}:11Z INFO request status=200 ms={i * 7} path=/v1/x-{i}" for i in range(40)
    )
    yield json.dumps([numbers.random() for _ in range(100)])
    yield base64.b16encode(numbers.randbytes(1000)).decode().lower()


def record(count: Count) -> None:
    """Write the counts that the unit tests read."""
    catalogs = [
        {"server": server, "sha256": digest(text), "tokens": count(text)} for server, text in catalog_texts().items()
    ]
    texts = [{"kind": kind, "text": text, "tokens": count(text)} for kind, text in sample_texts()]
    found = {"encoding": ENCODING, "method": METHOD, "catalogs": catalogs, "texts": texts}
    RECORDED.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def errors(count: Count) -> dict[str, dict[str, Any]]:
    """Return the error of the estimate by kind of text, in percent."""
    pairs: dict[str, list[tuple[int, int, int]]] = {}
    for kind, text in [*(("catalogs", text) for text in catalog_texts().values()), *sample_texts()]:
        pairs.setdefault(kind, []).append((count(text), estimate_tokens(text), len(text.encode())))
    return {kind: _summarize(found) for kind, found in pairs.items()}


def _summarize(found: list[tuple[int, int, int]]) -> dict[str, Any]:
    shares = sorted(100 * (estimate / tokens - 1) for tokens, estimate, _ in found)
    tokens, estimates, size = (sum(each[index] for each in found) for index in range(3))
    return {
        "texts": len(found),
        "tokens": tokens,
        "all of them": f"{100 * (estimates / tokens - 1):+.1f} %",
        "lowest": f"{shares[0]:+.1f} %",
        "highest": f"{shares[-1]:+.1f} %",
        "bytes / 4": f"{100 * (size / 4 / tokens - 1):+.1f} %",
    }


def main() -> None:
    """Compare the estimate with the tokenizer, or record its counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write tests/data/tokens.json")
    options = parser.parse_args()
    count = load()
    if options.record:
        record(count)
    print(f"error of {METHOD} against {ENCODING}")
    print(table(errors(count)))


if __name__ == "__main__":
    main()
