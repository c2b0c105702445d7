"""Settings: every experiment composes at both scales, and its run id names what decides it."""

import shutil
from functools import cache

import pytest
from hydra.errors import MissingConfigException

from harness.config import parts, scales, search_path, sweep
from harness.config.search_path import choices
from harness.config.settings import BadSetting
from harness.config.typed import leaves
from harness.validation import checked

EXPERIMENTS = choices("experiment")
STAND_INS = ["dct_fig8a", "dct_fig8c", "dct_hybrid", "dct_table5"]  # of what is not published
SCALED = [
    name
    for name, path in EXPERIMENTS.items()
    if "${scale}" in path.read_text() and name not in STAND_INS
]
METHODS = choices("method")
CUT = {"dct_hybrid": ("parallel=pipeline",)}  # it needs a model in stages


def settings(*overrides: str):
    with sweep.hydra():
        return sweep.plain_settings(sweep.load(overrides))


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_can_start_on_any_machine_at_laptop_scale(experiment, monkeypatch):
    monkeypatch.setenv("GRADNET_DATA", "/nowhere")
    found = settings(f"+experiment={experiment}", "scale=laptop")
    checked(found)
    assert found["experiment"] == experiment
    assert found["emulation.compute"] in ("paced", "replay")


@pytest.mark.parametrize("experiment", SCALED)
def test_at_paper_scale_only_the_data_is_missing(experiment, monkeypatch) -> None:
    monkeypatch.setenv("GRADNET_DATA", "/nowhere")
    found = settings(f"+experiment={experiment}")
    workers = {"dct": 1, "covap": 64, "acp": 4}
    assert found["workers"] == workers.get(experiment.partition("_")[0], 8)
    if found["emulation.compute"] == "replay":  # needs none
        checked(found)
        return
    with pytest.raises(BadSetting, match=r"/nowhere.*scale=laptop"):
        checked(found)


@pytest.mark.parametrize("experiment", STAND_INS)
def test_a_stand_in_is_refused_at_paper_scale_and_taken_where_none_is_said(experiment) -> None:
    with pytest.raises(BadSetting, match=r"^scale must be laptop for .* write scale=laptop$"):
        scales.compose([f"+experiment={experiment}", "scale=paper"])
    runs, said, *_ = scales.describe([[f"+experiment={experiment}"]])
    assert {run["scale.name"] for run in runs} == {"laptop"} and said.startswith("scale=laptop: ")
    with pytest.raises(MissingConfigException):  # another mistake is not taken for it
        settings("workload=digits_convnet_paper")


@pytest.mark.parametrize("method", METHODS)
def test_every_method_goes_with_the_default_workload(method):
    found = settings(f"method={method}", *CUT.get(method, ()))
    checked(found)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_the_first_lines_of_an_experiment_are_its_command(experiment):
    lines = EXPERIMENTS[experiment].read_text().splitlines()
    assert lines[0] == "# @package _global_"
    assert "python -m harness" in lines[1] and f"+experiment={experiment}" in lines[1]


def test_the_run_id_depends_on_what_decides_the_result_and_on_nothing_else():
    one = settings().run_dir()
    assert settings("results=/elsewhere", "rerun=true").run_dir().name == one.name
    assert settings("report=false").run_dir().name == one.name
    for other in ("seed=1", "steps=7", "profile.rate_mbit=17", "method=topk"):
        assert settings(other).run_dir().name != one.name


def test_the_run_id_depends_on_what_is_in_the_files_that_are_named(tmp_path):
    """At any depth: here a trace inside another profile."""
    trace = tmp_path / "own.csv"
    nested = ("profile=scaled", "profile@profile.of=trace", f"profile.of.path={trace}")
    trace.write_text("time_s,rate_mbit\n0,10\n5,20\n")
    before = settings(*nested).run_dir().name
    assert settings(*nested).run_dir().name == before
    trace.write_text("time_s,rate_mbit\n0,10\n5,21\n")
    assert settings(*nested).run_dir().name != before
    assert "files" not in settings("profile=markov").identity()


def test_the_run_id_depends_on_what_is_in_a_file_of_regions(tmp_path):
    regions = tmp_path / "own.csv"
    names = "network.sites=[a,a,b,b]"
    words = ("network=simulated_wan", "workers=4", f"network.regions={regions}", names)
    words += ("network.site_delays_ms=null",)
    regions.write_text("sender,receiver,rtt_ms\na,b,10\nb,a,10\n")
    before = settings(*words)
    name = before.run_dir().name
    regions.write_text("sender,receiver,rtt_ms\na,b,10\nb,a,11\n")
    assert settings(*words).run_dir().name != name
    regions.write_text("sender,receiver,rtt_ms\na,b,10\n")
    with pytest.raises(BadSetting, match=r"must have a row from b to a"):
        before.build("network")


def test_a_frozen_part_is_made_once_for_all_runs_that_describe_it(tmp_path):
    """Until a file that it names has other content; what has a state is every run's own."""
    trace = tmp_path / "own.csv"
    trace.write_text("time_s,rate_mbit\n0,10\n5,20\n")
    words = ("network=simulated", "profile=trace", f"profile.path={trace}", "method=topk")
    one, other, apart = (
        settings(*words),
        settings(*words, "seed=1"),
        settings(*words, "network.noise=0.25"),
    )
    for part in ("network", "profile", "model"):
        assert one.build(part) is other.build(part)
    assert one.build("network").noise != apart.build("network").noise == 0.25
    assert one.build("controller") is not one.build("controller")
    trace.write_text("time_s,rate_mbit\n0,10\n5,21\n")
    assert one.build("profile").link(6.0, 0, "up").rate_mbit == 21


SHARED = "method=dc2_da2 compressor=randomk compressor.shared=false compressor.shared=true"


@pytest.mark.parametrize(("words", "said", "accepted"), [
    *((f"residual_decay={decay} error_feedback=true",
       r"residual_decay must be a number in \[0, 1\]", "") for decay in (-0.1, 1.5, "null")),
    ("residual_decay=0.9", "residual_decay must be 1 without error_feedback",
     "residual_decay=0.9 method=topk controller.density=0.1"),
    ("bucket_mb=-1", r"bucket_mb must be .*\[0, 1000000\] or null, got -1", "bucket_mb=0"),
    ("overlap=never", "overlap must be one of per_bucket, after_", "overlap=after_backward"),
    *((f"compressor={each} controller=dc2_da1", r"controller must be fixed with \w+, .* got DA1",
       f"compressor={each}") for each in ("dense", "fp16", "onebit", "powersgd", "terngrad")),
    ("profile.rate_mbit=[10,20] workers=3", "profile: rate_mbit must have a rate for node 2",
     "profile.rate_mbit=[10,20] workers=4 workers_per_node=2"),
    (SHARED, r"controller\.agree must be min or mean", f"{SHARED} controller.agree=min"),
])  # fmt: skip
def test_what_cannot_be_or_does_not_go_together_is_refused(words, said, accepted):
    with pytest.raises(BadSetting, match=said):
        checked(settings(*words.split()))
    checked(settings(*accepted.split()))


def test_tensors_are_buckets_where_overlap_is_by_tensor():
    assert settings("bucket_mb=0").run().bucket_mb == 0
    for overlap in ("per_bucket", "after_backward"):
        for value, expected in (("5", 5), ("0", 0), ("null", None)):
            found = settings(f"overlap={overlap}", f"bucket_mb={value}")
            assert checked(found).bucket_mb == expected


@pytest.mark.parametrize(("method", "part"), [
    ("method=topk", "controller=dc2_da1"),
    ("method=topk", "controller=netsense"),
    ("method=dgc", "controller=fixed"),
    ("method=dct_dp", "compressor=topk"),
    ("method=diloco", "parallel=data"),
])  # fmt: skip
def test_a_part_in_place_of_a_method_s_own_is_without_what_the_method_sets_for_that(method, part):
    found = settings(method, part)
    checked(found)
    group, _, name = part.partition("=")
    assert set(found[group]) - {"agree"} <= {"_target_", *parts.choices(group)[name]}


def test_a_key_that_a_part_lacks_is_refused_where_the_command_sets_it():
    words = "method=topk", "controller=dc2_da1", "controller.density=0.1"
    with pytest.raises(BadSetting, match=r"density is no key of DA1, whose keys are k_0,.*delay_s"):
        checked(settings(*words))
    assert settings("method=topk", "controller=warmup")["controller.density"] == 0.01


@pytest.mark.parametrize(("override", "said"), [
    ("accumulate=0", r"accumulate must be a whole number in \[1, 2\^32\), got 0"),
    ("precision=fp16", "precision must be one of float32, bf16, got 'fp16'"),
    ("resume_from=3", "resume_from must be a path or null, got 3"),
    ("precision=bf16", "precision must be float32 with emulation.compute=replay"),
])  # fmt: skip
def test_bad_values_of_training(override, said):
    with pytest.raises(BadSetting, match=said):
        checked(settings("emulation.compute=replay", "model=mlp_as_resnet20", override))


def test_a_pair_of_seeds_is_one_network_for_every_method():
    """The network's seed follows the other unless it is said, in every profile that draws."""

    @cache
    def profiles(*seeds: str) -> set[str]:
        told = ["+experiment=quickstart", *seeds]
        return {str(settings(*told, f"method={method}")["profile"]) for method in METHODS}

    assert len(profiles("seed=1")) == 1
    assert profiles("seed=1") == profiles("network_seed=1") == profiles("seed=1", "network_seed=1")
    assert profiles("seed=1") != profiles("seed=2")
    assert profiles("seed=1", "network_seed=0") == profiles()
    with pytest.raises(BadSetting, match="network_seed must be"):
        checked(settings("network_seed=-1"))


@pytest.mark.parametrize("profile", choices("profile"))
def test_every_seed_of_a_profile_follows_the_network_s(profile):
    drawn = settings(f"profile={profile}", "network_seed=41")["profile"]
    seeds = [value for keys, value in leaves(drawn) if keys[-1] == "seed"]
    assert all(value == 41 for value in seeds)


def test_a_choice_that_is_changed_is_composed_anew(tmp_path, monkeypatch):
    """What a process has read once it reads again, as in a notebook whose choices are edited."""
    conf = shutil.copytree(sweep.CONF, tmp_path / "conf")
    for module in (search_path, sweep):
        monkeypatch.setattr(module, "CONF", conf)

    def rate_mbit() -> float:
        with sweep.hydra():
            return sweep.load(["profile=static"]).profile.rate_mbit

    assert rate_mbit() == 1000
    choice = conf / "profile" / "static.yaml"
    choice.write_text(choice.read_text().replace("rate_mbit: 1000.0", "rate_mbit: 432.5"))
    assert rate_mbit() == 432.5
