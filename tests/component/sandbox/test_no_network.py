"""Code that tries to reach a network: the run says that a sandbox has none, whichever library tried."""

import importlib.util
from typing import Any

import pytest

SENTENCE = "a sandbox has no network; call a tool instead."


@pytest.fixture
def sandbox(reused: Any) -> Any:
    return reused


def list_notes(run: Any) -> list[str]:
    return [note["message"] for note in run.end.get("notes", []) if note["kind"] == "NoNetwork"]


HOST = "api.example.invalid"
NAMES = {
    "urllib": f"import urllib.request\nurllib.request.urlopen('https://{HOST}/x.json', timeout=5)",
    "http.client": f"import http.client\nhttp.client.HTTPSConnection('{HOST}', timeout=5).request('GET', '/')",
    "a socket": f"import socket\nsocket.create_connection(('{HOST}', 443), timeout=5)",
    "a bare socket": f"import socket\nsocket.socket().connect(('{HOST}', 443))",
    "a look-up": f"import socket\nsocket.gethostbyname('{HOST}')",
    "asyncio": f"import asyncio\nawait asyncio.open_connection('{HOST}', 443)",
    "smtp": f"import smtplib\nsmtplib.SMTP('{HOST}', timeout=5)",
    "requests": f"import requests\nrequests.get('https://{HOST}/', timeout=5)",
    "httpx": f"import httpx\nhttpx.get('https://{HOST}/', timeout=5)",
    "httpx with await": f"import httpx\nasync with httpx.AsyncClient() as c:\n    await c.get('https://{HOST}/')",
    "aiohttp": f"import aiohttp\nasync with aiohttp.ClientSession() as s:\n    await s.get('https://{HOST}/')",
    "pandas": f"import pandas as pd\npd.read_csv('https://{HOST}/x.csv')",
}


@pytest.mark.parametrize("name", NAMES)
def test_the_error_of_a_name_that_cannot_be_resolved_says_that_there_is_no_network(sandbox: Any, name: str) -> None:
    library = name.partition(" ")[0]
    if library in ("requests", "httpx", "aiohttp", "pandas") and importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not here")
    run = sandbox.run(NAMES[name], timeoutSeconds=60)
    text = f"{HOST} can't be reached: {SENTENCE}"
    assert (run.phase, run.error["message"].rpartition("\n")[2], list_notes(run)) == ("Failed", text, [])
    assert run.error["traceback"].endswith(f"\n{text}\n")


def test_another_error_after_an_attempt_says_nothing_of_a_network(sandbox: Any) -> None:
    code = f"try:\n    {NAMES['a look-up'].replace(chr(10), '; ')}\nexcept OSError:\n    pass\n"
    for failure in ("open('none')", "1 / 0"):
        run = sandbox.run(code + failure)
        assert ("network" in run.error["message"], list_notes(run)) == (False, [f"{HOST} can't be reached: {SENTENCE}"])


def test_an_error_that_the_code_catches_is_a_note_too(sandbox: Any) -> None:
    code = f"try:\n    {NAMES['a look-up'].replace(chr(10), '; ')}\nexcept OSError as error:\n    print('no')"
    run = sandbox.run(code)
    assert (run.phase, list_notes(run)) == ("Succeeded", [f"{HOST} can't be reached: {SENTENCE}"])


ADDRESSES = {
    "connect": "s = socket.socket()\ns.settimeout(.1)\ns.connect(('192.0.2.1', 80))",
    "connect_ex": "s = socket.socket()\ns.setblocking(False)\ns.connect_ex(('192.0.2.1', 80))",
    "a datagram": "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))",
    "IPv6": "s = socket.socket(socket.AF_INET6)\ns.settimeout(.1)\ns.connect(('2001:db8::1', 80))",
    "asyncio": "import asyncio\nasync with asyncio.timeout(.1):\n    await asyncio.open_connection('192.0.2.1', 80)",
}


@pytest.mark.parametrize("name", ADDRESSES)
def test_an_address_outside_is_a_note(sandbox: Any, name: str) -> None:
    run = sandbox.run(
        "import socket\ntry:\n    " + ADDRESSES[name].replace("\n", "\n    ") + "\nexcept OSError:\n    pass"
    )
    address = "2001:db8::1" if name == "IPv6" else "192.0.2.1"
    assert (run.phase, list_notes(run)) == ("Succeeded", [f"{address} can't be reached: {SENTENCE}"])


def test_many_hosts_are_one_note(sandbox: Any) -> None:
    code = "import socket\nfor n in range(9):\n    try: socket.gethostbyname(f'h{n}.invalid')\n    except OSError: pass"
    hosts = "h0.invalid, h1.invalid, h2.invalid and 6 more"
    assert list_notes(sandbox.run(code)) == [f"{hosts} can't be reached: {SENTENCE}"]


LOCAL = """
import http.server, socket, threading, urllib.request
server = http.server.HTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
urllib.request.urlopen(f'http://localhost:{server.server_port}/').read()
for address in (('127.0.0.1', 1), ('::1', 1), ('0.0.0.0', 1)):
    s = socket.socket(socket.AF_INET6 if ':' in address[0] else socket.AF_INET)
    s.setblocking(False)
    s.connect_ex(address)
a, b = socket.socketpair()
try: socket.socket(socket.AF_UNIX).connect('/tmp/none')
except OSError: pass
await call_mcp_tool('a.b')
"""


def test_servers_of_the_code_itself_and_the_broker_are_no_network(sandbox: Any, broker: Any) -> None:
    broker.tools["a.b"] = lambda call: call.value(1)
    run = sandbox.run(LOCAL, tools=broker.job)
    assert (run.result, list_notes(run)) == (1, [])


PROGRAMS = {
    "curl": "subprocess.run(['curl', '-s', 'https://example.com'])",
    "wget": "subprocess.run('cd /tmp && wget https://example.com', shell=True)",
    "git": "subprocess.check_output(['git', 'clone', 'https://example.com/x.git'])",
    "ssh": "os.system('ssh host ls | sort')",
    "ping": "os.popen('sudo ping -c 1 8.8.8.8').read()",
    "nslookup": "await asyncio.create_subprocess_exec('/usr/bin/nslookup', 'example.com')",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_that_need_a_network_are_named_in_the_error_or_in_a_note(sandbox: Any, program: str) -> None:
    code = f"import asyncio, os, subprocess\nos.environ['PATH'] = '/none'\n{PROGRAMS[program]}"
    run = sandbox.run(code)
    text = f"There is no program {program}, and {SENTENCE}"
    if run.error is None:
        assert list_notes(run) == [text]
    else:
        assert (run.error["message"].rpartition("\n")[2], list_notes(run)) == (text, [])


def test_other_programs_are_no_note(sandbox: Any) -> None:
    code = (
        "import subprocess\nsubprocess.run(['echo', 'curl https://example.com'])\nsubprocess.run('ls curl', shell=True)"
    )
    assert list_notes(sandbox.run(code)) == []
