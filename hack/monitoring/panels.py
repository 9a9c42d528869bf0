"""Types of boards: a board has rows of panels, and a panel shows queries."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

Unit = Literal["short", "s", "bytes", "percentunit", "reqps", "ops", "cps", "none"]
"""Units by Grafana's names."""

FILTER: Final = 'namespace=~"$namespace"'
"""Matcher of the namespaces that the reader chose. Those of releases and pools are added to each selector."""
WINDOW: Final = "$__rate_interval"
"""Window of a rate: four scrape intervals or more."""
SPAN: Final = "$__range"
"""The time span that the board shows."""


@dataclass(frozen=True, kw_only=True)
class Query:
    """A query in PromQL, and the name of its series in the legend: labels in double braces."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A panel with its title, and one line that says how to read it."""

    title: str
    about: str
    queries: tuple[Query, ...]
    unit: Unit = "short"
    stacked: bool = False
    bars: bool = False
    """Whether it shows one bar for each series, instead of their course."""
    maximum: float | None = None
    """Top of the axis. None means that of the data."""


@dataclass(frozen=True, kw_only=True)
class Board:
    """A board. Panels are as wide as a third of the page."""

    name: str
    """Name of its file, and part of its uid."""
    title: str
    about: str
    panels: tuple[Panel, ...]
    has_namespaces: bool = True
    """Whether the reader can choose namespaces."""

    def list_queries(self) -> Iterator[str]:
        """Yield all queries of the board."""
        for panel in self.panels:
            for query in panel.queries:
                yield query.expr


def substitute(expr: str, *, window: str, span: str, namespace: str = ".*") -> str:
    """Return a query of a board with values in place of Grafana's variables."""
    chosen = {WINDOW: window, SPAN: span, "$namespace": namespace, "$release": ".*", "$pool": ".*"}
    for variable, value in chosen.items():
        expr = expr.replace(variable, value)
    return expr


def quantiles(buckets: str, *values: float, by: str = "", unit_label: str = "") -> tuple[Query, ...]:
    """Return a query for each quantile of a histogram. `buckets` selects its buckets, `by` is a further label."""
    labels = f"le, {by}" if by else "le"
    name = unit_label or (f"{{{{{by}}}}} " if by else "")
    return tuple(
        Query(
            expr=f"histogram_quantile({value}, sum by ({labels}) (rate({buckets}[{WINDOW}])))",
            legend=f"{name}p{value * 100:g}",
        )
        for value in values
    )


def rate_by(selector: str, label: str) -> Query:
    """Return the rate of a counter by one label."""
    return Query(expr=f"sum by ({label}) (rate({selector}[{WINDOW}]))", legend=f"{{{{{label}}}}}")
