"""When messages end by SimGrid's flow model, an implementation that is not ours.

Run by the system's Python, for which Debian builds SimGrid: a `Job` as JSON on stdin, the ends in
seconds as JSON on stdout.
"""

import json
import sys
from typing import Any

import simgrid
from simgrid import Actor, Comm, Engine, Link, LinkInRoute, Mutex, Semaphore, this_actor

# bytes share links max-min and nothing else happens: no TCP windows, no factors, no part of a link
# for the acknowledgements of what goes the other way
FLUID = ("network/model:CM02", "network/TCP-gamma:0", "network/bandwidth-factor:1",
         "network/latency-factor:1", "network/weight-S:0", "network/crosstraffic:0")  # fmt: skip


UNBOUND = 1e15  # bytes/s


class Network:
    """A host for every node, and the directions of links that each two have between them."""

    def __init__(self, job: dict[str, Any]) -> None:
        zone = simgrid.NetZone.create_full_zone("network")
        self._starting = Mutex()
        self.rates = [float(steps[0][1]) for steps in job["links"].values()]  # now, in bytes/s
        self.links: list[Link] = [
            zone.create_link(name, rate).seal()
            for name, rate in zip(job["links"], self.rates, strict=True)
        ]
        self.hosts = [zone.create_host(f"node{node}", 1e9) for node in range(job["nodes"])]
        self._crossed = {(sender, receiver): way for sender, receiver, way in job["paths"]}
        for (sender, receiver), crossed in self._crossed.items():
            ends = self.hosts[sender].netpoint, self.hosts[receiver].netpoint
            way = [LinkInRoute(self.links[each]) for each in crossed]
            zone.add_route(*ends, None, None, way, False)
        zone.seal()
        for number, steps in enumerate(job["links"].values()):
            Actor.create(f"rates{number}", self.hosts[0], self._play, number, steps[1:])

    def _play(self, number: int, steps: list[tuple[float, float]]) -> None:
        """Debian's Python takes a bandwidth profile of one link only."""
        for time_s, bytes_per_s in steps:
            this_actor.sleep_until(time_s)
            self._starting.lock()
            self.rates[number] = bytes_per_s
            self.links[number].set_bandwidth(bytes_per_s)
            self._starting.unlock()

    def start(self, sender: int, receiver: int, nbytes: int) -> Comm:
        """SimGrid bounds a message for good by the rates at its start; here nothing does."""
        crossed = self._crossed[sender, receiver]
        self._starting.lock()
        for each in crossed:
            self.links[each].set_bandwidth(UNBOUND)
        message = Comm.sendto_async(self.hosts[sender], self.hosts[receiver], nbytes)
        for each in crossed:
            self.links[each].set_bandwidth(self.rates[each])
        self._starting.unlock()
        return message


def main() -> None:
    job = json.load(sys.stdin)
    engine = Engine(["referee", "--log=root.thres:critical", *(f"--cfg={each}" for each in FLUID)])
    network, messages = Network(job), job["messages"]
    done = [Semaphore(0) for _ in messages]
    ends_s = [0.0] * len(messages)
    wanted = [sum(number in after for _, after, *_ in messages) for number in range(len(messages))]

    def carry(number: int) -> None:
        start_s, after, sender, receiver, nbytes = messages[number]
        for before in after:
            done[before].acquire()
        if start_s > Engine.clock:
            this_actor.sleep_until(start_s)
        network.start(sender, receiver, nbytes).wait()
        ends_s[number] = Engine.clock
        for _ in range(wanted[number]):
            done[number].release()

    for number in range(len(messages)):
        Actor.create(f"message{number}", network.hosts[0], carry, number)
    engine.run()
    json.dump(ends_s, sys.stdout)


if __name__ == "__main__":
    main()
