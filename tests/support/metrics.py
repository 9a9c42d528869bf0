"""The metrics that operator, gateway and broker have, from their own registries."""

from collections.abc import Iterator

from hack.reference.metrics import SUFFIXES, build_registries, list_metrics
from prometheus_client import CollectorRegistry, ProcessCollector


def series(registry: CollectorRegistry) -> Iterator[tuple[str, set[str]]]:
    """Yield the name of every series of a process, and its labels."""
    for name, kind, labels, _ in list_metrics(registry):
        for suffix in SUFFIXES[kind]:
            yield name + suffix, {*labels, *(["le"] if suffix == "_bucket" else [])}


def known_series() -> dict[str, set[str]]:
    """The labels of all series of all processes, by name, those of a process's resources included."""
    declared = {name: labels for registry in build_registries().values() for name, labels in series(registry)}
    return declared | {
        sample.name: set() for family in ProcessCollector(registry=None).collect() for sample in family.samples
    }
