"""`python3 -m mcp_exec_gateway.create_key NAME --namespace NAMESPACE`: create an API key.

The command prints the key and the kubectl command that stores its digest; it does not connect to the cluster.
"""

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from typing import Final

from pydantic import ValidationError

from mcp_exec_api.meta import explain_errors
from mcp_exec_common.api_keys import build_entry, generate_key
from mcp_exec_common.key_options import add_key_options

_TEXT: Final = """\
The API key {name}. It is printed only once; the Secret stores its SHA-256 digest:

  {key}

To activate it, run:

  kubectl --namespace {release} patch secret {secret} --type merge --patch {patch}

To revoke it, run:

  kubectl --namespace {release} patch secret {secret} --type merge --patch {revoke}
"""


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m mcp_exec_gateway.create_key",
        description="Create an API key of the gateway and print the command that stores its digest.",
    )
    add = parser.add_argument
    add("name", help="name of the key, used in logs and as the callers' label")
    add_key_options(parser)
    add("--release-namespace", default="mcp-exec-system", help="namespace of the Secret (%(default)s)")
    add("--secret", default="mcp-exec-api-keys", help="name of the Secret (%(default)s)")
    add("--output", choices=["text", "json"], default="text", help="output format; json is {name, key, patch}")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = _build_parser()
    arguments = parser.parse_args(argv)
    key = generate_key()
    try:
        entry = build_entry(arguments, key)
    except ValidationError as error:
        parser.error(explain_errors(error))
    except ValueError as error:
        parser.error(str(error))
    # a merge patch of stringData changes this entry and keeps the others
    patch = json.dumps({"stringData": {arguments.name: json.dumps(entry.to_api(), separators=(",", ":"))}})
    if arguments.output == "json":
        text = json.dumps({"name": arguments.name, "key": key, "patch": json.loads(patch)}, indent=2) + "\n"
    else:
        text = _TEXT.format(
            name=arguments.name,
            key=key,
            release=arguments.release_namespace,
            secret=arguments.secret,
            patch=shlex.quote(patch),
            revoke=shlex.quote(json.dumps({"data": {arguments.name: None}})),
        )
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
