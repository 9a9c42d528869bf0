"""Replays arrivals against the operator's own decisions, beside a fixed pool and a HorizontalPodAutoscaler's rule.

A simulation: pods take a log-normal time to start, executions an exponential time to run, each uses one pod, and who
finds none warm waits for the next. The pool in it is the operator's (queue, inventory, decision, refill), with a clock
of the simulation. Three policies are compared at equal cost, in pod-seconds that pods start or stand warm:

demand   the pool with `warm.max` and default options (or those given)
fixed    `warm.min` alone, the size that costs the same, in between two sizes as a mixture of both
hpa      a HorizontalPodAutoscaler on the pool's scale subresource: the share of pods that are busy against a target,
         every 15 s, up by at most 4 pods or 100%, down to the highest of 300 s; its target costs the same

No cluster is needed. The same seed gives the same figures.

    python bench/scaling.py [--seconds 3600] [--seed 1] [--png scaling.png] [--json scaling.json]
"""

import argparse
import asyncio
import heapq
import math
import random
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from harness import table, write_json

from mcp_exec_operator.inventory import Pod
from mcp_exec_operator.pool import Pool, Waiter

MAX_PODS: Final = 400
MOST_WARM: Final = 200
START_MEDIAN, START_SIGMA = 2.5, 0.35
RUN_SECONDS, END_SECONDS = 2.0, 1.5
_BURSTS = tuple(accumulate(random.Random(7).expovariate(1 / 120) for _ in range(200)))
Intensity = Callable[[float, float], float]
Outcome = dict[str, float]


def steady(at: float, whole: float) -> float:
    """Two a second."""
    return 2.0


def diurnal(at: float, whole: float) -> float:
    """A day in the trace: between almost none and four a second."""
    return 2.05 - 2.0 * math.cos(2 * math.pi * at / whole)


def bursts(at: float, whole: float) -> float:
    """Half a second, and ten a second for four seconds at irregular times, two minutes apart in the mean."""
    return 10.0 if any(0 <= at - start < 4 for start in _BURSTS) else 0.5


def on_off(at: float, whole: float) -> float:
    """Four a second for two minutes of every ten, and nothing between."""
    return 4.0 if at % 600 < 120 else 0.0


def flash_crowd(at: float, whole: float) -> float:
    """A third a second; after a third of the trace, twelve a second within twenty seconds, gone after ten minutes."""
    since = at - whole / 3
    if since < 0:
        return 0.33
    return 0.33 + 12 * min(1.0, since / 20) * math.exp(-max(0.0, since - 20) / 150)


TRACES: Final[dict[str, Intensity]] = {
    "steady": steady,
    "diurnal": diurnal,
    "bursts": bursts,
    "on-off": on_off,
    "flash crowd": flash_crowd,
}


def arrivals(intensity: Intensity, *, seconds: float, bursty: bool, seed: int) -> list[float]:
    """Times of arrival: a renewal process of unit rate, Poisson or with hyperexponential gaps (a squared coefficient
    of variation of 6), stretched so that it has the intensity."""
    rng = random.Random(seed)
    share = (1 + math.sqrt(5 / 7)) / 2

    def gap() -> float:
        if not bursty:
            return rng.expovariate(1.0)
        return rng.expovariate(2 * share) if rng.random() < share else rng.expovariate(2 * (1 - share))

    step, found, done, due = 0.05, [], 0.0, gap()
    for index in range(int(seconds / step)):
        rate = intensity(index * step, seconds)
        while rate and done + rate * step >= due:
            found.append(index * step + (due - done) / rate)
            due += gap()
        done += rate * step
    return found


@dataclass(kw_only=True)
class Hpa:
    """A HorizontalPodAutoscaler with the behaviour that Kubernetes gives it by default."""

    target: float
    every: float = 15.0
    stable: float = 300.0
    _recommended: deque[tuple[float, int]] = field(default_factory=deque)

    def replicas(self, *, busy: int, pods: int, now: float) -> int:
        """Pods that there should be in all."""
        share = busy / (pods * self.target) if pods else 1.0
        wanted = pods if abs(share - 1) <= 0.1 else math.ceil(pods * share)
        wanted = max(1, min(wanted, max(pods + 4, 2 * pods)))
        self._recommended.append((now, wanted))
        while self._recommended[0][0] < now - self.stable:
            self._recommended.popleft()
        return wanted if wanted >= pods else min(pods, max(each for _, each in self._recommended))


class Simulation:
    """One trace against one policy. Times are of the simulation's own clock, in seconds."""

    def __init__(self, *, spec: dict[str, Any], hpa: Hpa | None, seed: int) -> None:
        self.now, self.hpa, self.rng = 0.0, hpa, random.Random(seed)
        self.pool = Pool(namespace="bench", name="bench", clock=lambda: self.now)
        self.pool.configure({"metadata": {"uid": "u", "generation": 1}, "spec": {"image": "i", **spec}})
        self.pool.isolated = True
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.made = self.hits = self.asked = 0
        self.waiting: deque[tuple[float, Waiter]] = deque()
        self.waits: list[float] = []
        self.idle_seconds = 0.0
        self.replicas = 1
        self._look: float | None = None

    def at(self, moment: float, do: Callable[[], None]) -> None:
        """Something that happens at a moment."""
        self.made += 1
        heapq.heappush(self.events, (moment, self.made, do))

    def run(self, times: list[float], *, seconds: float) -> Outcome:
        """The whole trace. The first minute, in which pools fill, is not counted."""
        for moment in times:
            self.at(moment, self._arrive)
        if self.hpa is not None:
            for index in range(int(seconds / self.hpa.every)):
                self.at(index * self.hpa.every, self._autoscale)
        self.at(0.0, lambda: None)
        while self.events and self.events[0][0] < seconds:
            moment, _, do = heapq.heappop(self.events)
            counts = self.pool.inventory.counts
            self.idle_seconds += (counts.warm + counts.coming) * (moment - max(self.now, 60.0)) if moment > 60 else 0
            self.now = moment
            do()
            self._turn()
        late = sorted(self.waits) or [0.0]
        return {
            "hit rate": self.hits / max(self.asked, 1),
            "idle": self.idle_seconds,
            "p99 wait": late[math.ceil(0.99 * len(late)) - 1],
        }

    def _arrive(self) -> None:
        pod = self.pool.take()
        counted = self.now > 60
        self.asked += counted
        if pod is not None:
            self.hits += counted
            self.waits += [0.0] if counted else []
            self._use(pod)
        else:
            self.waiting.append((self.now, self.pool.wait()))

    def _use(self, pod: Pod) -> None:
        self.at(self.now + self.rng.expovariate(1 / RUN_SECONDS), lambda: self._end(pod))

    def _end(self, pod: Pod) -> None:
        self._retire(pod)
        self.pool.room_was_made()

    def _retire(self, pod: Pod) -> None:
        self.pool.inventory.retire(pod)
        self.at(self.now + END_SECONDS, lambda: self.pool.inventory.forget(pod.name))

    def _ready(self, name: str) -> None:
        self.pool.became_ready(name)
        while self.waiting and self.waiting[0][1].future.done():
            since, waiter = self.waiting.popleft()
            if since > 60:
                self.waits.append(self.now - since)
            self._use(waiter.future.result())

    def _autoscale(self) -> None:
        assert self.hpa is not None
        counts = self.pool.inventory.counts
        pods = counts.busy + counts.warm + counts.coming
        self.replicas = self.hpa.replicas(busy=counts.busy, pods=pods, now=self.now)

    def _turn(self) -> None:
        """What the pool's keeper does whenever something happened."""
        pool = self.pool
        assert pool.spec is not None
        if self.hpa is not None:
            warm = min(max(0, self.replicas - pool.inventory.counts.busy), MOST_WARM)
            if warm != pool.spec.warm.min:
                pool.spec = pool.spec.model_copy(update={"warm": pool.spec.warm.model_copy(update={"min": warm})})
        pool.decide(self.now)
        for pod in pool.surplus():
            self._retire(pod)
        for _ in range(pool.missing(self.now)):
            self.made += 1
            name = f"p{self.made}"
            pool.inventory.expect(name, template=pool.template, now=self.now)
            pool.inventory.created(name, uid=name, now=self.now)
            start = START_MEDIAN * math.exp(START_SIGMA * self.rng.gauss(0, 1))
            self.at(self.now + start, lambda name=name: self._ready(name))  # type: ignore[misc]
        looks = [pool.missing_at(self.now), self.now + look if (look := pool.look_in()) is not None else None]
        again = min((max(each, self.now + 0.01) for each in looks if each is not None), default=None)
        if again is not None and (self._look is None or not self.now < self._look <= again):
            self._look = again
            self.at(again, lambda: None)


def simulate(
    times: list[float], *, seconds: float, spec: dict[str, Any], hpa: float | None = None, seed: int
) -> Outcome:
    """One trace against one policy."""
    policy = Hpa(target=hpa) if hpa is not None else None
    spec = {"maxPods": MAX_PODS, **spec}
    return Simulation(spec=spec, hpa=policy, seed=seed).run(times, seconds=seconds)


def frontier(run: Callable[[float], Outcome], values: list[float], cost: float) -> list[Outcome]:
    """What a policy attains at several costs, cheapest first, with two close to the cost that is asked for."""
    found = [run(value) | {"value": value} for value in values]
    return sorted(found, key=lambda each: each["idle"])


def at_cost(line: list[Outcome], cost: float) -> Outcome:
    """The point of a line at a cost, between the two that enclose it as a mixture of both."""
    costs = [each["idle"] for each in line]
    index = min(max(bisect_left(costs, cost), 1), len(line) - 1)
    low, high = line[index - 1], line[index]
    span = high["idle"] - low["idle"]
    share = min(1.0, max(0.0, (cost - low["idle"]) / span)) if span else 0.0
    return {name: low[name] + share * (high[name] - low[name]) for name in low}
