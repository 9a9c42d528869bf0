"""Simulation of scaling: the operator's decisions compared with a fixed pool and a HorizontalPodAutoscaler.

Pods take a log-normal time to start and executions an exponential time to run. Each execution uses one pod, and if no
pod is warm it waits for the next one. The simulation runs the operator's own pool (queue, pods, decision, refill) with
its own clock. Three policies are compared at equal cost, in pod-seconds of starting and warm pods:

demand   the pool with `warm.max` and default options (or those given)
fixed    only `warm.min`, the size that costs the same, in between two sizes as a weighted mean of both
hpa      a HorizontalPodAutoscaler on the pool's scale subresource: the share of pods that are busy against a target,
         every 15 s, up by at most 4 pods or 100%, down to the highest of 300 s, with the target that costs the same

No cluster is needed. The same seed gives the same figures.

For `fixed` and `hpa` the best result at that cost or less counts.

    python bench/scaling.py [--seconds 3600] [--seed 1] [--png scaling.png] [--json scaling.json]
"""

import asyncio
import heapq
import json
import math
import random
import sys
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from harness import parser, table, write_json
from traces import TRACES, arrivals

from mcp_exec_operator.core.pods.pod import Pod
from mcp_exec_operator.core.pools.pool import Pool
from mcp_exec_operator.core.queueing.wait_queue import Waiter

POLICIES: Final = ("demand", "fixed", "hpa")
MAX_PODS: Final = 400
LEAST: Final = 2
"""Warm pods (demand) or pods in total (hpa) that the scaling policies keep without demand."""
MOST_WARM: Final = 200
FILLING: Final = 60.0
"""Seconds at the beginning that are not counted, while pools fill."""
START_MEDIAN, START_SIGMA = 2.5, 0.35
RUN_SECONDS, END_SECONDS = 2.0, 1.5
Outcome = dict[str, float]


@dataclass(kw_only=True)
class SimulatedHpa:
    """A HorizontalPodAutoscaler with Kubernetes' default behaviour."""

    target: float
    every: float = 15.0
    stable: float = 300.0
    _recommended: deque[tuple[float, int]] = field(default_factory=deque)

    def replicas(self, *, busy: int, pods: int, now: float) -> int:
        """Return the desired number of pods."""
        share = busy / (pods * self.target) if pods else 1.0
        wanted = pods if abs(share - 1) <= 0.1 else math.ceil(pods * share)
        wanted = max(LEAST, min(wanted, max(pods + 4, 2 * pods)))
        self._recommended.append((now, wanted))
        while self._recommended[0][0] < now - self.stable:
            self._recommended.popleft()
        return wanted if wanted >= pods else min(pods, max(each for _, each in self._recommended))


class ScalingSimulation:
    """One trace against one policy. Times are of the simulation's own clock, in seconds."""

    def __init__(self, *, spec: dict[str, Any], hpa: SimulatedHpa | None, seed: int) -> None:
        self.now, self.hpa, self.rng = 0.0, hpa, random.Random(seed)
        self.pool = Pool(namespace="bench", name="bench", clock=lambda: self.now)
        self.pool.configure({"metadata": {"uid": "u", "generation": 1}, "spec": {"image": "i", **spec}})
        self.pool.isolation.verify("policy")
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.made = self.hits = self.asked = 0
        self.waiting: deque[tuple[float, Waiter]] = deque()
        self.waited = 0.0
        self.idle_seconds = 0.0
        self.replicas = 1
        self._look: float | None = None

    def at(self, moment: float, do: Callable[[], None]) -> None:
        """Schedule a callback at a moment."""
        self.made += 1
        heapq.heappush(self.events, (moment, self.made, do))

    def run(self, times: list[float], *, seconds: float) -> Outcome:
        """Run the whole trace. The time while pools fill is not counted."""
        for moment in times:
            self.at(moment, self._arrive)
        if self.hpa is not None:
            for index in range(int(seconds / self.hpa.every)):
                self.at(index * self.hpa.every, self._autoscale)
        self.at(0.0, lambda: None)
        while self.events and self.events[0][0] < seconds:
            moment, _, do = heapq.heappop(self.events)
            counts = self.pool.counts
            self.idle_seconds += (counts.warm + counts.coming) * max(0.0, moment - max(self.now, FILLING))
            self.now = moment
            do()
            self._turn()
        return {
            "hit rate": self.hits / max(self.asked, 1),
            "idle": self.idle_seconds,
            "mean wait": self.waited / max(self.asked, 1),
        }

    def _arrive(self) -> None:
        pod = self.pool.take()
        counted = self.now > FILLING
        self.asked += counted
        if pod is not None:
            self.hits += counted
            self._use(pod)
        else:
            self.waiting.append((self.now, self.pool.join()))

    def _use(self, pod: Pod) -> None:
        self.at(self.now + self.rng.expovariate(1 / RUN_SECONDS), lambda: self._end(pod))

    def _end(self, pod: Pod) -> None:
        self._retire(pod)
        self.pool.refill_now()

    def _retire(self, pod: Pod) -> None:
        self.pool.pods.retire(pod)
        self.at(self.now + END_SECONDS, lambda: self.pool.pods.forget(pod.name))

    def _ready(self, name: str) -> None:
        self.pool.mark_ready(name)
        while self.waiting and self.waiting[0][1].future.done():
            since, waiter = self.waiting.popleft()
            if since > FILLING:
                self.waited += self.now - since
            self._use(waiter.future.result())

    def _autoscale(self) -> None:
        assert self.hpa is not None
        counts = self.pool.counts
        pods = counts.busy + counts.warm + counts.coming
        self.replicas = self.hpa.replicas(busy=counts.busy, pods=pods, now=self.now)

    def _turn(self) -> None:
        """Reconcile the pool as its controller does after each event."""
        pool = self.pool
        shape, spec = pool.shape, pool.shape.spec
        assert spec is not None
        if self.hpa is not None:
            warm = min(max(0, self.replicas - pool.counts.busy), MOST_WARM)
            if warm != spec.warm.min:
                spec = spec.model_copy(update={"warm": spec.warm.model_copy(update={"min": warm})})
                pool.shape = replace(shape, spec=spec)
        plan = pool.plan_pods(now=self.now, max_create=5000)
        for pod in plan.delete:
            self._retire(pod)
        for _ in range(plan.create):
            self.made += 1
            name = f"p{self.made}"
            pool.pods.add_expectation(name, template=pool.shape.template_hash, now=self.now)
            pool.pods.confirm_created(name, uid=name, now=self.now)
            start = START_MEDIAN * math.exp(START_SIGMA * self.rng.gauss(0, 1))
            self.at(self.now + start, lambda name=name: self._ready(name))  # type: ignore[misc]
        looks = [plan.next_at, self.now + look if (look := pool.reconsider_after()) is not None else None]
        again = min((max(each, self.now + 0.01) for each in looks if each is not None), default=None)
        if again is not None and (self._look is None or not self.now < self._look <= again):
            self._look = again
            self.at(again, lambda: None)


def simulate(
    times: list[float], *, seconds: float, spec: dict[str, Any], hpa: float | None = None, seed: int
) -> Outcome:
    """Run one trace against one policy."""
    policy = SimulatedHpa(target=hpa) if hpa is not None else None
    spec = {"maxPods": MAX_PODS, **spec}
    return ScalingSimulation(spec=spec, hpa=policy, seed=seed).run(times, seconds=seconds)


def compute_line(run: Callable[[float], Outcome], values: list[float], *, cost: float, whole: bool) -> list[Outcome]:
    """Compute a policy's results by cost, cheapest first, with values close to the one that has the cost.

    `whole` says that the policy's value is a whole number.
    """
    found = {value: run(value) for value in values}
    for _ in range(4):
        ordered = sorted(found, key=lambda value: found[value]["idle"])
        index = min(max(bisect_left([found[value]["idle"] for value in ordered], cost), 1), len(ordered) - 1)
        middle = (ordered[index - 1] + ordered[index]) / 2
        middle = float(round(middle)) if whole else middle
        if middle in found:
            break
        found[middle] = run(middle)
    line: list[Outcome] = []
    for outcome in sorted(found.values(), key=lambda each: each["idle"]):
        better = not line or outcome["hit rate"] >= line[-1]["hit rate"]
        line.append(outcome if better else line[-1] | {"idle": outcome["idle"]})
    return line


def interpolate(line: list[Outcome], cost: float) -> Outcome:
    """Return the point of a line at a cost, interpolated between its neighbours."""
    index = min(max(bisect_left([each["idle"] for each in line], cost), 1), len(line) - 1)
    low, high = line[index - 1], line[index]
    span = high["idle"] - low["idle"]
    share = min(1.0, max(0.0, (cost - low["idle"]) / span)) if span else 1.0
    return {name: low[name] + share * (high[name] - low[name]) for name in low}


def compare(name: str, *, bursty: bool, seconds: float, seed: int, options: dict[str, Any]) -> dict[str, Any]:
    """Run one trace against all policies: the result of each at the cost of the first, and their lines for a plot."""
    times = arrivals(TRACES[name], seconds=seconds, bursty=bursty, seed=seed)

    def demand(headroom: float | None) -> Outcome:
        scaling = options if headroom is None else options | {"headroom": int(headroom)}
        warm = {"min": LEAST, "max": MOST_WARM}
        return simulate(times, seconds=seconds, spec={"warm": warm, "scaling": scaling}, seed=seed)

    def fixed(size: float) -> Outcome:
        return simulate(times, seconds=seconds, spec={"warm": {"min": int(size)}}, seed=seed)

    def hpa(target: float) -> Outcome:
        return simulate(times, seconds=seconds, spec={"warm": {"min": LEAST}}, hpa=target, seed=seed)

    ours = demand(None)
    cost = ours["idle"]
    lines = {
        "demand": sorted([ours, *(demand(each) for each in (0, 8, 20))], key=lambda each: each["idle"]),
        "fixed": compute_line(fixed, [1, 4, 8, 16, 32, 64], cost=cost, whole=True),
        "hpa": compute_line(hpa, [0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9], cost=cost, whole=False),
    }
    equal = {"demand": ours, **{policy: interpolate(lines[policy], cost) for policy in ("fixed", "hpa")}}
    found = {"trace": name, "bursty": bursty, "arrivals": len(times), "equal": equal, "lines": lines}
    return found | {"idle pods": round(cost / (seconds - FILLING), 1)}


def format_row(found: dict[str, Any]) -> dict[str, Any]:
    """Format a comparison as a row of the table."""
    equal = found["equal"]
    return {
        "arrivals": found["arrivals"],
        "idle pod-s": round(equal["demand"]["idle"]),
        "idle pods": found["idle pods"],
        **{f"{policy} hits": f"{equal[policy]['hit rate']:.1%}" for policy in POLICIES},
        **{f"{policy} wait": f"{equal[policy]['mean wait'] * 1000:.0f} ms" for policy in POLICIES},
    }


def plot(found: dict[str, dict[str, Any]], path: Path) -> None:
    """Draw one panel per trace: warm hits over idle pod-seconds, one line per policy."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(2, len(TRACES), figsize=(4 * len(TRACES), 7), sharey=True, squeeze=False)
    for index, (name, each) in enumerate(found.items()):
        panel = panels[index % 2][index // 2]
        for policy, style in zip(POLICIES, ("o-", "s--", "^:"), strict=True):
            line = each["lines"][policy]
            costs = [point["idle"] / 1000 for point in line]
            panel.plot(costs, [100 * point["hit rate"] for point in line], style, label=policy, markersize=4)
        ours = each["equal"]["demand"]
        panel.plot(ours["idle"] / 1000, 100 * ours["hit rate"], "*", color="black", markersize=13, label="its defaults")
        panel.set(title=name, xlabel="idle pod-seconds, thousands", xlim=(0, 2.5 * ours["idle"] / 1000))
        panel.grid(alpha=0.3)
    for row in panels:
        row[0].set_ylabel("warm hits, %")
    panels[0][0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


async def main() -> None:
    """Run the command."""
    options = parser(__doc__)
    options.add_argument("--seconds", type=float, default=3600.0, help="length of each trace (default: 3600)")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--trace", choices=list(TRACES), action="append", help="run only this trace (may be repeated)")
    options.add_argument("--scaling", type=json.loads, default={}, metavar="JSON", help="fields of spec.scaling")
    options.add_argument("--png", type=Path, metavar="FILE", help="file for a plot of warm hits over idle pod-seconds")
    given = options.parse_args()
    found = {}
    for name in given.trace or TRACES:
        for bursty in (False, True):
            label = f"{name}, {'bursty' if bursty else 'Poisson'}"
            found[label] = compare(name, bursty=bursty, seconds=given.seconds, seed=given.seed, options=given.scaling)
            print(label, format_row(found[label]), file=sys.stderr, flush=True)
    print(table({label: format_row(each) for label, each in found.items()}))
    write_json(given.json, {"seconds": given.seconds, "seed": given.seed, "scaling": given.scaling, "traces": found})
    if given.png is not None:
        plot(found, given.png)


if __name__ == "__main__":
    asyncio.run(main())  # the pool's queue consists of futures
