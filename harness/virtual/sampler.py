"""links.csv and events of a simulated network, as a real network's player would write them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

from harness.records.run_directory import Events, LinkSample, Table
from harness.virtual.costs import Costs
from harness.virtual.link_states import LinkStates
from profiles.base import Link

MOST_LINKS = 128  # up to so many links, all are sampled


@dataclass
class Sampler:
    """Writer of one row per link every `sample_s` emulated seconds. Bytes spread over their step.

    Of more than MOST_LINKS links, that many are chosen evenly, with rows at ends of steps.
    """

    costs: Costs
    table: Table
    events: Events
    sample_s: float
    begins_s: float
    before: Mapping[str, float] | None = None  # bytes by link; None: nothing has been told yet
    _rows: int = field(init=False)  # of each link, written or before the beginning
    _time_s: float = field(init=False)
    _carried: dict[str, float] = field(default_factory=dict, init=False)  # at that time
    _told: dict[str, Link] = field(default_factory=dict, init=False)
    _flows: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._rows, self._time_s = ceil(self.begins_s / self.sample_s), self.begins_s
        link_states = self.costs.link_states
        self._names = link_states.routes.names
        every = ceil(len(self._names) / MOST_LINKS)
        self._shown = slice(None, None, every)
        if every == 1:  # it looks back at times that have gone by in the collectives' states
            link_states = LinkStates(link_states.routes, link_states.update_s)
        self._link_states = link_states
        if self.before is not None:
            state = link_states.at(max(0, self._rows - 1) * self.sample_s)
            self._told = dict(zip(self._names, state.links[:-1], strict=True))
            self._flows = state.flows

    def up_to(self, time_s: float) -> None:
        """Write the rows that are due. `time_s` is the end of a step."""
        now = self.costs.carried
        if len(self._names) > MOST_LINKS:
            if self._rows * self.sample_s <= time_s:
                self.table.append(*self._sample(time_s, now, time_s))
                self._rows = int(time_s / self.sample_s) + 1
            return
        rows = []
        while (due_s := self._rows * self.sample_s) <= time_s:
            rows += self._sample(due_s, now, time_s)
            self._rows += 1
        self.table.append(*rows)
        self._time_s, self._carried = time_s, now

    def _sample(self, due_s: float, now: dict[str, float], end_s: float) -> list[LinkSample]:
        state = self._link_states.at(due_s)
        links = dict(zip(self._names[self._shown], state.links[:-1][self._shown], strict=True))
        self._tell(due_s, links, state.flows)
        went_s = end_s - self._time_s
        share = (due_s - self._time_s) / went_s if went_s else 1.0
        return [
            LinkSample(
                time_s=due_s,
                link=name,
                planned_mbit=link.rate_mbit,
                applied_mbit=link.rate_mbit,
                bytes=round(self._bytes(name, now, share)),
                backlog_bytes=0,
                drops=0,
            )
            for name, link in links.items()
        ]

    def _bytes(self, link: str, now: dict[str, float], share: float) -> float:
        """Return the bytes that `link` has carried after `share` of the step."""
        before, after = self._carried.get(link, 0.0), now.get(link, 0.0)
        return (self.before or {}).get(link, 0.0) + (before + share * (after - before))

    def _tell(self, time_s: float, links: dict[str, Link], flows: int) -> None:
        """Record changes of the conditions, and competing flows that start and stop."""
        changed = {n: link._asdict() for n, link in links.items() if self._told.get(n) != link}
        if changed and self._told and len(self._names) <= MOST_LINKS:
            self.events.append(
                "conditions", time_s, planned_s=time_s, links=changed, applied=True, late_ms=0.0
            )
        pairs = self._link_states.routes.pairs()
        for number in range(min(flows, self._flows), max(flows, self._flows)):
            event = "flow_started" if flows > self._flows else "flow_stopped"
            for pair in pairs:
                flow = f"{pair}.{number}"
                self.events.append(event, time_s, flow=flow, pair=pair, planned_s=time_s)
        self._told, self._flows = links, flows
