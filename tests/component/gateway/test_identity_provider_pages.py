"""docs/platform/identity-providers: the values and the claims of each page, by a provider that issues such tokens."""

import json
import logging
import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.component.gateway.test_access_rules import write_rules
from tests.component.gateway.test_signin import ask, signing_in
from tests.support.api_server import FakeApiServer
from tests.support.issuer import Issuer
from tests.support.pages import DOCS

from mcp_exec_api.constants import ANNOTATION_CALLER

FOLDER = DOCS / "platform/identity-providers"
INDEX = (FOLDER / "README.md").read_text()
PAGES = {path.stem: path.read_text() for path in sorted(FOLDER.glob("[a-z]*.md"))}


def read_block(text: str, language: str) -> Any:
    (block,) = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return yaml.safe_load(block) if language == "yaml" else json.loads(block)


def configure(text: str, issuer: Issuer) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    """Return the issuer and the rules of the page's values, and the page's claims, at another address."""
    gateway, claims = read_block(text, "yaml")["gateway"], read_block(text, "json")
    (configured,) = gateway["oidc"]["issuers"]
    assert configured["url"] == claims["iss"]
    now = int(time.time())
    return (
        configured | {"url": issuer.url, "ca": issuer.ca},
        gateway["rules"],
        claims | {"iss": issuer.url, "iat": now, "exp": now + 600},
    )


@pytest.mark.parametrize("text", PAGES.values(), ids=PAGES)
async def test_a_person_with_the_claims_of_a_page_is_the_caller_that_it_names(
    api: FakeApiServer, tmp_path: Path, text: str
) -> None:
    async with Issuer().running() as issuer:
        configured, rules, claims = configure(text, issuer)
        write_rules(tmp_path, *rules)
        async with signing_in(api, tmp_path, configured) as gateway:
            made = await gateway.post(query="?wait=0", key=issuer.sign(**claims))
            assert made.status == 202, made.text
            caller = gateway.executions[made.json["name"]]["metadata"]["annotations"][ANNOTATION_CALLER]
            assert f"`{caller}`" in text
            for claim in (configured.get("groupsClaim", "groups"), "aud"):
                refused = await ask(gateway, issuer.sign(**claims | {claim: "another"}))
                assert refused == (401 if claim == "aud" else 403), claim


@pytest.mark.parametrize(
    ("wrong", "logged"),
    [
        ({"aud": "another"}, "Audience doesn't match"),
        ({"aud": None}, 'Token is missing the "aud" claim'),
        ({"exp": 1}, "Signature has expired"),
        ({"kid": "two"}, "the issuer has no key"),
        ({"sub": None}, 'Token is missing the "sub" claim'),
        ({"sub": ""}, "must be a printable text"),
    ],
)
async def test_the_log_says_what_is_wrong_with_a_token_as_the_page_has_it(
    api: FakeApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, wrong: dict[str, Any], logged: str
) -> None:
    caplog.set_level(logging.INFO)
    async with Issuer().running() as issuer:
        issuer.keys["two"] = issuer.keys["one"]
        write_rules(tmp_path, {"users": ["oidc/corp/*"], "namespaces": ["agents"]})
        async with signing_in(api, tmp_path, issuer.configure()) as gateway:
            assert await ask(gateway, issuer.sign()) == 200
            issuer.keys["three"] = issuer.keys["one"]
            token = issuer.sign(**wrong | ({"kid": "three"} if "kid" in wrong else {}))
            del issuer.keys["three"]
            assert await ask(gateway, token) == 401
    assert re.search(rf"a token of the issuer corp is refused: .*{re.escape(logged)}", caplog.text)
    assert f"`{logged}`" in INDEX
