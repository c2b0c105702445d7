"""A replay that was done is not done again, and says exactly the same, until the code changes."""

from pathlib import Path
from typing import NoReturn

import pytest

from harness.config.search_path import OWN
from harness.fidelity import replay_cache, replays
from harness.fidelity.bench import Cluster, Compute
from harness.fidelity.replay_cache import Rows, kept
from harness.fidelity.replays import ReplayedMethod, ReplayJob
from harness.predict import plan

CLUSTER = Cluster(workers=8, per_node=2, rate_mbit=100.0, efficiency=0.7, alpha_s=0.001)
JOB = ReplayJob("ResNet-18", Compute(0.1, 0.3, 32), CLUSTER)
METHOD = ReplayedMethod("topk.TopK", (("index_dtype", "int64"),), 0.01, (("element_ns", 0.5),))
ROWS = [[0.1, 1 / 3], [2e-300, 5.0]]


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "gradnet" / "replays"


def not_asked() -> NoReturn:
    raise AssertionError("it is known")


def asked_again(rows: Rows = ROWS, question: str = "what") -> bool:
    asked = []
    assert kept(question, lambda: asked.append(question) or rows) == rows
    return bool(asked)


def test_a_replay_is_done_once(monkeypatch: pytest.MonkeyPatch) -> None:
    once = replays.steps.__wrapped__(JOB, METHOD)
    monkeypatch.setattr(plan, "replay", lambda run: not_asked())
    again = replays.steps.__wrapped__(JOB, METHOD)
    assert again == once and {type(each) for each in again} == {replays.Iteration}
    for other in (JOB._replace(compute=Compute(0.1, 0.4, 32)), JOB._replace(model="ResNet-50")):
        with pytest.raises(AssertionError):
            replays.steps.__wrapped__(other, METHOD)


def test_an_answer_is_the_same_to_the_last_bit(place: Path) -> None:
    assert asked_again() and kept("what", not_asked) == ROWS
    assert asked_again(question="what else")
    assert [path.suffix for path in place.iterdir()] == [".json"] * 2


def test_what_decides_an_answer_is_asked_anew_when_it_changes(monkeypatch, tmp_path):
    def sources() -> str:
        replay_cache._sources.cache_clear()
        return replay_cache._sources()

    own = tmp_path / "own"
    (own / "network").mkdir(parents=True)
    before = sources()
    monkeypatch.setenv(OWN, str(own))
    assert sources() == before and asked_again()
    (own / "network" / "base.yaml").write_text("a: 1\n")
    states = [before, sources()]
    assert asked_again() and not asked_again()
    monkeypatch.setattr(replay_cache, "LIBRARIES", ("torch",))
    states.append(sources())
    monkeypatch.setattr(replay_cache, "PACKAGES", ("compressors",))
    states.append(sources())
    assert len(set(states)) == 4
    monkeypatch.undo()
    assert sources() == before


@pytest.mark.parametrize(
    "text", ["", "[", "{}", "[]", "[[]]", "[1.0]", '[["a"]]', "[[1.0], [1.0, 2.0]]"]
)
def test_what_is_not_whole_is_asked_again(place: Path, text: str) -> None:
    assert asked_again()
    [path] = place.iterdir()
    path.write_text(text)
    assert asked_again() and not asked_again()


def test_without_a_place_it_is_asked_every_time(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setattr(replay_cache, "cache_folder", lambda folder: tmp_path / "file")
    assert asked_again() and asked_again()
