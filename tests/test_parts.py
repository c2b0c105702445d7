"""What a configuration's class says of itself; a damaged file may name any class there."""

import pytest

from harness.config import parts


@pytest.mark.parametrize(("target", "has_level", "keeps_largest", "replaces"), [
    ("compressors.topk.TopK", True, False, ()),
    ("compressors.dense.Dense", False, False, ()),
    ("compressors.dgc.DGC", True, False, ("error_feedback", "optimizer.momentum")),
    ("compressors.activations.dct_mp.DCTMP", True, True, ()),
    ("compressors.activations.topk_grad.TopKGrad", True, False, ()),
    ("controllers.dc2.DC2", True, False, ()),  # no compressor
    ("compressors.base.inf", True, False, ()),  # no class
    ("compressors.gone.Gone", True, False, ()),
    ("elsewhere.TopK", True, False, ()),
    ("", True, False, ()),
])  # fmt: skip
def test_only_a_compressor_says_what_it_is(target, has_level, keeps_largest, replaces):
    assert parts.has_level(target) is has_level
    assert parts.keeps_largest(target) is keeps_largest
    assert set(parts.replaces(target)) == set(replaces)
