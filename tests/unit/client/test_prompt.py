from mcp_exec_client.agent import TOOLS
from mcp_exec_tools.prompt import system_prompt

CHARACTERS_A_TOKEN = 4


def test_the_prompt_and_its_two_tools_take_under_a_thousand_tokens_however_many_tools_there_are() -> None:
    whole = system_prompt(["github", "supabase", "context7", "filesystem"]) + str(TOOLS)
    assert len(whole) / CHARACTERS_A_TOKEN < 1000


def test_the_prompt_names_the_servers_and_says_so_where_there_are_none() -> None:
    assert "may call: github, slack." in system_prompt(["github", "slack"])
    assert "may call: none." in system_prompt([])


def test_braces_in_the_prompt_are_those_of_python() -> None:
    assert 'await TOOL({"parameter": value})' in system_prompt([])
