"""Thousands of workers: what is repeated is what would be done, and no step is kept."""

import gc
import multiprocessing
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pandas as pd
import pytest

from harness.virtual.run import simulate
from tests.virtual.runs import prepare, settings_of, simulated

MANY = ("network.alike=true", "emulation.compute=replay", "network.compress_scale=0")
MANY += ("profile=fluctuating", "profile.min_s=0.1", "profile.max_s=0.4")

COVAP = "topk compressor=covap controller.density=0.25"


@pytest.mark.parametrize(
    "method", ["allreduce", "topk controller.density=0.1", "acp_sgd", COVAP, "dc2_da2"]
)
def test_what_is_repeated_is_what_would_be_done(tmp_path, method):
    asked = (*MANY, "workers=6", "workers_per_node=2", "steps=40", *f"method={method}".split())
    done, repeated = (
        simulated(tmp_path / f"{repeat}", *asked, "bucket_mb=0.1", f"network.repeat={repeat}")
        for repeat in (0, 12)
    )
    for name in ("steps.csv", "timeline.csv", "links.csv"):
        assert (done / name).read_text() == (repeated / name).read_text(), name


def test_a_controller_that_needs_norms_has_every_gradient_exchanged(tmp_path):
    asked = (*MANY, "workers=4", "steps=30", "method=accordion")
    done, repeated = (
        simulated(tmp_path / f"{repeat}", *asked, f"network.repeat={repeat}") for repeat in (0, 1)
    )
    assert (done / "steps.csv").read_text() == (repeated / "steps.csv").read_text()


def test_of_many_links_some_are_told_of_once_a_step(tmp_path):
    run = simulated(tmp_path / "run", *MANY, "workers=200", "steps=20", "profile.high_mbit=60")
    links, steps = pd.read_csv(run / "links.csv"), pd.read_csv(run / "steps.csv")
    assert links.link.nunique() == 100 and {"up0", "down196"} <= set(links.link)
    assert set(links.time_s) <= set(steps.time_s) and links.time_s.nunique() > 5
    passed = links[links.link == "up0"].set_index("time_s")["bytes"]
    sent = steps[steps["rank"] == 0].set_index("time_s").sent_bytes.cumsum() / 0.956
    assert passed.to_numpy() == pytest.approx(sent[passed.index].to_numpy(), rel=1e-3)


def collect() -> None:
    gc.collect()


def peaks(folder: str, each: list[int]) -> list[int]:
    """Most bytes that Python held in a run of so many steps, one run after the other.

    Collected after every step: what Python keeps to use again, as freed tuples, is not counted.
    """
    found = []
    for steps in each:
        settings = settings_of(*MANY, "workers=32", f"steps={steps}", "network.sample_s=3600")
        prepare(Path(folder) / "run", settings)
        gc.collect()
        gc.freeze()  # what is there already: collecting takes no time
        tracemalloc.start()
        simulate(Path(folder) / "run", settings.run(), collect)
        found.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return found


def test_memory_does_not_grow_with_the_steps(tmp_path):
    """In a process of its own: what other tests have cached, or still hold, is not counted.

    After some hundred steps the blocks of states that follow each other are as long as they get.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        _, few, many = pool.submit(peaks, str(tmp_path), [20, 450, 650]).result()
    assert many < few + 200 * 100  # not 100 bytes of a step
