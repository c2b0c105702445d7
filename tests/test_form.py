"""What is said of a model's buckets, beside those of the model that it stands for."""

import json
from itertools import pairwise

import pytest

from harness.engine.training.forms import forms, told
from harness.reporting.analysis import load
from harness.reporting.page.surroundings import forms as of_page
from harness.workloads.form import Form, read, said, unlike
from tests.test_settings import settings
from tests.virtual.runs import DETERMINED, simulated

STANDS = ("model=mlp_as_resnet50", "dataset=digits")
OWN, LARGE = Form("small", 5, 0.1, 0.8), Form("large", 5, 0.1, 0.8)


def test_a_stand_in_is_told_with_its_original_and_is_like_it():
    found = forms(settings(*STANDS).run())
    assert [each.model for each in found] == ["mlp_as_resnet50", "resnet50"]
    assert [each.buckets for each in found] == [5, 5] and unlike(found) == ""
    assert "mlp_as_resnet50: 5 buckets, the largest tensor 9.5%" in said(found)
    assert "in the place of resnet50: 5 buckets, the largest tensor 9.2%" in said(found)


def test_a_model_that_stands_for_none_is_told_alone():
    [found] = forms(settings("model=convnet").run())
    assert found.buckets == 1 and unlike([found]) == ""
    assert found.hidden == pytest.approx(0)


def test_more_and_smaller_buckets_hide_more_and_none_is_hidden_after_backward():
    """Of the original; a stand-in has fewer tensors to make buckets of, which is told."""
    found = [forms(settings(*STANDS, f"bucket_mb={mb}").run()) for mb in (25, 5, 1, 0)]
    assert all(a.hidden < b.hidden for a, b in pairwise(each[1] for each in found))
    assert [bool(unlike(each)) for each in found] == [False, True, True, True]
    found = forms(settings(*STANDS, "overlap=after_backward").run())
    assert [each.hidden for each in found] == [0, 0]


@pytest.mark.parametrize("parallel", ["pipeline", "server"])
def test_where_no_buckets_are_exchanged_there_is_nothing_to_tell(parallel):
    assert forms(settings(f"parallel={parallel}").run()) == [] and said([]) == ""


@pytest.mark.parametrize(("other", "differs"), [
    (LARGE, False),
    (LARGE._replace(buckets=6), True),
    (LARGE._replace(largest=0.109), False),
    (LARGE._replace(largest=0.12), True),
    (LARGE._replace(hidden=0.71), False),
    (LARGE._replace(hidden=0.69), True),
])  # fmt: skip
def test_what_is_unlike(other, differs):
    assert bool(unlike([OWN, other])) == differs


def test_a_run_records_it_for_its_page(tmp_path):
    run = simulated(tmp_path, "steps=1", "workers=2", "model=mlp_as_resnet20", *DETERMINED)
    found = read(load.environment(run))
    assert found == forms(settings("model=mlp_as_resnet20", "dataset=digits").run())
    assert of_page([str(run), str(run)]) == [said(found)]


@pytest.mark.parametrize("bad", [3, "ab", [3], [{"model": "a"}], [["model"]], {"a": 1}])
def test_what_cannot_be_believed_is_not_told(bad):
    assert read({"forms": bad}) == [] == read({})


def test_it_survives_being_written():
    asked = settings(*STANDS).run()
    assert read(json.loads(json.dumps({"forms": told(asked)}))) == forms(asked)
