"""What is trusted of accounts: the rows of the first table of docs/platform/security.md that this table needs."""

from enum import StrEnum


class Trust(StrEnum):
    """The first cell of a row there, which says why."""

    READ = "accounts that may read the resources of mcp-exec in a served namespace"
    CREATE_EXECUTIONS = "accounts that may create CodeExecutions"
    CHANGE_EXECUTIONS = "accounts that may change CodeExecutions"
    SESSIONS_AND_SKILLS = "accounts that may change SandboxSessions or Skills"
    POOLS = "accounts that may create SandboxPools"
    SCALE = "accounts that may change or scale SandboxPools"
    ROLLOUTS = "accounts that may write ExecutionRollouts"
    TOOL_SERVERS = "accounts that may create ToolServers in a served namespace"
    APPROVERS = "approvers of calls, skills and rollouts"
    READ_PODS = "accounts that may read pods of a served namespace"
    CREATE_PODS = "accounts that may create pods in a served namespace, also by Deployments or Jobs"
    DELETE_PODS = "accounts that may delete or evict pods of a served namespace"
    ENTER_PODS = "accounts that may use `exec`, `attach`, `portforward` or `proxy` of pods in a served namespace"
    SERVICES = "accounts that may create Services with `externalIPs`, in any namespace"
    SECRETS = "accounts that may read or change Secrets, or change ConfigMaps, of a served namespace"
    TOKENS = "accounts that may impersonate a ServiceAccount, request its tokens or create pods with it"
    BINDINGS = "accounts that may write Leases, Roles or RoleBindings in a served namespace"
