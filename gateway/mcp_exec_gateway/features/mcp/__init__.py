"""The MCP endpoint `/mcp`: tools of the gateway for MCP clients, over streamable HTTP.

The protocol's methods, types and revisions are those of the `mcp` SDK's low-level server. The HTTP exchange is the
gateway's own, so that callers, rights, rates, body limits, memory and slots are the same code as for REST, and so that
every request of both revisions is served without state: any replica serves any request.

- `route`: the FastAPI route; authenticates, checks Origin and Host, reads the body and starts an exchange.
- `request`: one request with its caller and the parameters of URL and headers: mode, namespace, pool and what else the
  application decides. The SDK passes it to the tools as `ctx.request`. A notification that another replica received
  cancels it.
- `server`: builds the SDK's server of a mode from a `Toolset`; maps problems to protocol errors. A new mode is a new
  toolset in `build_servers`.
- `budget`: how many tokens a result may have.
- `forms`: asks the client's user for the approval of a call.
- `transport`: messages, revisions, responses as JSON or as a stream of server-sent events.
- `code_mode`: the toolset of `mode=code`: `run_code`, `search_tools`, `describe_tools`, and the prompt.
- `resources`: skills, files, artifacts and tools as resources, their completion, and the skills extension.
- `direct`: the toolsets of `mode=direct` and `mode=hybrid`.
- `calls`, `abandoned_runs`: a client that repeats a call after it lost the answer gets the run of the first one.
"""
