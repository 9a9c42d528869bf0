"""The scripted model: its rules, without a gateway."""

import pytest

from mcp_exec_client.agent import ModelError, ModelRequest, OfflineProvider

REQUEST = ModelRequest(system="", messages=[{"role": "user", "content": "some words"}], tools=())


async def test_a_script_ends() -> None:
    async def ignore(text: str) -> None:
        """Drop the text."""

    provider = OfflineProvider(["hello"])
    assert (await provider.reply(REQUEST, on_text=ignore)).text == "hello"
    with pytest.raises(ModelError, match="no further answer"):
        await provider.reply(REQUEST, on_text=ignore)
    assert (await provider.count_tokens(REQUEST)).counted == "estimate"
