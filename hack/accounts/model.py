"""Rows of the table of accounts, which the files of the folder `rows` declare."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast, get_args

import yaml
from hack.accounts.rights import INCLUDED, Right
from hack.accounts.trust import Trust

FOLDER: Final = Path(__file__).with_name("rows")
SECTIONS: Final = ("executions", "pods", "network", "workloads", "credentials", "others")

Verdict = Literal["refused", "detected", "trusted", "harmless"]
"""Refused by a policy, or by the API server itself. The others are accepted: mcp-exec undoes or reports it, a row of
the table of trust is about it, or nothing of mcp-exec depends on it."""

_GROUP: Final = {"by", "kinds", "verbs", "answers"}
_ANSWER: Final = {"what", "effect"}


@dataclass(frozen=True, kw_only=True)
class Row:
    """Requests of accounts with one answer."""

    section: str
    by: tuple[str, ...]
    """The roles with the fewest rights that grant them. Those that include these roles grant them, too."""
    kinds: tuple[str, ...]
    verbs: tuple[str, ...]
    what: tuple[str, ...]
    """What is written, by its name in the tests, which send each as a dry run. Empty if there is no dry run."""
    effect: str
    verdict: Verdict
    because: str
    """The policies, the mechanism, the row of the table of trust, or the reason."""

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies that refuse it; none if the API server itself does. Its answer names one of them."""
        is_named = self.verdict == "refused" and self.because.startswith("mcp-exec-")
        return tuple(self.because.split(", ")) if is_named else ()

    def __str__(self) -> str:
        return f"{' and '.join(self.by)}: {' '.join(self.verbs)} {' '.join(self.kinds)}"

    def list_rights(self) -> Iterator[Right]:
        """Return the rights that the row is about."""
        for role in (each for least in self.by for each in INCLUDED[least]):
            for kind in self.kinds:
                for verb in self.verbs:
                    yield Right(role, verb, kind)


@dataclass(frozen=True, kw_only=True)
class Section:
    """A table of the page."""

    title: str
    rows: tuple[Row, ...]


def read_sections() -> list[Section]:
    """Read all rows."""
    return [_read(name) for name in SECTIONS]


def read_rows() -> list[Row]:
    """Read the rows of all sections."""
    return [row for section in read_sections() for row in section.rows]


def _read(name: str) -> Section:
    content = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    rows = [_build(name, group, answer) for group in content["rows"] for answer in group["answers"]]
    return Section(title=content["title"], rows=tuple(rows))


def _build(section: str, group: dict[str, Any], answer: dict[str, Any]) -> Row:
    assert group.keys() == _GROUP, f"{section}: {sorted(group)} instead of {sorted(_GROUP)}"
    verdicts = answer.keys() - _ANSWER
    assert len(verdicts) == 1, f"{section}: one verdict, not {sorted(verdicts)}"
    verdict = verdicts.pop()
    assert verdict in get_args(Verdict), f"{section}: {verdict} is no verdict"
    because = str(answer[verdict])
    return Row(
        section=section,
        by=tuple(group["by"].split()),
        kinds=tuple(group["kinds"].split()),
        verbs=tuple(group["verbs"].split()),
        what=tuple(answer.get("what", ())),
        effect=answer["effect"],
        verdict=cast(Verdict, verdict),
        because=Trust[because] if verdict == "trusted" else because,
    )
