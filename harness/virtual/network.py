"""Virtual time as a choice of network: parameters of the cost model instead of real links."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from math import inf
from typing import Any, ClassVar

from harness.config import device_costs, queues
from harness.config.device_costs import Given
from harness.config.network import check_halves, check_nodes, on_left
from harness.config.sites import Sites, check_sites, sites_of
from harness.virtual.costs import Costs
from harness.virtual.link_states import BYTES_PER_MBIT, LinkState, LinkStates
from harness.virtual.noise import MOST_LATENCY_NOISE, MOST_NOISE, Noise
from harness.virtual.ring_finish import packet_bytes
from harness.virtual.routes import DumbbellRoutes, Routes, SiteRoutes, StarRoutes
from harness.virtual.tcp_flows import MOST_SEGMENT_BYTES, TcpFlows
from profiles.base import Profile
from profiles.limits import check_between, check_choice, check_mbit, check_whole

MOST_WORKERS = 10_000
MOST_LATENCY_S = 10.0
MOST_SCALE = 1e6
MOST_FLOWS = 1024  # of a message
LEAST_WINDOW_BYTES, MOST_WINDOW_BYTES = 1000, 1 << 32
MOST_MESSAGE_BYTES = 65_536  # limit on the overhead of a message
MOST_DRAWN = 1000  # steps in timeline.csv: a row for each part of each, of each rank
MOST_REPEATED = 1000  # exchanges that are remembered
PERIOD_S = (0.001, 3600.0)


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """A star: every node's up- and downlink follow the profile. All times are emulated seconds."""

    in_process: ClassVar[bool] = True
    only_times: ClassVar[frozenset[str]] = frozenset(  # depend on these fields, not compression
        "alpha_s operation_s wake_s burst_s packet_s efficiency noise exchange_noise latency_noise "
        "sites site_delays_ms regions queue_ms queue_bytes flows flow_mbit window_bytes "
        "initial_window_bytes segment_bytes segment_s message_bytes efficiencies update_s "
        "sample_s timeline_steps fitted_on in_place_of left access".split()
    )

    alpha_s: float = 0.0002
    operation_s: float = 0.0002
    wake_s: float = 0.0
    burst_s: float = 0.0
    packet_s: float = 0.0
    efficiency: float = 0.956
    efficiencies: Any = None
    flows: int = 1
    flow_mbit: float | None = None
    window_bytes: int | None = None
    initial_window_bytes: int | None = None
    segment_bytes: int | None = MOST_SEGMENT_BYTES
    segment_s: float = 0.0
    message_bytes: float = 0.0
    noise: float = 0.0
    exchange_noise: float = 0.0
    latency_noise: float = 0.0
    compress_scale: float = 1.0
    device: Any = None
    real_seconds: bool = False
    cores: int | None = None
    queue_ms: float | None = 50.0
    queue_bytes: int | None = None
    update_s: float = 0.1
    sample_s: float = 0.25
    timeline_steps: int = 3
    threads: int = 1
    alike: bool = False
    repeat: int = 12
    fitted_on: str | None = None
    in_place_of: str | None = None

    def __post_init__(self) -> None:
        for name in ("alpha_s", "operation_s", "wake_s", "burst_s", "packet_s", "segment_s"):
            check_between(0, MOST_LATENCY_S, **{name: getattr(self, name)})
        check_between(0.01, 1, efficiency=self.efficiency)
        check_between(0, MOST_MESSAGE_BYTES, message_bytes=self.message_bytes)
        _check_efficiencies(self.efficiencies)
        check_whole(1, MOST_FLOWS, flows=self.flows)
        if self.flow_mbit is not None:
            check_mbit(flow_mbit=self.flow_mbit)
        for name in ("window_bytes", "initial_window_bytes", "segment_bytes"):
            if (told := getattr(self, name)) is not None:
                check_whole(LEAST_WINDOW_BYTES, MOST_WINDOW_BYTES, **{name: told})
        check_between(0, MOST_NOISE, noise=self.noise, exchange_noise=self.exchange_noise)
        check_between(0, MOST_LATENCY_NOISE, latency_noise=self.latency_noise)
        check_between(0, MOST_SCALE, compress_scale=self.compress_scale)
        if self.device is not None:
            device_costs.check(self.device)
        check_between(*PERIOD_S, update_s=self.update_s, sample_s=self.sample_s)
        if self._has_queues:
            queues.check(self.queue_ms, self.queue_bytes)
        check_whole(0, MOST_DRAWN, timeline_steps=self.timeline_steps)
        check_whole(1, 1024, threads=self.threads)
        check_whole(0, MOST_REPEATED, repeat=self.repeat)
        if self.cores is not None:
            check_whole(1, 1024, cores=self.cores)
        check_choice((True, False), alike=self.alike, real_seconds=self.real_seconds)

    def check(self, nodes: int, profile: Profile, dilation: float) -> None:
        """Raise ValueError for settings that cannot be simulated."""
        if not 1 <= nodes <= MOST_WORKERS:
            raise ValueError(f"nodes must be in [1, {MOST_WORKERS}], got {nodes}")

    def machines_of_run(self) -> int:
        return 1

    def gpus(self, workers: int) -> int:
        """Return 1, the number of GPUs of a run in virtual time: all workers share one."""
        return 1

    def place(self, run_id: str) -> str:
        """Return the folder of a run, below the experiment's folder."""
        return run_id

    def routes(self, profile: Profile, nodes: int) -> Routes:
        return StarRoutes(profile, nodes)

    def costs(
        self,
        profile: Profile,
        nodes: int,
        workers_per_node: int,
        dilation: float = 1.0,
        seed: int = 0,
    ) -> Costs:
        """Build the cost model of a run on `nodes` nodes."""
        scale = self._scale(dilation)
        oversubscription = self.cpu_oversubscription(nodes * workers_per_node)
        return Costs(
            link_states=LinkStates(self.routes(profile, nodes), scale * self.update_s),
            workers_per_node=workers_per_node,
            alpha_s=scale * oversubscription * self.alpha_s,
            operation_s=scale * self.operation_s,
            efficiency=self.efficiency,
            queue_bytes=self._queue_bytes(profile),
            noise=Noise(self.noise, seed, self.latency_noise, self.exchange_noise),
            wake_s=scale * self.wake_s,
            cpu_oversubscription=oversubscription,
            burst_s=scale * self.burst_s,
            packet_bytes=packet_bytes(
                scale * self.packet_s, profile.extremes().highest_mbit * BYTES_PER_MBIT
            ),
            tcp=self._tcp(scale),
            efficiencies=sorted(
                (float(mbit) * BYTES_PER_MBIT, share)
                for mbit, share in (self.efficiencies or {}).items()
            ),
        )

    def _tcp(self, scale: float) -> TcpFlows:
        return TcpFlows(
            flows=self.flows,
            flow_bytes_per_s=_most(self.flow_mbit and self.flow_mbit * BYTES_PER_MBIT),
            window_bytes=_most(self.window_bytes),
            initial_window_bytes=_most(self.initial_window_bytes),
            segment_bytes=self.segment_bytes or 0,
            segment_s=scale * self.segment_s,
            message_bytes=self.message_bytes,
        )

    def _queue_bytes(self, profile: Profile) -> int:
        if not self._has_queues:
            return 0
        return queues.bytes_of(self.queue_ms, self.queue_bytes, profile)

    @property
    def _has_queues(self) -> bool:
        """True if flows share queues as real packets do. Otherwise no flow shares a queue."""
        return self.queue_ms is not None or self.queue_bytes is not None

    def compression(
        self,
        compressor: str,
        workers: int,
        dilation: float,
        represented: Callable[[], int | None] = lambda: None,
    ) -> Given | None:
        """Return the cost of compressing with `compressor`, a file name of compressors/.

        The cost comes from the settings of the emulated device. Return None if they have none:
        compression is then timed on this machine. `workers` and `dilation` scale the seconds.
        `represented` returns how many elements the stand-in's original model has, or None. It is
        not called if the device's times are real seconds of a machine (`real_seconds`).
        """
        scale = self._scale(dilation) * self.cpu_oversubscription(workers)
        found = device_costs.given(compressor, self.device or {}, scale)
        if found is None or self.real_seconds:
            return found
        return replace(found, represented=represented())

    def seconds_per_second(self, workers: int, dilation: float) -> float:
        """Return the emulated seconds per second of measured compression."""
        return self.compress_scale * self.cpu_oversubscription(workers) / dilation

    def cpu_oversubscription(self, workers: int) -> float:
        """Return the workers that share a core: paced workers compress and send at once."""
        return max(1.0, workers / self.cores) if self.cores else 1.0

    def _scale(self, dilation: float) -> float:
        return 1 / dilation if self.real_seconds else 1.0

    def describe(self, costs: Costs, dilation: float) -> dict[str, Any]:
        """Return the record of the network. `links` are those at time 0, as of real networks."""
        link_states = costs.link_states
        told = {field.name: getattr(self, field.name) for field in fields(self)}
        links = _links(link_states.routes.names, link_states.at(0.0), dilation)
        told["queue_bytes"] = round(costs.queue_bytes)
        return {"simulated": True, "kind": type(self).__name__, **told, "links": links}


@dataclass(frozen=True, kw_only=True)
class SimulatedDumbbell(Simulated):
    """Two halves joined by a trunk that follows the profile (up: left to right)."""

    left: int | None = None
    access: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_halves(self.left, self.access)

    def check(self, nodes: int, profile: Profile, dilation: float) -> None:
        super().check(nodes, profile, dilation)
        check_nodes(nodes, self.left)

    def routes(self, profile: Profile, nodes: int) -> DumbbellRoutes:
        return DumbbellRoutes(profile, nodes, on_left(nodes, self.left), self.access)

    def describe(self, costs: Costs, dilation: float) -> dict[str, Any]:
        left = on_left(costs.link_states.routes.nodes, self.left)
        return super().describe(costs, dilation) | {"left": left}


@dataclass(frozen=True, kw_only=True)
class SimulatedWan(Simulated):
    """A star whose nodes are at sites, with additional delays and rates between sites."""

    sites: Any = None
    site_delays_ms: Any = None
    regions: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self._sites() is None:
            raise ValueError("sites must be given, one for each node; without, network=simulated")

    def _sites(self) -> Sites | None:
        return sites_of(self.sites, self.site_delays_ms, self.regions)

    def check(self, nodes: int, profile: Profile, dilation: float) -> None:
        super().check(nodes, profile, dilation)
        check_sites(self._sites(), nodes)

    def routes(self, profile: Profile, nodes: int) -> SiteRoutes:
        sites = self._sites()
        assert sites is not None
        return SiteRoutes(profile, nodes, sites)


TWINS: Mapping[str, type[Simulated]] = {  # by the choice that `twin` of a real network names
    "simulated": Simulated,
    "simulated_dumbbell": SimulatedDumbbell,
    "simulated_wan": SimulatedWan,
}


def _most(value: float | None) -> float:
    return inf if value is None else value


def _check_efficiencies(told: Any) -> None:
    """Raise ValueError unless it is None, or shares in [0.01, 1] by rates in Mbit/s."""
    if told is None:
        return
    try:
        shares = {float(mbit): share for mbit, share in told.items()}
    except (AttributeError, TypeError, ValueError):
        wanted = "efficiencies must be shares by rate in Mbit/s, such as {50: 0.8, 1000: 0.95}"
        raise ValueError(f"{wanted}, got {told!r}") from None
    for mbit, share in shares.items():
        check_mbit(**{"rates of efficiencies": mbit})
        check_between(0.01, 1, efficiencies=share)


def _links(names: list[str], state: LinkState, dilation: float) -> dict[str, Any]:
    """Return the real settings of each direction, as a network of packets would hold them."""
    return {
        name: {
            "rate_mbit": link.rate_mbit / dilation,
            "netem": [
                {
                    "delay_us": 1000 * link.delay_ms * dilation,
                    "jitter_us": 1000 * link.jitter_ms * dilation,
                    "loss": link.loss,
                }
            ],
        }
        for name, link in zip(names, state.links, strict=False)
    }
