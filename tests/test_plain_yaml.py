"""YAML of others is read within bounds, wherever it comes from."""

import os
from pathlib import Path

import pytest
import yaml

from harness.config import plain_yaml
from harness.config.scales import composed
from harness.config.search_path import OWN
from harness.config.settings import Settings
from harness.runner import previous_result
from tests.test_own_parts import search_path_changed
from tests.test_refused import refusal


def laughs(depth: int = 12, wide: int = 10) -> str:
    """A text whose last value stands for wide ** depth words."""
    lines = [f"a0: &a0 [{', '.join(['x'] * wide)}]"]
    for at in range(1, depth):
        lines.append(f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * wide)}]")
    return "\n".join([*lines, ""])


def merges(depth: int = 30) -> str:
    """The same by merge keys."""
    lines = ["m0: &m0 {a: 1, b: 2}"]
    lines += [f"m{n}: &m{n} {{x: *m{n - 1}, y: *m{n - 1}, <<: *m{n - 1}}}" for n in range(1, depth)]
    return "\n".join([*lines, ""])


ENDLESS = {
    "aliases": (laughs(), "aliases stand for more than 10000 values"),
    "merge keys": (merges(), "aliases stand for more than 10000 values"),
    "itself": ("a: &a [*a]\n", "aliases stand for more than 10000 values"),
    "deep": ("a: " + "{b: " * 40 + "1" + "}" * 40, "nested more than 32 deep"),
    "deep blocks": ("- " * 3000 + "1", "nested more than 32 deep"),
    "never closed": ("a: " + "[" * 200_000, "nested more than 32 deep"),
    "large": ("a: " + "x" * plain_yaml.MOST_BYTES, "more than 1048576 bytes"),
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_a_text_that_may_never_end_is_refused(kind: str, tmp_path: Path) -> None:
    text, said = ENDLESS[kind]
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(plain_yaml.Refused, match=said):
        plain_yaml.from_file(tmp_path / "a.yaml")


def test_a_pipe_or_a_device_is_no_file_to_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "link.yaml").symlink_to("/dev/zero")
    for name in ("pipe.yaml", "link.yaml"):
        with pytest.raises(plain_yaml.Refused, match="a pipe or a device"):
            plain_yaml.from_file(tmp_path / name)


def test_a_few_aliases_are_read_as_copies_and_can_be_refused() -> None:
    text = "base: &b {lr: 0.1, of: [1, 2]}\none: {<<: *b, steps: 3}\ntwo: *b\n"
    assert plain_yaml.read(text) == yaml.safe_load(text)
    with pytest.raises(plain_yaml.Refused, match="it has aliases, which no run writes"):
        plain_yaml.read(text, aliases=False)


@pytest.mark.parametrize("kind", ENDLESS)
def test_a_choice_of_one_s_own_that_never_ends_is_refused_by_name(kind, tmp_path, monkeypatch):
    monkeypatch.setenv(OWN, "")
    search_path_changed()
    text, said = ENDLESS[kind]
    file = tmp_path / "conf" / "profile" / "endless.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    told = refusal(tmp_path / "results", f"--config-dir={tmp_path / 'conf'}", "profile=endless")
    assert "endless.yaml" in told and said in told and "\n" not in told
    monkeypatch.setenv(OWN, "")
    search_path_changed()


@pytest.mark.parametrize("kind", ["aliases", "deep", "large"])
def test_a_command_meets_an_earlier_run_whose_settings_never_end(kind, tmp_path):
    """It reads them to see whether the run is its own, and does it again."""
    asked, _ = composed(["network=simulated", "steps=2", f"results={tmp_path}"])
    run_dir = asked.run_dir()
    run_dir.mkdir(parents=True)
    (run_dir / "status.json").write_text('{"state": "failed"}')
    (run_dir / "config.yaml").write_text(ENDLESS[kind][0])
    with pytest.raises(plain_yaml.Refused):
        Settings.read(run_dir)
    assert previous_result.damage(run_dir, asked) == "config.yaml is damaged"
