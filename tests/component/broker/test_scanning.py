"""Secrets and personal data in calls of a real server."""

import re

from tests.component.broker.conftest import World
from tests.component.broker.servers import serving, toolbox

ADDRESS = "jane@example.com"
TOKEN = "ghp_" + "a" * 36


async def test_a_token_stands_for_an_address_on_the_way_to_the_code_alone(world: World) -> None:
    async with serving(toolbox()) as box:
        world.add("box", url=box.url, scan={"personalInResults": "Tokenize"})
        world.add("plain", url=box.url, scan={})
        for name in ("box", "plain"):
            await world.listed(name)
        token = (await world.call("box.echo", value={"to": ADDRESS}))["value"]["to"]
        assert re.fullmatch(r"\[EMAIL_1_[a-z2-7]{8}\]", token)
        assert (await world.call("plain.echo", value={"to": token}))["value"] == {"to": token}
        assert (await world.call("plain.echo", value={"to": "new@example.com"}))["value"] == {"to": "new@example.com"}


async def test_a_secret_does_not_leave_and_the_audit_has_none(world: World) -> None:
    async with serving(toolbox()) as box:
        world.add("box", url=box.url)
        await world.listed("box")
        answer = await world.call("box.echo", value={"key": TOKEN})
        assert (answer["kind"], answer["reason"]) == ("ToolDenied", "SecretFound")
        assert box.calls == []
        answer = await world.call("box.add", a=TOKEN, b=1)
        assert answer["reason"] == "InvalidArguments"
        status, found = await world.ask("GET", "/v1/audit")
        assert status == 200
        assert len(found["items"]) == 2
        assert TOKEN not in str(found)
        assert "[REDACTED GitHub Token]" in found["items"][0]["error"]
