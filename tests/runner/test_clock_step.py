"""A wall clock that is set while a run goes on touches nothing: tried in the virtual machine."""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from harness.records.run_directory import read_events
from tests.aftermath import PLAIN, SETTLED, Scene, status
from tests.emulation.virtual import virtual
from tests.launching import training, until

DAY_S = 86_400
LONGEST_S = 600  # of a law there
IMPORTED_S = 300  # torch alone takes from 15 to 45 s there, and a run imports it twice
SLOW_MACHINE = ("steps=12", "profile.rate_mbit=50", "network.queue_ms=200", "network.probe_s=0.5")


def set_forward(seconds: float) -> None:
    """Step CLOCK_REALTIME of this machine, which has to be a virtual one."""
    time.clock_settime(time.CLOCK_REALTIME, time.time() + seconds)


@virtual
def test_the_clock_set_by_a_day_and_back_under_way_leaves_every_time_as_it_was() -> None:
    with TemporaryDirectory() as folder, Scene(Path(folder), None) as scene:
        overrides = [part for part in PLAIN if "rate" not in part]
        running = scene.start(*overrides, *SLOW_MACHINE, "seed=0")
        run = scene.under_way(deadline_s=IMPORTED_S)
        set_forward(DAY_S)
        scene.open()
        until(lambda: training(scene.results, 6), "steps after the first jump", 200)
        set_forward(-2 * DAY_S)
        output, _ = running.communicate(timeout=LONGEST_S)
        assert status(run)["state"] in SETTLED, output
        rows = pd.read_csv(run / "steps.csv")
        assert len(rows) == 24 and (rows["comm_s"] < LONGEST_S).all(), rows
        for _, one in rows.groupby("rank"):
            assert one["time_s"].is_monotonic_increasing and one["time_s"].max() < LONGEST_S
        links = pd.read_csv(run / "links.csv")
        assert links["time_s"].between(0, LONGEST_S).all(), links
        times = [event["time_s"] for event in read_events(run) if event["time_s"] is not None]
        assert times and all(0 <= time_s < LONGEST_S for time_s in times), times
