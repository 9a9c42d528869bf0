"""Skills: those of the release are brought unless they are turned off, and who may approve their own."""

from tests.component.chart.conftest import ROOT, Render


def test_the_operator_brings_the_skills_that_its_image_has(render: Render) -> None:
    folder = render().environment("mcp-exec-operator")["MCP_EXEC_SKILLS_FOLDER"]
    assert f"COPY skills {folder}\n" in (ROOT / "operator" / "Dockerfile").read_text()
    off = render({"skills": {"shipped": False}})
    assert "MCP_EXEC_SKILLS_FOLDER" not in off.environment("mcp-exec-operator")


def test_approvers_approve_their_own_skills_only_if_a_value_says_so(render: Render) -> None:
    assert render().environment("mcp-exec-gateway")["MCP_EXEC_SKILL_SELF_APPROVAL"] == "false"
    on = render({"skills": {"selfApproval": True}})
    assert on.environment("mcp-exec-gateway")["MCP_EXEC_SKILL_SELF_APPROVAL"] == "true"
