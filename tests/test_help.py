"""What `--help` shows is all that can be composed, and says what it is."""

import os
import sys

import pytest
from omegaconf import OmegaConf

import harness
from harness.cli import help as shown_help
from harness.cli.help import shown
from harness.config.search_path import CONF, choices, groups
from harness.config.settings import BadSetting
from tests.launching import completed

SCREEN = 60  # lines
GROUPS = groups()


def names(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines() if line.startswith("  ")]


def test_one_screen_has_every_group_and_every_key():
    text = shown(None)
    assert len(text.splitlines()) <= SCREEN
    _, groups, keys = text.replace("Groups", "\0").replace("Keys", "\0").split("\0")
    assert sorted(names(groups)) == GROUPS
    config = set(map(str, OmegaConf.load(f"{CONF}/config.yaml")))
    assert set(names(keys)) == config - {"defaults", *shown_help.NOT_OF_A_RUN}


@pytest.mark.parametrize("group", GROUPS)
def test_every_choice_says_what_it_is(group):
    lines = shown(group).splitlines()
    assert [line for line in lines if len(line.split(maxsplit=1)) < 2] == []
    assert set(choices(group)) <= set(names("\n".join(lines)))


def test_a_section_and_a_choice_show_their_keys():
    assert {"kind", "lr", "momentum", "schedule"} <= set(names(shown("optimizer")))
    assert shown("compressor=topk") == (CONF / "compressor/topk.yaml").read_text().rstrip()
    assert "network/device" in names(shown("network"))
    assert "v100" in names(shown("network/device"))


def test_what_is_not_there_is_told_in_a_line():
    for name, said in {
        "compresor": "no such group",
        "compressor=topkk": "no choice 'topkk'",
    }.items():
        with pytest.raises(BadSetting, match=said) as refused:
            shown(name)
        assert "\n" not in str(refused.value)


def test_who_reads_may_stop_reading():
    reading, writing = os.pipe()
    os.close(reading)
    done = completed([sys.executable, "-m", "harness", "--help"], stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("module", ["harness", "gradnet"])
def test_version_is_the_project_s(module):
    told = completed([sys.executable, "-m", module, "--version"])
    assert told.stdout == f"gradnet {harness.__version__}\n"
