"""The commands of a page compose, in Hydra's own way, to the settings of the runs."""

import shlex

import pytest
from omegaconf import OmegaConf

from harness.config import scales, sweep
from harness.reporting.page import commands

CHOICES = {
    "an_experiment": ["+experiment=netsense_resnet18_static", "scale=laptop", "seed=2",
                      "method=netsense", "profile.of.rate_mbit=500"],
    "another_network": ["+experiment=quickstart", "network=simulated", "method=dc2_da2"],
    "no_experiment": ["profile=straggler", "model=mlp", "method=powersgd", "optimizer.lr=1e-3"],
    "other_parts": ["compressor=qsgd", "controller=warmup", "network=dumbbell", "steps=9"],
    "laptop_alone": ["+experiment=dct_fig8a", "scale=laptop", "method=hogwild"],
    "words": ["dataset=pydoc", "model=lstm_ptb", "target.metric=perplexity", "seed=3"],
}  # fmt: skip


def composed(overrides: list[str]) -> dict:
    with sweep.hydra():
        return sweep.plain_settings(sweep.load(overrides)).config


def written(folder, overrides: list[str]) -> str:
    folder.mkdir(parents=True)
    config = composed(overrides)
    OmegaConf.save(OmegaConf.create(config), folder / "config.yaml")
    return str(folder)


def identity(config: dict) -> dict:
    return {key: value for key, value in config.items() if key not in commands.NOT_TOLD}


@pytest.mark.parametrize("name", CHOICES)
def test_a_command_composes_to_the_settings_of_its_run(tmp_path, name):
    path = written(tmp_path / "run", CHOICES[name])
    said = commands.of_runs([path]).of_run[path]
    words = shlex.split(said.removeprefix(commands.PROGRAM))
    assert identity(composed(words)) == identity(composed(CHOICES[name]))


def test_a_command_says_no_more_than_it_must(tmp_path):
    path = written(tmp_path / "run", CHOICES["an_experiment"])
    found = shlex.split(commands.of_runs([path]).of_run[path])
    assert sorted(found[3:]) == sorted(CHOICES["an_experiment"])


def test_runs_that_are_a_product_of_values_have_one_command(tmp_path):
    base = ["+experiment=dc2_imagenet_static", "scale=laptop"]
    paths = [
        written(tmp_path / f"{method}{seed}", [*base, f"method={method}", f"seed={seed}"])
        for method in ("allreduce", "dc2_da2")
        for seed in (0, 1, 2)
    ]
    whole = commands.of_runs(paths).sweep
    assert whole == f"python -m harness -m {' '.join(base)} method=allreduce,dc2_da2 seed=0,1,2"
    assert commands.of_runs(paths[1:]).sweep == ""
    seeds = commands.of_runs([paths[0], paths[1], paths[3], paths[4]]).sweep
    assert seeds.endswith("method=allreduce,dc2_da2 seed=0,1")


def test_all_runs_of_a_comparison_have_the_command_of_their_experiment(tmp_path):
    asked = ["+experiment=quickstart"]
    with sweep.hydra():
        whole = sweep.choices(asked)
    paths = [written(tmp_path / f"{at}", choice) for at, choice in enumerate(whole)]
    assert len(whole) > 1
    assert commands.of_runs(paths).sweep == "python -m harness " + " ".join(asked)
    assert commands.of_runs(paths[1:]).sweep == ""


def test_what_the_runs_of_a_sweep_share_is_composed_once(tmp_path, monkeypatch):
    base = ["+experiment=quickstart", "network=simulated", "profile=straggler", "dataset=pydoc"]
    methods = ("allreduce", "dc2_da2", "powersgd", "qsgd")
    paths = [written(tmp_path / each, [*base, f"method={each}"]) for each in methods]
    seen = []
    one = commands.compose
    monkeypatch.setattr(commands, "compose", lambda *asked: seen.append(asked) or one(*asked))
    commands._composed.cache_clear()
    assert set(commands.of_runs(paths).of_run) == set(paths)
    of_a_method = [asked for asked in seen if any("method=" in each for each in asked[1])]
    assert len(of_a_method) == len(methods) and len(seen) <= len(methods) + len(base) + 1


def test_the_command_of_one_run_describes_one_run(tmp_path):
    for at, asked in enumerate((CHOICES["an_experiment"], ["+experiment=virtual_time"])):
        path = written(tmp_path / f"{at}", asked)
        words = shlex.split(commands.of_runs([path]).of_run[path])[3:]
        assert len(scales.compose(words)) == 1


def test_a_run_whose_settings_are_lost_has_no_command(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("method: {name: of_elsewhere\n")
    found = commands.of_runs([str(tmp_path / "run")])
    assert found.sweep == "" and found.of_run == {}


def test_a_run_of_an_experiment_that_is_not_here_has_no_command(tmp_path):
    path = written(tmp_path / "run", CHOICES["an_experiment"])
    file = tmp_path / "run" / "config.yaml"
    file.write_text(file.read_text().replace("netsense_resnet18_static", "of_yesterday"))
    assert commands.of_runs([path]).of_run == {}
