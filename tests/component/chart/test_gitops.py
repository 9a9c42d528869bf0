"""docs/platform/gitops.md: its values and its command render, and nothing of it is a hook that would run at once."""

import re
import shlex
import subprocess
from pathlib import Path

import yaml
from tests.component.chart.conftest import CHART, Object, Render, Rendered
from tests.support.pace import paced

ROOT = CHART.parents[1]
PAGE = (ROOT / "docs" / "platform" / "gitops.md").read_text()


def hooks(rendered: Rendered) -> list[Object]:
    return [item for item in rendered.objects if "helm.sh/hook" in (item["metadata"].get("annotations") or {})]


def test_the_application_renders_with_its_values(render: Render) -> None:
    application = yaml.safe_load(re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[0])["spec"]
    assert ROOT / application["source"]["path"] == CHART
    rendered = render(application["source"]["helm"]["valuesObject"])
    (ignored,) = application["ignoreDifferences"]
    pool = rendered.one("SandboxPool", "default", namespace="agents")
    assert pool["apiVersion"].startswith(ignored["group"] + "/")
    assert "warm" not in pool["spec"], "the API's default is in effect, which Argo CD does not compare"
    assert {item["metadata"]["annotations"]["helm.sh/hook"] for item in hooks(rendered)} == {"pre-delete", "test"}


def test_the_command_for_manifests_renders_all_but_the_hooks(helm: str, tmp_path: Path) -> None:
    text = PAGE.replace("\\\n", " ")
    (line,) = re.findall(r"^    helm (template .*) > ", text, re.MULTILINE)
    done = subprocess.run(
        [helm, *shlex.split(line)], cwd=ROOT, capture_output=True, text=True, timeout=paced(60), check=True
    )
    rendered = Rendered(done.stdout, folder=tmp_path)
    assert hooks(rendered) == []
    assert rendered.names("SandboxPool") == ["default"]
    assert rendered.all("ValidatingAdmissionPolicy")
    kinds = [item["kind"] for item in rendered.objects]
    assert kinds.index("Namespace") < kinds.index("Role"), "kubectl applies them in this order"
