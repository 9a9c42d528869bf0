"""Values files of docs/platform that are printed whole: each renders, and means what its page says."""

import json
import re

import pytest
import yaml
from tests.component.chart.conftest import CHART, Render

PAGES = CHART.parents[1] / "docs" / "platform"


def read_values(page: str) -> list[dict[str, object]]:
    """Return the blocks of YAML of a page that are values of the chart."""
    blocks = re.findall(r"^```yaml\n(.*?)^```$", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL)
    known = yaml.safe_load((CHART / "values.yaml").read_text())
    loaded = [document for block in blocks for document in yaml.safe_load_all(block)]
    return [each for each in loaded if each.keys() <= known.keys()]


def test_the_values_of_the_production_checklist_render(render: Render) -> None:
    (values,) = read_values("production.md")
    rendered = render(values)
    assert rendered.one("SandboxPool", "default")["spec"]["maxPods"] == 60
    assert rendered.names("PersistentVolumeClaim") == ["mcp-exec-broker-audit", "mcp-exec-broker-records"]
    assert rendered.names("PrometheusRule") != []
    assert rendered.environment("mcp-exec-gateway")["MCP_EXEC_DOCS"] == "false"


def test_each_way_to_expose_the_gateway_renders(render: Render) -> None:
    ingress, route, served = (render(values) for values in read_values("expose.md"))
    assert ingress.names("Ingress") == ingress.names("Certificate") == ["mcp-exec-gateway"]
    assert route.names("HTTPRoute") == ["mcp-exec-gateway"]
    assert served.environment("mcp-exec-gateway")["MCP_EXEC_TLS_FOLDER"]


@pytest.mark.parametrize("page", sorted(path.name for path in (PAGES / "identity-providers").glob("[a-z]*.md")))
def test_the_values_of_each_identity_provider_render(render: Render, page: str) -> None:
    (values,) = read_values(f"identity-providers/{page}")
    rendered = render(values)
    (issuer,) = json.loads(str(rendered.environment("mcp-exec-gateway")["MCP_EXEC_OIDC_ISSUERS"]))
    (rule,) = json.loads(rendered.one("ConfigMap", "mcp-exec-rules")["data"]["rules.json"])
    assert [group.split("/")[1] for group in rule["groups"]] == [issuer["alias"]]
