"""Test of `helm test`: runs `print(1)` through the gateway and checks the result."""

import json
import os
import ssl
import sys
import urllib.request


def main() -> None:
    """Exit with an error message if the response is not the expected one."""
    address, key, pool = os.environ["GATEWAY_ADDRESS"], os.environ.get("GATEWAY_API_KEY"), os.environ["GATEWAY_POOL"]
    context = None
    if certificate := os.environ.get("GATEWAY_CERTIFICATE"):
        context = ssl.create_default_context(cadata=certificate)
        context.check_hostname = False  # it names the address of clients
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    host = f"[{address}]" if ":" in address else address
    root = f"{'https' if context else 'http'}://{host}:{os.environ['GATEWAY_PORT']}"
    if not key or not pool:
        with urllib.request.urlopen(f"{root}/readyz", timeout=30, context=context) as answer:
            sys.exit(0 if answer.status == 200 else f"/readyz returned {answer.status}")
    request = urllib.request.Request(
        f"{root}/v1/executions?wait=90",
        data=json.dumps({"code": "print(1)", "poolRef": {"name": pool}}).encode(),
        headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120, context=context) as answer:
        execution = json.load(answer)
    if execution["phase"] != "Succeeded" or execution["output"]["stdout"] != "1\n":
        sys.exit(f"print(1) did not succeed with the output 1: {json.dumps(execution)}")
    sys.stdout.write(f"{execution['name']} printed 1 in {execution['durations']['total']} ms\n")


main()
