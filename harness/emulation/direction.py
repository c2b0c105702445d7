"""One shaped direction of a network: its plan, its settings, and the kernel's state."""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from pyroute2 import IPRoute

from harness.emulation import impairments, links, per_source_netem
from harness.emulation.packets import BURST_US
from harness.emulation.probe import Ends
from profiles.base import Link

_telling = threading.Lock()  # held while intention and kernel may differ


class Source(NamedTuple):
    """Nodes whose packets are delayed for longer than the link's own delay."""

    addresses: tuple[str, ...]
    delay_ms: float  # emulated, added


class ShapingPoint(NamedTuple):
    """Interfaces in the switch at which a direction is shaped, by index."""

    shaper: int  # HTB and its queue are at this interface's egress
    impairer: int | None = None  # netem is at this one's; None: nothing but the rate is shaped
    sources: Sequence[Source] = ()  # every node's address is in one of them, or there are none
    root: int | None = None  # handle of the HTB that is there already; None: it is to be added


class Direction:
    """One shaped direction of a link, which follows `conditions`.

    Rates and delays of the plan are emulated, those of the kernel are real.
    """

    def __init__(
        self,
        name: str,
        place: ShapingPoint,
        conditions: Callable[[float], Link],
        dilation: float,
        queue_bytes: int,
        ends: Ends,
    ) -> None:
        self.name, self.place, self.conditions = name, place, conditions
        self.dilation, self.queue_bytes = dilation, queue_bytes
        self.ends = ends  # of a flow that crosses this direction and no other shaper
        self.planned: Link = conditions(0.0)
        self.intended: Link = self.planned  # last conditions given to the kernel
        self.applied_mbit = 0.0  # emulated, as read back
        self._recent_mbit = 0.0  # real, highest since it was last taken

    def real(self, link: Link) -> Link:
        """Return dilated conditions, which are the kernel's settings."""
        return link._replace(
            rate_mbit=link.rate_mbit / self.dilation,
            delay_ms=link.delay_ms * self.dilation,
            jitter_ms=link.jitter_ms * self.dilation,
        )

    def delay_ms(self, address: str) -> float:
        """Return the planned delay at time 0, emulated, for packets from `address`."""
        added = [s.delay_ms for s in self.place.sources if address in s.addresses]
        return self.conditions(0.0).delay_ms + sum(added)

    def set_up(self, ip: IPRoute) -> None:
        """Add shaper and netem, with the conditions of time 0."""
        link, impairer = self.real(self.intended), self.place.impairer
        if self.place.root is None:
            links.add_root(ip, self.place.shaper, self.name)
        rate_mbit, shaper = link.rate_mbit, self.place.shaper
        links.add_class(ip, shaper, self.name, rate_mbit, self.queue_bytes, self._root)
        if impairer is not None and self.place.sources:
            per_source_netem.impair(ip, impairer, self.name, self._classes(self.intended))
        elif impairer is not None:
            impairments.impair(ip, impairer, self.name, link)
        self.holds(self._held(ip).rate_mbit)

    def open(self, ip: IPRoute) -> None:
        """Remove rate limit, delay and loss until conditions are applied."""
        self.apply(ip, Link(links.HIGHEST_MBIT * self.dilation))

    def clear(self, ip: IPRoute) -> None:
        """Keep only the rate, without delay or loss, until conditions are applied."""
        self.apply(ip, Link(self.intended.rate_mbit))

    def apply(self, ip: IPRoute, planned: Link) -> bool:
        """Apply conditions and read them back. Return False if they were already in force."""
        return apply(ip, [(self, planned)]) == 1

    def impair(self, ip: IPRoute, planned: Link) -> None:
        """Apply delay, jitter, loss and reordering of `planned` to the kernel, but not its rate.

        Raise ValueError if this direction has no netem, because its profile announced none.
        """
        impairer = self.place.impairer
        if impairer is None:
            raise ValueError(f"{self.name} has no netem for {planned}: beyond the extremes()")
        for number, each in enumerate(self._classes(planned)):
            per_source_netem.change(ip, impairer, self.name, number, each.link)
        if not self.place.sources:
            impairments.change(ip, impairer, self.name, self.real(planned))

    def _classes(self, planned: Link) -> list[per_source_netem.Sources]:
        """Return addresses and conditions by source, in real units, with its own delay added."""
        return [
            per_source_netem.Sources(
                source.addresses,
                self.real(planned._replace(delay_ms=planned.delay_ms + source.delay_ms)),
            )
            for source in self.place.sources
        ]

    def holds(self, read_mbit: float) -> None:
        """Record `read_mbit`, the rate in real Mbit/s that was read back from the kernel."""
        self.applied_mbit = read_mbit * self.dilation
        self._recent_mbit = max(self._recent_mbit, read_mbit)

    def take_highest_mbit(self) -> float:
        """Return the highest rate recorded since the last call, in real Mbit/s, and start anew."""
        now_mbit = self.applied_mbit / self.dilation
        highest, self._recent_mbit = max(self._recent_mbit, now_mbit), now_mbit
        return highest

    def problems(self, ip: IPRoute) -> list[str]:
        """List differences between the kernel's state and the intention, one line each."""
        found = []
        with _telling:
            rate = links.rate_bytes(self.real(self.intended).rate_mbit)
            shape = links.Shape(rate / 125_000, BURST_US, self.queue_bytes)
            try:
                if (held := self._held(ip)) != shape:
                    found.append(f"{self.name} is {held}, intended {shape}")
                for netem, intended in self._netems(ip):
                    if not netem.agrees(intended):
                        found.append(f"{self.name} is {netem}, intended {intended}")
            except links.NetworkError as error:
                found.append(str(error))
        return found

    def credit_bytes(self, highest_mbit: float) -> float:
        """Return the bytes of the shaper's burst, which may pass in addition to its rate.

        `highest_mbit` is the highest real rate, in Mbit/s. A burst lasts BURST_US at that rate.
        """
        return highest_mbit * 125_000 * BURST_US / 1e6

    @property
    def shaper(self) -> links.Shaper:
        return links.Shaper(self.name, self.place.shaper, self._root)

    @property
    def _root(self) -> int:
        return links.ROOT if self.place.root is None else self.place.root

    def _held(self, ip: IPRoute) -> links.Shape:
        return links.read_shape(ip, self.place.shaper, self.name, self._root)

    def _netems(self, ip: IPRoute) -> list[tuple[impairments.Impairment, impairments.Impairment]]:
        """Return every netem as the kernel holds it, and as intended."""
        if self.place.impairer is None:
            return []
        classes = self._classes(self.intended)
        if not classes:
            held = impairments.read(ip, self.place.impairer, self.name)
            return [(held, impairments.intended(self.real(self.intended)))]
        return [
            (
                per_source_netem.read(ip, self.place.impairer, self.name, number),
                impairments.intended(each.link),
            )
            for number, each in enumerate(classes)
        ]

    def describe(self, ip: IPRoute) -> dict[str, Any]:
        """Return the settings that the kernel holds, in real units."""
        held = self._held(ip)._asdict()
        netems = [netem._asdict() for netem, _ in self._netems(ip)]
        return held | {"kind": "htb + bfifo", "netem": netems}


def apply(ip: IPRoute, wanted: Iterable[tuple[Direction, Link]]) -> int:
    """Apply conditions to directions at once, read them back, and count those that changed.

    ValueError means that a value does not fit the kernel's fields, and nothing was changed.
    NetworkError names directions that the kernel refused. The others are changed, and their
    conditions stay intended.
    """
    changing = [
        (direction, planned) for direction, planned in wanted if planned != direction.intended
    ]
    reshaped, impaired = [], []
    for direction, planned in changing:
        new, old = direction.real(planned), direction.real(direction.intended)
        if links.rate_bytes(new.rate_mbit) != links.rate_bytes(old.rate_mbit):
            reshaped.append((direction, new.rate_mbit))
        if new[1:] != old[1:]:
            impaired.append((direction, planned))
    with _telling:
        for direction, planned in changing:
            direction.intended = planned
        held_mbit = links.change_rates(
            ip, [(direction.shaper, rate) for direction, rate in reshaped]
        )
        for (direction, _), read_mbit in zip(reshaped, held_mbit, strict=True):
            direction.holds(read_mbit)
        for direction, planned in impaired:
            direction.impair(ip, planned)
    return len(changing)
