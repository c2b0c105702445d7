"""Process 1 of a run: how it ends, and how it proves its network.

It runs in namespaces of its own, so the kernel removes every process, interface and namespace of
the run when this process ends. Standard input is connected to the runner: its end means that the
runner wants to stop, or is dead.
"""

import os
import select
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.clock import Clock
from harness.config.settings import Settings
from harness.emulation.audit import worst
from harness.emulation.network import Network
from harness.emulation.profile_player import Player
from harness.emulation.rendezvous import RunEnded
from harness.records import environment, status
from harness.records.run_directory import Events, refusal, write_json
from harness.runner.limits import LimitPassed, Limits
from harness.runner.pauses import Pauses

POLL_S = 0.02
_limits: list[Limits] = []  # of the run, of which a process 1 has one


class Interrupted(Exception):
    """Error: the runner asked to stop, or died."""

    state = "interrupted"


class RunFailed(Exception):
    """Error: a rank, an agent or the network failed. The message is the cause."""

    state = "failed"


def to_its_end(run_dir: Path, body: Callable[[Path], None]) -> None:
    """Run `body` and record any ending in status.json. Only for process 1 of a PID namespace."""
    assert os.getpid() == 1  # of whose processes none is left afterwards
    try:
        settings = Settings.read(run_dir)
        run_s = float(settings["timeouts.run_s"])
        _limits.append(Limits(run_dir / "logs", settings["workers"], run_s))
        _limits[0].begin()
        body(run_dir)
    except (Interrupted, RunFailed, RunEnded, LimitPassed) as end:
        status.end(run_dir, end.state, _told(run_dir, str(end)))
    except Exception as error:
        status.end(run_dir, "failed", _told(run_dir, f"{type(error).__name__}: {error}"))
        traceback.print_exc()  # last: there may be no room for it
    finally:
        kill_everyone()


def _told(run_dir: Path, error: str) -> str:
    """Return `error`, preceded by a full disk if that kept other processes from reporting."""
    return "; ".join(filter(None, [refusal(run_dir), error]))


def prove(network: Network, run_dir: Path, told: dict[str, Any]) -> dict[str, Any]:
    """Measure before step 0 that the network is as planned, and write environment.json.

    environment.json also contains `told`. Raise RunFailed if the network differs.
    """
    proof: dict[str, Any] = {
        "ceiling": network.ceiling()._asdict(),
        "probe": [probe._asdict() for probe in network.probe()],
        "round_trips": [trip._asdict() for trip in network.round_trips()],
        "readback": sum(network.gather("readback", network.verify()), []),
    }
    # This also loads the compiled kernels, here, so that ranks are forked with them.
    found = environment.describe() | told | {"network": network.describe(), "proof": proof}
    write_json(run_dir / "environment.json", found)
    if proof["readback"]:
        raise RunFailed("network is not as intended: " + "; ".join(proof["readback"]))
    return proof


@contextmanager
def played(network: Network, clock: Clock, run_dir: Path, events: Events) -> Iterator[Player]:
    player = Player(network, clock, run_dir, events)
    try:
        yield player
    except BaseException:
        # The first failure is the cause; one of the player's own is only told.
        try:
            player.stop()
        except Exception:
            traceback.print_exc()
        raise
    player.stop()


def look_for_the_end(wait_s: float = POLL_S) -> None:
    """Wait up to `wait_s`; Interrupted if the runner stops or died, LimitPassed at a limit."""
    _limits[0].look()
    readable, _, _ = select.select([0], [], [], wait_s)
    if readable and not (said := os.read(0, 1)):
        raise Interrupted("the runner stopped or died")
    elif readable and said == b"s":
        raise Interrupted("stopped by the user")


def require_played(player: Player) -> None:
    """Raise RunFailed if the network no longer follows its plan."""
    if player.error is not None:
        raise RunFailed(f"the network's player failed: {player.error}")


def proof_after(network: Network, player: Player, pauses: Pauses) -> dict[str, Any]:
    """Collect the final proof of the network, its stopped player and the ranks' pauses."""
    of_ranks = {"cpu_waited_share": pauses.waited_share, "unwatched_s": pauses.unwatched_s}
    audit = player.audit.summary() | of_ranks
    return {
        "readback": sum(network.gather("readback", network.verify()), []),
        "audit": worst(network.gather("audit", audit)),
        "flows": [flow._asdict() for flow in player.flows],
    }


def conclude(run_dir: Path, summary: dict[str, Any]) -> None:
    """End the run directory: write summary.json and the final state.

    Kill every other process of the namespace first, so that no other writer is left. The state is
    `succeeded` without `summary["reasons"]`, else `invalid`. Call it from process 1.
    """
    kill_everyone()
    write_json(run_dir / "summary.json", summary)
    reasons = summary["reasons"]
    status.end(run_dir, "invalid" if reasons else "succeeded", "; ".join(reasons) or None)


def kill_everyone() -> None:
    """Kill every other process of this PID namespace. From process 1, -1 reaches nothing else."""
    try:
        os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        return
