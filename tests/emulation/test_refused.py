"""What networks refuse: any bad value of any key is told by its key, and nothing is started."""

from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hypothesis import HealthCheck, given
from hypothesis import settings as given_settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from harness.config.settings import BadSetting, Settings
from harness.emulation import topology
from harness.validation import checked
from tests.emulation.inside import ROOT
from tests.profiles.test_refused import NO_NUMBER, NONE, TEXT, Values, outside

TRIED = given_settings(
    max_examples=20, deadline=None, database=None, derandomize=True,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
FRACTION = st.floats(0.1, 0.9)
PERIOD = outside(0.001, 3600) | NONE
BUFFER = outside(65536, (1 << 31) - 1) | NONE | FRACTION
WORD = TEXT | NONE | st.integers() | st.booleans()
WORDS = st.sampled_from([["cubic"], []])
NO_ROWS = TEXT | st.integers() | st.booleans() | st.just([]) | st.lists(st.integers(), min_size=1)
CROOKED = st.sampled_from([[[1, 2], [3]], [[1, -1], [1, 1]], [["a", 1], [1, 1]], [[1]], [[True]]])
SITES = st.sampled_from([[0, 0, 1], [0, 0, 1, 3], [0, 0, 1, -1], [0, 0, 0, "a"], [0, 0, 0, 0.5], 3])
COMMON: dict[str, Values] = {"queue_ms": outside(0.01, 60_000),
                             "queue_bytes": outside(3000, 1 << 30) | FRACTION,
                             "congestion_control": WORD | WORDS, "offload": WORD | WORDS,
                             "receive_buffer_bytes": BUFFER, "send_buffer_bytes": BUFFER,
                             "update_s": PERIOD, "sample_s": outside(0.001, 10) | NONE,
                             "probe_s": PERIOD}  # fmt: skip
OWN: dict[str, dict[str, Values]] = {
    "netns": {"site_delays_ms": NO_ROWS | CROOKED},
    "dumbbell": {"left": outside(1, 3) | FRACTION, "access": NO_NUMBER | st.integers()},
    "wan": {"sites": SITES, "site_delays_ms": NO_ROWS | CROOKED | NONE},
}
KEYS = [(network, key) for network, own in OWN.items() for key in COMMON | own]


@pytest.fixture(scope="module")
def composed() -> dict[str, dict[str, Any]]:
    """The default run on each network, as plain values."""
    found = {}
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        for network in OWN:
            config = compose("config", [f"network={network}", "steps=1"])
            values = OmegaConf.to_container(config, resolve=True)
            assert isinstance(values, dict)
            found[network] = {str(key): value for key, value in values.items()}
            found[network]["method"] = {"name": "a label"}
    return found


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object) -> None:
        raise AssertionError("a network was started")

    monkeypatch.setattr(topology, "IPRoute", start)
    monkeypatch.setattr(topology.impairments, "require", lambda: None)  # this kernel may lack it


@pytest.mark.parametrize("network", OWN)
def test_what_ships_is_accepted(composed: dict[str, Any], network: str) -> None:
    checked(Settings(composed[network]))


@pytest.mark.parametrize(("network", "key"), KEYS)
def test_a_bad_value_is_told_by_its_key(composed: dict[str, Any], network: str, key: str) -> None:
    values = (COMMON | OWN[network])[key]

    @TRIED
    @given(value=values)
    def law(value: Any) -> None:
        config = composed[network] | {"network": composed[network]["network"] | {key: value}}
        if key == "queue_bytes":
            config["network"]["queue_ms"] = None
        with pytest.raises(BadSetting, match=rf"(?s)^network: .*\b{key}\b"):
            checked(Settings(config))

    law()
