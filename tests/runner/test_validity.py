"""The verdict: every reason not to believe a run is found, and nothing else."""

from dataclasses import replace

import pytest

from harness.config.parallel import Data, Pipeline
from harness.config.scales import composed
from harness.emulation.star import Star
from harness.records.run_directory import (
    PACKET_TABLES,
    TABLES,
    Collective,
    Evaluation,
    Events,
    LinkSample,
    Table,
)
from harness.runner import validity
from profiles.static import Static
from tests import records_by_hand as by_hand

SENT = 1_000_000
LINKS = ("up0", "down0", "up1", "down1")


@pytest.fixture
def run_dir(tmp_path):
    """Two ranks, three steps, one evaluation: nothing wrong."""
    for name in (*TABLES, *PACKET_TABLES):
        Table(tmp_path, name).header()
    steps = Table(tmp_path, "steps.csv")
    for step in range(3):
        for rank in range(2):
            told = dict(sent_bytes=SENT, received_bytes=SENT, dense_bytes=2 * SENT, samples=8)
            told |= dict(time_s=2.0 * (step + 1), compute_s=1.0, density=0.5)
            steps.append(by_hand.step(step, rank, **told))
    Table(tmp_path, "evaluations.csv").append(Evaluation(3, 6.0, "accuracy", 0.9))
    sample(tmp_path, *((second, SENT * second, 2) for second in range(7)))
    exchanged(tmp_path, 0.082)
    events = Events(tmp_path)
    rates = {link: {"rate_mbit": 100.0} for link in LINKS}
    events.append("conditions", 0.0, planned_s=0.0, links=rates)
    ready(tmp_path, 0, 1)
    return tmp_path


def ready(run_dir, *ranks):
    for rank in ranks:
        Events(run_dir).append("rank_ready", rank=rank, pid=100 + rank)


def exchanged(run_dir, took_s):
    """One collective of all ranks in every step."""
    begun = [2.0 * step + 1.0 for step in range(3)]
    table = Table(run_dir, "collectives.csv")
    table.append(*(Collective(at, at + took_s, n, SENT, SENT) for at in begun for n in range(2)))


def sample(run_dir, *rows, links=LINKS):
    """Time, bytes and drops of every link."""
    table = Table(run_dir, "links.csv")
    for time_s, count, drops in rows:
        table.append(*(LinkSample(float(time_s), n, 100.0, 100.0, count, 0, drops) for n in links))


AUDIT = {"cpu_idle_share": 0.4, "carried_over_allowed": 1.0, "off_plan_share": 0.0}
AUDIT |= {"late_ms_p99": 5.0, "cpu_steal_share": 0.0, "cpu_others_share": 0.01}
AUDIT |= {"cpu_waited_share": 0.01, "unwatched_s": 0.1}
PROBES = [
    {"link": name, "measured_mbit": 95.6, "expected_mbit": 95.6, "ok": True} for name in LINKS
]
GOOD = {"probe": PROBES, "readback": [], "round_trips": [], "audit": AUDIT, "flows": []}
GOOD |= {"ceiling": {"needed_mbit": 400.0, "carried_mbit": 800.0}}


def keep(run_dir, name, rows):
    """The header and the first `rows` of a table."""
    lines = (run_dir / name).read_text().splitlines(keepends=True)
    (run_dir / name).write_text("".join(lines[: 1 + rows]))


RUN = composed(["network=netns"])[0].run()


def run_of(compute="paced", workers_per_node=1, loss=0.0, parallel=Data, network=None):
    return replace(RUN, workers=2 * workers_per_node, workers_per_node=workers_per_node,
                   network=network or Star(update_s=0.1, sample_s=1.0),
                   profile=Static(rate_mbit=100.0, loss=loss),
                   emulation=replace(RUN.emulation, compute=compute, dilation=1.0),
                   parallel=parallel())  # fmt: skip


def judge(run_dir, seen=3 * SENT * 1.05, overruns=0, drifted=False, **changed):
    """The summary of what `run_dir` holds, with a change of settings, of bytes or of proof."""
    for rank in range(2 * changed.get("workers_per_node", 1)):
        Events(run_dir).append(
            "rank_finished", 6.0, rank=rank, overruns=overruns, drifted=drifted, steps=1000
        )
    told = {k: changed.pop(k) for k in list(changed)
            if k in ("compute", "workers_per_node", "loss", "parallel", "network")}  # fmt: skip
    passed = dict.fromkeys(LINKS, seen) | changed.pop("passed", {})
    return validity.summarize(run_dir, run_of(**told), GOOD | changed, passed)


def test_a_good_run_is_valid_and_its_numbers_are_right(run_dir):
    summary = judge(run_dir)
    assert summary["valid"] and summary["reasons"] == []
    assert summary["final"] == {"accuracy": 0.9}
    assert summary["time_s"] == 6.0 and summary["steps"] == 3
    assert summary["throughput"] == pytest.approx(3 * 2 * 8 / 6.0)
    assert summary["mean_density"] == 0.5 and summary["sent_bytes"] == 6 * SENT
    assert summary["proof"]["sent_bytes_by_node"] == {0: 3 * SENT, 1: 3 * SENT}


BAD_TRIP = {"name": "0-1", "planned_ms": 40.0, "measured_ms": 9.0, "ok": False}
BAD_PROBE = {"link": "up1", "measured_mbit": 50.0, "expected_mbit": 95.6, "ok": False}
MISSED = [probe for probe in PROBES if probe["link"] != "down0"]


@pytest.mark.parametrize(("change", "said"), [
    ({"seen": 2 * SENT}, "a path around it"),
    ({"seen": 40 * SENT}, "other traffic"),
    ({"overruns": 20}, "longer than their paced time"),
    ({"drifted": True}, "weights differ"),
    ({"seen": -1}, "went back by 1"),
    ({"probe": [*PROBES, BAD_PROBE]}, "link up1 carried 50.0"),
    ({"probe": MISSED}, "link down0 was not probed"),
    ({"probe": [*PROBES, PROBES[0] | {"link": "up9"}]}, "no row of up9"),
    ({"round_trips": [BAD_TRIP]}, "round trip 0-1 took 9.0 ms"),
    ({"round_trips": [BAD_TRIP | {"measured_ms": None}]}, "round trip 0-1 had no answer"),
    ({"ceiling": {"needed_mbit": 401.0, "carried_mbit": 800.0}}, "carries 800 Mbit/s"),
    ({"audit": AUDIT | {"cpu_idle_share": 0.01}}, "idle for 1.0%"),
    ({"audit": AUDIT | {"cpu_steal_share": 0.1}}, "took 10.0% of its processors"),
    ({"audit": AUDIT | {"carried_over_allowed": 1.2}}, "carried 1.200 x"),
    ({"audit": AUDIT | {"off_plan_share": 0.1}}, "10.0% of the link samples"),
    ({"audit": AUDIT | {"late_ms_p99": 101.0}}, "came 101 ms late"),
    ({"readback": ["up0 is 3, intended 4"]}, "up0 is 3, intended 4"),
])  # fmt: skip
def test_each_reason_makes_a_run_invalid(run_dir, change, said):
    summary = judge(run_dir, **change)
    assert not summary["valid"]
    assert said in " ".join(summary["reasons"])


def test_a_good_run_of_machines_is_probed_from_each_to_the_next(run_dir):
    probes = [PROBES[0] | {"link": "up0-down1"}, PROBES[0] | {"link": "up1-down0"}]
    assert judge(run_dir, probe=probes)["reasons"] == []


@pytest.mark.parametrize("link", LINKS)
def test_every_way_of_every_link_is_held_against_the_collectives(run_dir, link):
    for seen, said in ((2 * SENT, "a path around it"), (40 * SENT, "other traffic")):
        [reason] = judge(run_dir, passed={link: seen})["reasons"]
        assert f"cross {link}, " in reason and said in reason and str(seen) in reason


def test_what_is_lost_is_sent_again_and_is_nobody_elses(run_dir):
    busy = {"passed": {"up0": 12 * SENT}}
    assert not judge(run_dir, **busy)["valid"]
    assert judge(run_dir, loss=0.5, **busy)["valid"]


@pytest.mark.parametrize(("foreign", "valid"), [(0.05, True), (0.4, False)])
def test_strangers_are_bounded_by_what_the_run_itself_sends(run_dir, foreign, valid):
    summary = judge(run_dir, passed={"down1": (1.05 + foreign) * 3 * SENT})
    assert summary["valid"] == valid
    assert valid or "other traffic" in summary["reasons"][0]


def test_of_workers_who_share_a_node_a_part_stays_inside(run_dir):
    rows = (run_dir / "steps.csv").read_text().splitlines()
    others = [row.replace(",0,", ",2,", 1).replace(",1,", ",3,", 1) for row in rows[1:]]
    (run_dir / "steps.csv").write_text("\n".join(rows + others) + "\n")
    ready(run_dir, 2, 3)
    assert judge(run_dir, workers_per_node=2, seen=3.1 * SENT)["valid"]
    reasons = judge(run_dir, workers_per_node=2, seen=2.5 * SENT)["reasons"]
    assert len(reasons) == len(LINKS) and all("a path around it" in text for text in reasons)


def test_competing_flows_are_told_apart_from_a_path_around_and_from_strangers(run_dir):
    flow = {"pair": "0-1", "sent_bytes": 30 * SENT, "received_bytes": 29 * SENT}
    assert judge(run_dir, seen=3.2 * SENT)["valid"]
    reasons = judge(run_dir, seen=3.2 * SENT, flows=[flow])["reasons"]
    assert ["up0" in reasons[0], "down1" in reasons[1], len(reasons)] == [True, True, 2]
    assert all("a path around it" in reason for reason in reasons)
    reasons = judge(run_dir, seen=34 * SENT, flows=[flow])["reasons"]
    assert [reason.split(",")[0].split()[-1] for reason in reasons] == ["down0", "up1"]


def test_a_trunk_carries_at_least_what_one_node_sends_and_what_competes_there(run_dir):
    trunk = {"trunk_up": 3.1 * SENT, "trunk_down": 3.1 * SENT}
    assert judge(run_dir, passed=trunk)["valid"]
    [reason] = judge(run_dir, passed=trunk | {"trunk_down": SENT})["reasons"]
    assert "cross trunk_down" in reason and "a path around it" in reason
    flow = {"pair": "trunk_up", "sent_bytes": 30 * SENT, "received_bytes": None}
    [reason] = judge(run_dir, passed={"trunk_up": 60 * SENT, "trunk_down": 4 * SENT}, flows=[flow])[
        "reasons"
    ]
    assert "cross trunk_up" in reason and "other traffic" in reason
    [reason] = judge(run_dir, passed=trunk, flows=[flow | {"received_bytes": 29 * SENT}])["reasons"]
    assert "cross trunk_up" in reason and "a path around it" in reason


def test_of_a_pipeline_a_trunk_may_carry_little_and_evaluations_count(run_dir):
    little = {"trunk_up": 0.1 * SENT, "trunk_down": 0.1 * SENT}
    assert judge(run_dir, passed=little, parallel=Pipeline)["valid"]
    assert not judge(run_dir, passed=little)["valid"]
    Events(run_dir).append("rank_finished", 6.0, rank=1, overruns=0, drifted=False, steps=1000,
                           aside_bytes=[20 * SENT, 0])  # fmt: skip
    [reason] = judge(run_dir, parallel=Pipeline)["reasons"]
    assert "23000000 bytes were to cross up1" in reason
    evaluated = {"up1": 24 * SENT}
    assert judge(run_dir, passed=evaluated, parallel=Pipeline)["valid"]


def test_holes_in_the_samples_are_found(run_dir):
    sample(run_dir, (7, 5 * SENT, 2))
    [*reasons] = judge(run_dir)["reasons"]
    assert reasons == [f"the bytes counter of {name} went back: it was replaced" for name in LINKS]


def test_a_link_that_was_sampled_too_seldom_is_found(run_dir):
    keep(run_dir, "links.csv", 2 * len(LINKS))
    [reason, *_] = judge(run_dir)["reasons"]
    assert "sampled 2 times, about 6 expected" in reason


def test_a_run_shorter_than_one_sample_needs_its_first_and_last(run_dir):
    keep(run_dir, "steps.csv", 2)
    short = (run_dir / "steps.csv").read_text().replace(",2.0,", ",0.2,")
    (run_dir / "steps.csv").write_text(short)
    keep(run_dir, "collectives.csv", 2)
    keep(run_dir, "links.csv", 2 * len(LINKS))
    network = Star(sample_s=0.25)
    assert judge(run_dir, seen=1.05 * SENT, network=network)["reasons"] == []
    keep(run_dir, "links.csv", len(LINKS))
    [reason] = judge(run_dir, seen=1.05 * SENT, network=network)["reasons"]
    assert reason.startswith("delivery could not be checked: links.csv has fewer than 2 rows of ")
    keep(run_dir, "links.csv", 0)
    reasons = judge(run_dir, seen=1.05 * SENT, network=network)["reasons"]
    assert reasons[:4] == [f"links.csv has no row of {n}" for n in sorted(LINKS)]


@pytest.mark.parametrize(("skipped", "valid"), [(1, True), (2, False)])
def test_changes_that_were_never_applied_are_counted(run_dir, skipped, valid):
    for number in range(1, 20):
        applied = number > skipped
        Events(run_dir).append("conditions", 1.0, planned_s=1.0, links={}, applied=applied)
    summary = judge(run_dir)
    assert summary["valid"] == valid
    assert valid or "2 of 20 changes of the plan" in summary["reasons"][0]


def test_changes_from_outside_are_told_with_link_and_time(run_dir):
    for number in range(6):
        Events(run_dir).append("changed_outside", number + 0.5, link="up1", what=f"held {number}")
    *reasons, more = judge(run_dir)["reasons"]
    assert reasons[2] == "link up1 was changed from outside at 2.50 s: held 2"
    assert len(reasons) == 4 and more == "and 2 more changes from outside"


@pytest.mark.parametrize(("event", "planned_s", "came_s", "late_s"), [
    ("flow_started", 1.0, (2.5, 4.5), 3.5), ("flow_never_came", 4.5, (5.0, 5.0), 4.0),
])  # fmt: skip
def test_competing_flows_have_to_come_when_planned(run_dir, event, planned_s, came_s, late_s):
    Events(run_dir).append(event, came_s[0], flow="flow0_0-1", planned_s=planned_s)
    Events(run_dir).append("flow_started", None, flow="flow2_0-1", planned_s=0.0)
    assert judge(run_dir)["valid"]
    Events(run_dir).append(event, came_s[1], flow="flow1_0-1", planned_s=1.0)
    [reason] = judge(run_dir)["reasons"]
    assert reason.startswith(f"1 of 2 competing flows began late, flow1_0-1 {late_s} s")


@pytest.mark.parametrize(("compute", "audit", "said"), [
    ("paced", {"cpu_idle_share": 0.015}, ["idle for 1.5% of the run"]),
    ("replay", {"cpu_idle_share": 0.015}, ["idle for 1.5% of the run"]),
    ("replay", {"cpu_others_share": 0.5}, []),
    ("measured", {"cpu_idle_share": 0.0}, []),
    ("measured", {"cpu_others_share": 0.24}, []),
    ("measured", {"cpu_others_share": 0.26}, ["took 26.0% of the processors, more than 25%"]),
    ("measured", {"cpu_others_share": 0.06, "cpu_waited_share": 0.06}, ["one 6.0% of the time"]),
    ("measured", {"cpu_others_share": 0.06, "cpu_waited_share": None}, ["took 6.0%"]),
    ("measured", {"cpu_waited_share": 0.5}, []),
])  # fmt: skip
def test_others_leave_emulated_computation_an_idle_processor_and_measured_all(
    run_dir, compute, audit, said
):
    """Measured computation takes all processors itself; its ranks may wait for each other."""
    reasons = judge(run_dir, compute=compute, audit=AUDIT | audit)["reasons"]
    assert len(reasons) == len(said) and all(a in b for a, b in zip(said, reasons, strict=True))


def test_a_rank_that_was_stopped_is_told_with_its_step_and_the_cause(run_dir):
    told = {"rank": 1, "cause": "was stopped by a signal", "length_s": 4.0}
    Events(run_dir).append("rank_paused", 3.5, **told)
    [reason] = judge(run_dir)["reasons"]
    assert reason == "rank 1 was stopped by a signal for 4.0 s, from 3.50 s on, in step 1"


def test_a_step_far_longer_than_the_others_of_its_rank_is_told(run_dir):
    steps = Table(run_dir, "steps.csv")
    for step in range(3, 20):
        took_s = 14.0 if step == 11 else 1.0
        nothing = dict(sent_bytes=0, received_bytes=0, dense_bytes=0, samples=8)
        steps.append(by_hand.step(step, 1, time_s=6.0, compute_s=took_s, **nothing))
    [reason] = judge(run_dir)["reasons"]
    assert reason.startswith("rank 1 took 14.00 s to compute in step 11, 1.000 s in the median")


def test_a_player_that_stood_still_is_found(run_dir):
    keep(run_dir, "links.csv", 3 * len(LINKS))
    sample(run_dir, *((second, SENT * second, 2) for second in (7, 8, 9, 10)))
    reasons = [text for text in judge(run_dir)["reasons"] if "not sampled" in text]
    assert len(reasons) == len(LINKS)
    assert reasons[0] == "link up0 was not sampled for 5.0 s from 2.00 s on: the player stood still"


NOTHING = dict.fromkeys(AUDIT)


def without(run_dir, event, **more):
    """Remove the events of this name."""
    lines = (run_dir / "events.jsonl").read_text().splitlines(keepends=True)
    kept = [line for line in lines if f'"{event}"' not in line]
    (run_dir / "events.jsonl").write_text("".join(kept))
    return more


@pytest.mark.parametrize(("damage", "said"), [
    (lambda _: {"probe": []}, "rates before step 0 could not be checked: no link was probed"),
    (lambda _: {"audit": NOTHING}, "processors could not be checked: "),
    (lambda _: {"audit": NOTHING}, "plan of the links could not be checked: "),
    (lambda _: {"audit": NOTHING}, "watching could not be checked: no rank was looked at"),
    (lambda _: {"network": Star(sample_s=10.0)}, "samples of links could not be checked: "),
    (lambda d: without(d, "conditions"), "plan of the links could not be checked: "),
    (lambda d: without(d, "conditions"), "delivery could not be checked: "),
    (lambda d: keep(d, "collectives.csv", 0), "delivery could not be checked: "),
    (lambda d: (d / "collectives.csv").unlink(), "delivery could not be checked: "),
    (lambda d: without(d, "rank_ready"), "pauses could not be checked: "),
    (lambda d: keep(d, "steps.csv", 1), "bytes could not be checked: steps.csv has no row of"),
])  # fmt: skip
def test_a_check_that_could_not_be_made_is_a_reason(run_dir, damage, said):
    summary = judge(run_dir, **(damage(run_dir) or {}))
    assert [reason for reason in summary["reasons"] if reason.startswith(said)], summary["reasons"]
    name = said.partition(" could not")[0]
    assert summary["proof"]["checks"][name].startswith("could not be checked: ")


def test_what_a_run_rests_on_is_listed_with_its_result(run_dir):
    """A check that this run does not need says why."""
    checks = judge(run_dir)["proof"]["checks"]
    assert list(checks) == [check.name for check in validity.RUN_CHECKS]
    unneeded = {name for name, result in checks.items() if result.startswith("not needed: ")}
    assert unneeded == {"round trips", "lateness"} and set(checks.values()) >= {"holds"}
    assert judge(run_dir, seen=2 * SENT)["proof"]["checks"]["bytes"] == "does not hold"


@pytest.mark.parametrize("event", ["player_stood_still", None])
def test_a_supervisor_that_was_stopped_is_told_however_rarely_links_are_sampled(run_dir, event):
    if event:
        Events(run_dir).append(event, 4.0, length_s=1.8)
        [reason] = judge(run_dir)["reasons"]
        assert "stood still for 1.8 s until 4.00 s" in reason
    else:
        [reason] = judge(run_dir, audit=AUDIT | {"unwatched_s": 1.8})["reasons"]
        assert "ranks were not looked at for 1.8 s, more than 1 s" in reason


def test_overruns_count_only_where_computation_is_paced(run_dir):
    assert judge(run_dir, compute="measured", overruns=20)["valid"]
