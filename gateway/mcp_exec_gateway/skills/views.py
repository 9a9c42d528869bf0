"""Skills in responses."""

from mcp_exec_api.skills.skill import module_name
from mcp_exec_common.kube.objects import Object


def build_view(skill: Object) -> Object:
    """Return a skill, with the status that `SkillCache.read_status` returned, as responses show it."""
    spec, status = skill["spec"], skill["status"]
    conditions = status.get("conditions") or ()
    problem = next(
        (each.get("message") for each in conditions if each["type"] == "Valid" and each["status"] == "False"), None
    )
    fields = {
        "name": spec["name"],
        "version": spec["version"],
        "namespace": skill["metadata"]["namespace"],
        "description": spec["description"],
        "import": f"from skills.{module_name(spec['name'], spec['version'])} import run",
        "user": spec.get("user"),
        "tools": spec.get("tools") or [],
        "tags": spec.get("tags") or [],
        "uses": status.get("uses") or 0,
        "successes": status.get("successes") or 0,
        "problem": problem,
        "provenance": spec.get("provenance"),
        "code": spec.get("code"),
        "instructions": spec.get("instructions"),
    }
    shown = ("state", "author", "parameters", "digest", "reviewedBy", "reviewedAt", "lastUsedAt", "codeFindings")
    fields |= {name: status.get(name) for name in shown}
    return {name: value for name, value in fields.items() if value is not None}
