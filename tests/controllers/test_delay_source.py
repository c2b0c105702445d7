"""Delays that DC2 is fed, from a profile or a file: an open loop, with the paper's densities."""

import random
from pathlib import Path
from typing import NamedTuple

import pytest

from controllers.dc2 import DA1, DA2, DA3, DA4, DA5, DC2
from controllers.delay_source import FromProfile, Measured, Recorded
from harness.config.search_path import choices
from harness.config.settings import BadSetting
from harness.validation import checked
from tests.controllers.observations import seen
from tests.test_settings import settings

SOURCES = list(choices("controller/delay_source"))


class Link(NamedTuple):
    rate_mbit: float
    delay_ms: float


class Network:
    """Node 1 is slow until second 10, and always slower down than up; then there is a flow."""

    def link(self, time_s: float, node: int, way: str) -> Link:
        rate_mbit = 8.0 if node == 0 else (2.0 if time_s < 10 else 4.0)
        return Link(rate_mbit if way == "up" else rate_mbit / 2, 5.0 * node)

    def flows(self, time_s: float) -> int:
        return int(time_s >= 10)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return tmp_path / "delays.csv"


def test_measured_is_what_was_seen() -> None:
    assert Measured().delay_s(seen(3, comm_s=0.7)) == 0.7


@pytest.mark.parametrize(("workers", "per_node", "time_s", "expected"), [
    (2, 1, 0.0, 2 * (2000 * 8 / 1e6 + 0.01)),  # 2 hops of half of 4000 bytes at 1 Mbit/s
    (2, 1, 10.0, 2 * (2000 * 8 / 1e6 + 0.01)),  # 2 Mbit/s, shared with a flow
    (4, 2, 0.0, 6 * (1000 * 8 / 1e6 + 0.01)),
    (2, 2, 0.0, 2 * 2000 * 8 / 4e6),  # both on node 0
    (1, 1, 0.0, 0.0),
])  # fmt: skip
def test_of_a_profile_it_is_a_dense_ring_over_the_slowest_link(workers, per_node, time_s, expected):
    source = FromProfile(Network(), per_node)
    found = source.delay_s(seen(0, workers=workers, time_s=time_s, comm_s=99.0))
    assert found == pytest.approx(expected)


def test_a_recording_starts_over_after_its_last_row(recording: Path) -> None:
    recording.write_text("# of some network\ncomm_s\n0.5\n1e-3\n# later\n0\n")
    source = Recorded(str(recording))
    assert [source.delay_s(seen(step)) for step in range(5)] == [0.5, 0.001, 0.0, 0.5, 0.001]


def test_a_run_is_a_recording(recording: Path) -> None:
    recording.write_text(
        'step,rank,comm_s,controller\n0,0,0.1,"{""d"": 1, ""m"": 2}"\n0,1,0.2,{}\n1,0,0.3,{}\n'
    )
    assert Recorded(str(recording), "comm_s", rank=0).delays_s == [0.1, 0.3]
    assert Recorded(str(recording), "comm_s").delays_s == [0.1, 0.2, 0.3]


@pytest.mark.parametrize(("text", "fields", "message"), [
    ("comm_s\n1\nfast\n", {}, r"csv:3: comm_s must be a number >= 0, got 'fast'"),
    ("comm_s\n-1\n", {}, r"csv:2: comm_s must be a number >= 0, got '-1'"),
    ("comm_s\nnan\n", {}, r"csv:2: comm_s must be a number >= 0, got 'nan'"),
    ("comm_s\n1,2\n", {}, r"csv:2: must have 1 values, as its header, got '1,2'"),
    ("comm_s\n1\n\n2\n", {}, r"csv:3: must have 1 values, as its header, got ''"),
    ("#\ntime_s\n1\n", {}, r"csv:2: must have a column comm_s, got \['time_s'\]"),
    ("comm_s\n1\n", {"rank": 0}, r"csv:1: must have a column rank, got \['comm_s'\]"),
    ("comm_s,rank\n1,1\n", {"rank": 0}, r"csv: must have at least one row of rank 0, got"),
    ("comm_s\n", {}, r"csv: must have at least one row, got none"),
    ("", {}, r"csv: must have at least one row, got none"),
    ("comm_s\n\udcff\n", {}, r"csv:2: comm_s must be a number >= 0"),
])  # fmt: skip
def test_a_bad_recording_is_refused_with_its_line(recording, text, fields, message):
    recording.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=message):
        Recorded(str(recording), **fields)


def test_what_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="path must be a CSV file, .* got '/nowhere'"):
        Recorded("/nowhere")
    with pytest.raises(ValueError, match="profile must be a network profile, got 3"):
        FromProfile(3)
    with pytest.raises(ValueError, match="workers_per_node must be a whole number >= 1, got 0"):
        FromProfile(Network(), 0)


@pytest.mark.parametrize("method", ["dc2_da1", "dc2_da2", "dc2_da3", "dc2_da4", "dc2_da5"])
def test_every_source_goes_with_every_method(recording: Path, method: str) -> None:
    recording.write_text("comm_s\n1\n")
    for source in SOURCES:
        path = [f"controller.delay_source.path={recording}"] if source == "recorded" else []
        found = settings(f"method={method}", f"+controller/delay_source={source}", *path)
        controller = found.build("controller")
        assert isinstance(controller, DC2)
        assert (type(controller.delay_source) is Measured) == (source == "measured")
    assert type(settings(f"method={method}").build("controller").delay_source) is Measured


def test_another_profile_than_that_of_the_network_can_be_fed() -> None:
    found = settings(
        "method=dc2_da2",
        "+controller/delay_source=other_profile",
        "profile@controller.delay_source.profile=square",
    )
    assert found.build("profile") != found.build("controller").delay_source.profile
    fed = found["controller.delay_source.profile._target_"]
    assert fed == "profiles.square.Square"


def test_what_is_in_the_recording_decides_the_run(recording: Path) -> None:
    overrides = (
        "method=dc2_da2",
        "+controller/delay_source=recorded",
        f"controller.delay_source.path={recording}",
    )
    recording.write_text("comm_s\n1\n")
    before = settings(*overrides).run_dir().name
    recording.write_text("comm_s\n2\n")
    assert settings(*overrides).run_dir().name != before
    recording.write_text("comm_s\nx\n")
    with pytest.raises(BadSetting, match=r"controller: .*csv:2: comm_s must be a number"):
        checked(settings(*overrides))


def fed(controller: DC2, steps: int, measured_s: float = 0.1) -> list[float]:
    """Densities of `steps` exchanges which took `measured_s`, whatever it is fed."""
    densities = [controller.density(None)]
    for step in range(steps - 1):
        observed = seen(step, density=densities[-1], comm_s=measured_s * (1 + step % 7))
        densities.append(controller.density(observed))
    return densities


def algorithm_1(kind: type, delays_s: list[float], w: int = 50) -> list[float]:
    """DC2's densities from whole histories, constants of Table I."""
    k, found = 0.1, [0.1]
    for j in range(1, len(delays_s) + 1):
        seen_s, d = delays_s[:j], delays_s[j - 1]
        m, recent = min(seen_s), seen_s[-w:]
        a = sum(recent) / len(recent)
        steps = [after - before for before, after in zip(seen_s, seen_s[1:], strict=False)][-w:]
        x = (sum(steps) / len(steps) if steps else 0.0) / m
        timely = k + 0.005 if x < 0 else k * (1 - 0.8 * x)
        if kind is DA1:
            k = (k if d == a else 0.3) if d == m else k - (d - a) / (d - m)
        elif kind in (DA2, DA3):
            less = 0.8 * k if kind is DA2 else k - 0.005
            k = k + 0.005 if d < 0.95 * a else less if d > 1.05 * a else k
        elif kind is DA5 and d < 1.25 * m:
            k = k + 0.005
        elif kind is DA5 and d > 1.25 * a:
            k = k * (1 - 0.8 * (d - 1.25 * a) / (d - 1.25 * m))
        else:
            k = timely
        k = min(0.3, max(0.005, k))
        found.append(k)
    return found


@pytest.mark.parametrize("kind", [DA1, DA2, DA3, DA4, DA5])
def test_fed_it_is_an_open_loop_that_follows_the_algorithm(recording: Path, kind: type) -> None:
    source = random.Random(f"{kind}")
    delays_s = [source.lognormvariate(0, 0.3) for _ in range(400)]
    recording.write_text("\n".join(["comm_s", *map(repr, delays_s)]))
    densities = fed(kind(delay_source=Recorded(str(recording))), 401)
    assert densities == pytest.approx(algorithm_1(kind, delays_s), rel=1e-9)
    assert densities == fed(kind(delay_source=Recorded(str(recording))), 401, measured_s=5.0)
    assert densities != fed(kind(), 401)


@pytest.mark.parametrize(("make", "skewed", "mean", "within"), [
    (DA2, True, 0.0328, 0.002),  # the paper's Fig. 9: 0.034
    (DA5, True, 0.072, 0.01),  # 0.072
    (DA3, False, 0.141, 0.03),  # 0.145; it walks at random, so that a mean is slow to settle
])  # fmt: skip
def test_mean_densities_when_fed_are_the_papers(recording, make, skewed, mean, within):
    """Log-normal delays, and for DA3's walk symmetric ones."""
    source, steps = random.Random("fed"), 20_000 if skewed else 150_000
    draw = (lambda: source.lognormvariate(0, 0.3)) if skewed else (lambda: source.gauss(1, 0.05))
    recording.write_text("\n".join(["comm_s", *(repr(draw()) for _ in range(steps))]))
    densities = fed(make(delay_source=Recorded(str(recording))), steps)
    assert sum(densities) / steps == pytest.approx(mean, abs=within)


@pytest.mark.parametrize("method", ["dc2_da2", "dc2_da3", "dc2_da4", "dc2_da5"])
def test_a_fed_method_differs_in_its_delays_alone(method: str) -> None:
    """Figure 9: those of the dynamic network, at the scale of the run."""
    asked = (f"method={method}", "scale=laptop")
    plain = settings(*asked)
    fed = settings(*asked, "+controller/delay_source=dc2_dynamic_laptop")
    source = fed.config["controller"].pop("delay_source")
    assert source["_target_"].endswith("FromProfile")
    dynamic = settings("profile=dc2_dynamic_imagenet_laptop")["profile"]
    assert source["profile"] == dynamic != fed["profile"]
    plain.config["controller"].pop("delay_source")
    assert fed.config.pop("method") != plain.config.pop("method")
    assert fed.config == plain.config
