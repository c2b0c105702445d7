"""What a method is called: equal names exactly for equal settings, and readable ones."""

import re
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from harness.config import label, search_path, sweep
from harness.config.parts import choices, presets

GROUPS = ("compressor", "controller", "activations")
SERVER = choices("parallel")["server"]
WORDS = ["int32", "int64", "sort", "a_b", "min", "1", "1e-3", "no_ef", "x/y", "", "ef", "k_0=0.2"]
RUN = {"seed": 3, "workers": 4, "workers_per_node": 1, "profile": {"_target_": "profiles.x.X"}}


def composed(*overrides: str) -> dict[str, Any]:
    with sweep.hydra():
        return sweep.plain_settings(sweep.load(overrides)).config


def called(*overrides: str) -> str:
    return str(composed(*overrides)["method"]["name"])


def other_than(value: Any) -> st.SearchStrategy[Any]:
    """Values that a field may have beside the one of conf/."""
    if isinstance(value, bool):
        return st.booleans()
    if isinstance(value, (int, float)):
        return st.sampled_from([value, value / 2, 2 * value, 1, 0.25, None])
    if isinstance(value, str):
        return st.sampled_from([value, *WORDS])
    return st.sampled_from([value, None, 0.5, [0.5, 1], [], ["a", "b"], ["a,b"]])


@st.composite
def sections(draw: st.DrawFn, group: str) -> dict[str, Any]:
    """A choice of conf/ with up to two fields changed."""
    name = draw(st.sampled_from(sorted(choices(group))))
    section = dict(choices(group)[name])
    keys = sorted(set(section) - {"_target_"})
    for key in draw(st.lists(st.sampled_from(keys), max_size=2)) if keys else []:
        section[key] = draw(other_than(section[key]))
    return section


@st.composite
def compositions(draw: st.DrawFn) -> dict[str, Any]:
    """Parts that need not go together, such as a command line may ask for."""
    if draw(st.booleans()):
        found = {key: draw(sections(key)) for key in GROUPS}
    else:
        told = dict(presets()[draw(st.sampled_from(sorted(presets())))])
        part = draw(st.sampled_from(GROUPS))
        found = told | ({part: draw(sections(part))} if draw(st.booleans()) else {})
    found["error_feedback"] = draw(st.booleans())
    found["residual_decay"] = draw(st.sampled_from([1.0, 1, 0.9]))
    found["overlap"] = draw(st.sampled_from(["per_bucket", "after_backward"]))
    found["bucket_mb"] = draw(st.sampled_from([None, None, 1, 0.05]))
    found["fusion"] = draw(st.sampled_from(["uncompressed", "compressed"]))
    found["controller"] = found["controller"] | {"agree": draw(st.sampled_from(["local", "min"]))}
    if draw(st.integers(0, 3)) == 0:
        found["parallel"] = SERVER | {"mode": draw(st.sampled_from(["sync", "async"]))}
    return RUN | found


def respelled(config: dict[str, Any]) -> dict[str, Any]:
    """The same settings: defaults left out, whole numbers whole, the run's own values resolved."""
    found = dict(config)
    for group in GROUPS:
        target = {"_target_": config[group]["_target_"]}
        usual = label.method_of({group: target})._asdict()[group]
        kept = {k: v for k, v in config[group].items() if k not in usual or v != usual[k]}
        whole = {k: int(v) if isinstance(v, float) and v == int(v) else v for k, v in kept.items()}
        found[group] = whole | target
    return found


@settings(max_examples=120, deadline=None)
@given(st.lists(compositions(), min_size=2, max_size=12))
def test_names_are_equal_exactly_where_settings_are(drawn: list[dict[str, Any]]) -> None:
    methods, names = {}, {}
    for config in drawn:
        method, name = label.method_of(config), label.of(config)
        assert methods.setdefault(name, method) == method, name
        assert names.setdefault(repr(method), name) == name
        assert label.of(respelled(config)) == name


@settings(max_examples=100, deadline=None)
@given(compositions(), st.data())
def test_a_field_that_is_changed_changes_the_name(config: dict[str, Any], data: Any) -> None:
    group = data.draw(st.sampled_from(GROUPS))
    keys = sorted(set(label.method_of(config)._asdict()[group]) - {"_target_"})
    if keys:
        key = data.draw(st.sampled_from(keys))
        other = config | {group: config[group] | {key: 0.123}}
        assert (label.of(other) == label.of(config)) == (config[group].get(key) == 0.123)


@settings(max_examples=100, deadline=None)
@given(compositions())
def test_a_name_is_one_word_of_a_file(config: dict[str, Any]) -> None:
    assert re.fullmatch(r"[A-Za-z0-9.,=+_-]+", label.of(config))


def test_what_a_class_has_by_default_need_not_be_said() -> None:
    bare = {"controller": {"_target_": "controllers.dc2.DA2"}, "error_feedback": True}
    bare |= {"compressor": {"_target_": "compressors.sampled_topk.SampledTopK"}}
    assert label.of(bare) == "dc2_da2"


def test_the_seed_and_the_network_of_a_run_are_no_part_of_its_method() -> None:
    for changed in ({"seed": 9}, {"workers": 8}, {"profile": {"_target_": "profiles.y.Y"}}):
        resolved = [
            run | {"compressor": {"_target_": "compressors.randomk.RandomK", "seed": run["seed"]},
                   "controller": {"_target_": "controllers.oracle.Oracle",
                                  **{key: run[key] for key in RUN if key != "seed"}}}
            for run in (RUN, RUN | changed)
        ]  # fmt: skip
        assert len({label.of(each) for each in resolved}) == 1


@pytest.mark.parametrize(
    ("overrides", "name"),
    {
        "": "allreduce",
        "method=allreduce overlap=after_backward": "allreduce_after_backward",
        "method=topk controller.density=0.1": "topk_0.1",
        "method=topk": "topk_0.01",
        "compressor=topk controller.density=0.001": "topk_0.001_no_ef",
        "compressor=topk": "topk_1_no_ef",
        "compressor=topk controller.density=0.1 error_feedback=true": "topk_0.1",
        "method=topk overlap=after_backward": "topk_0.01_after_backward",
        "method=topk compressor.index_dtype=int64": "topk_0.01_int64",
        "method=topk compressor=randomk controller.density=1e-3": "randomk_0.001",
        "method=qsgd": "qsgd",
        "method=qsgd compressor.bits=8": "qsgd_bits=8",
        "compressor=fp16": "fp16",
        "method=powersgd overlap=after_backward": "powersgd_after_backward",
        "method=powersgd bucket_mb=25": "powersgd_bucket_mb=25",
        "method=acp_sgd compressor.reuse=false": "acp_sgd_no_reuse",
        "method=acp_sgd fusion=uncompressed": "acp_sgd_fusion=uncompressed",
        "compressor=sampled_topk controller=dc2_da2 error_feedback=true": "dc2_da2",
        "method=dc2_da2 controller.k_0=0.2": "dc2_da2_k_0=0.2",
        "method=dc2_da2 compressor=randomk compressor.shared=false": "dc2_da2_randomk_no_shared",
        "method=dc2_da2 residual_decay=0.9": "dc2_da2_residual_decay=0.9",
        "method=netsense controller.bdp_gain=2": "netsense_bdp_gain=2",
        "method=dct_dp controller.density=0.1": "dct_dp_0.1",
        "activations=dct_mp parallel=split": "dct_mp_0.1",
        "activations=topk_grad_no_ef parallel=split": "topk_grad_no_ef_0.25",
        "method=dct_hybrid parallel=split": "dct_hybrid",
        "method=dct_hybrid parallel=split controller.density=0.1": "dct_dp_0.1+dct_mp_0.1",
        "parallel=server": "dense_ps",
        "parallel=server parallel.mode=async": "dense_ps_mode=async",
        "method=dct_ps": "dct_ps",
        "method=topk parallel=server": "topk_ps_0.01",
        "method=diloco": "diloco",
        "method=diloco parallel.h=32": "diloco_h=32",
        "method=diloco compressor=topk controller.density=0.1": "diloco_topk_0.1",
        "method=diloco_streaming parallel.lag=2": "diloco_streaming_lag=2",
        "method=diloco controller=cu_target": "diloco_cu_target",
        "method=diloco controller=pace_horizon controller.zeta=0.2": "diloco_pace_horizon_zeta=0.2",
        "method=localsgd parallel.h=16": "localsgd_h=16",
        "method=qsgd parallel=server": "qsgd_ps",
        "method=netsense parallel=server": "netsense_ps",
        "method=dc2_da2 parallel=server controller.k_0=0.2": "dc2_da2_ps_k_0=0.2",
        "compressor=topk controller=warmup error_feedback=true": "topk_warmup",
    }.items(),
)
def test_names_are_readable(overrides: str, name: str) -> None:
    assert called(*overrides.split()) == name


@pytest.mark.parametrize("preset", sorted(presets()))
def test_a_preset_is_called_by_its_name(preset: str) -> None:
    """A number stands behind a compressor's, which says nothing of how much is sent."""
    name = called(f"method={preset}", "parallel=pipeline") if preset == "dct_hybrid" else called(
        f"method={preset}"
    )  # fmt: skip
    assert name in (preset, f"{preset}_{presets()[preset]['controller'].get('density')}")


@pytest.mark.parametrize("group", [*GROUPS, "method"])
def test_choices_are_read_as_hydra_reads_them(group: str) -> None:
    for file in search_path.choices(group).values():
        assert yaml.safe_load(file.read_text()) == OmegaConf.to_container(OmegaConf.load(file))


@pytest.mark.parametrize("preset", sorted(presets()))
def test_a_preset_is_read_as_hydra_composes_it(preset: str) -> None:
    run = composed(f"method={preset}")
    assert label.method_of(run) == label.method_of(presets()[preset])
