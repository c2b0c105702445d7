"""plan=true predicts the time of the full virtual run: each shipped method, four profiles."""

from pathlib import Path

import pytest

from harness.config.search_path import choices
from harness.predict import plan
from harness.reporting.analysis import load
from harness.virtual.run import simulate
from tests.virtual.runs import prepare, settings_of

# A step computes for 0.1 s. At 10 Mbit/s a dense exchange takes 0.04 s.
RUN = ("workload=pace_digits", "model=mlp", "model.hidden=[64]", "workers=3", "steps=40",
       "network/device=v100", "eval_every=1000")  # fmt: skip
PROFILES = {
    "static": ("profile.rate_mbit=10",),
    "square": ("profile.high_mbit=20", "profile.low_mbit=2", "profile.period_s=1.5"),
    "markov": ("profile.good_mbit=20", "profile.bad_mbit=2", "profile.mean_good_s=0.6",
               "profile.mean_bad_s=0.4"),
    "fluctuating": ("profile.low_mbit=2", "profile.high_mbit=20", "profile.min_s=0.2",
                    "profile.max_s=0.8"),
}  # fmt: skip
ROUNDS = ("parallel.h=8",)
OTHERWISE = {
    "dct_hybrid": ("parallel=pipeline", "workers=4", "accumulate=2"),
    "diloco": ROUNDS,
    "diloco_streaming": (*ROUNDS, "parallel.lag=1"),
    "hogwild": ("parallel.threads=2",),
    "dct_hogwild": ("parallel.threads=2",),
    "localsgd": ROUNDS,
    "noloco": (*ROUNDS, "workers=4"),
    "sparseloco": ROUNDS,
}


WITHIN = {  # share of the time, where bytes depend on values: of sampled, and of kept thresholds
    **{method: 0.03 for method in choices("method") if method.startswith("dc2_")},
    "dgc": 0.02,
    "dct_dp": 0.06,
    "dct_hogwild": 0.12,
    "dct_hybrid": 0.02,
    "dct_ps": 0.05,
    "dct_ps_async": 0.06,
}


def times_s(folder: Path, *asked: str) -> tuple[float, float]:
    """The predicted time of a run, and its time in full."""
    settings = settings_of(*asked)
    run = settings.run()
    prepare(folder, settings)
    simulate(folder, run, lambda: None)
    return plan.predict(run).time_s, load.steps(folder).time_s.max()


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("method", sorted(choices("method")))
def test_a_plan_takes_the_time_of_the_full_run(method, profile, tmp_path):
    asked = (*RUN, *OTHERWISE.get(method, ()), f"method={method}", f"profile={profile}")
    planned_s, full_s = times_s(tmp_path / "run", *asked, *PROFILES[profile])
    assert planned_s == pytest.approx(full_s, rel=WITHIN.get(method, 0.002))


def test_a_plan_sees_the_backlog_of_streaming_fragments(tmp_path):
    """At 2 Mbit/s a fragment is not sent when the next one is due."""
    asked = ("workload=pace_digits", "model=mlp", "workers=3", "method=diloco_streaming",
             "parallel.h=8", "parallel.lag=1", "steps=120", "network/device=v100",
             "profile=static", "profile.rate_mbit=2", "eval_every=1000")  # fmt: skip
    planned_s, full_s = times_s(tmp_path / "run", *asked)
    assert planned_s == pytest.approx(full_s, rel=0.002)
