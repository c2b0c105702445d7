"""Values out of range are refused in one line: `KEY must be RANGE, got VALUE`.

Below each class are its bad values, as `KEY=VALUE OTHER=VALUE: RANGE`: the first key is refused,
the others are what it needs beside it. A long range is given by its beginning.
"""

import pydoc
import re
from collections.abc import Iterator

import pytest
import yaml

REFUSED = """
compressors.acp_sgd.ACPSGD
    rank=true: a whole number >= 1, or null for density's |
    rank=1.5: a whole number >= 1, or null for density's
compressors.activations.dct_mp.DCTMP
    threshold=guess density=0.1: exact or laplace | memory=1 density=0.1: in [0, 1) |
    density=0: a number in (0, 1]
compressors.activations.sketch.GaussianSketch
    density=1.5 seed=0: a number in (0, 1]
compressors.activations.topk_grad.TopKGrad
    density=-1: a number in (0, 1]
compressors.carried_topk.CarriedTopK
    low=1.0: in (0, 1) | high=1.0: > 1 | capacity=0.9: >= 1 | index_dtype=int8: int32 or int64
compressors.covap.COVAP
    init=1.1: in [0, 1] or null | ascend_range=-0.1: >= 0 | ascend_steps=0: >= 1 or null
compressors.dct_dp.DCTDP
    lifespan=0: >= 1 | refresh=never: one of paper, warmup |
    selection=x: one of sort, partition, sample | index_dtype=int8: int32 or int64
compressors.demo.DeMo
    decay=1.0: in [0, 1) | chunk=128: a whole number in [1, 64]
compressors.dgc.DGC
    momentum=1.0: in [0, 1) | clip_norm=0.0: > 0 or null
compressors.lgreco.LGreCo
    period=0: >= 1 | alpha=0.5: >= 1 | lowest=0.0: in (0, 1] | highest=0.5: >= 1 |
    choices=1: in [2, 1000] | bins=10: in [100, 1000000]
compressors.netsense.NetSenseML
    tr_q=-0.1: in [0, 1] | tr_q=1.1: in [0, 1] | tr_d=-1.0: auto or >= 0 | tr_d=high: auto or >= 0 |
    index_dtype=int16: int32 or int64
compressors.oktopk.OkTopK
    threshold_period=0: >= 1 | region_period=0: >= 1 | local_gain=0.9: >= 1 |
    global_gain=.nan: >= 1 | index_dtype=float32: int32 or int64
compressors.powersgd.PowerSGD
    rank=0: a whole number >= 1, or null for density's | min_compression_rate=-1: >= 0
compressors.qsgd.QSGD
    bits=1: in [2, 8] | bits=9: in [2, 8] | block=0: >= 1 | norm=l1: max or l2
compressors.quantised_allreduce.QuantisedAllReduce
    bits=2: 4 or 8 | row=100: a multiple of 64 in [64, 1048576] |
    row=0: a multiple of 64 in [64, 1048576] | row=2147483648: a multiple of 64 in [64, 1048576]
compressors.randomk.RandomK
    index_dtype=int16: int32 or int64
compressors.sampled_topk.SampledTopK
    index_dtype=int16: int32 or int64 | share=0: in (0, 1] | share=1.5: in (0, 1] |
    rounds=-1: >= 0 | low=1.0: in (0, 1) | high=1.0: > 1
compressors.signsgd.SignSGD
    scale=0.0: in (0, 1e+20] | scale=-1.0: in (0, 1e+20] | scale=.inf: in (0, 1e+20] |
    scale=.nan: in (0, 1e+20]
compressors.sparseloco.SparseLoCo
    chunk=65: a whole number in [1, 64] | chunk=0: a whole number in [1, 64] |
    bits=3: one of 1, 2, 4, 8, or null | aggregate=mean: workers or contributors
compressors.terngrad.TernGrad
    clip=0.5: >= 1 (.inf for none) | clip=.nan: >= 1 (.inf for none)
compressors.threshold_topk.ThresholdTopK
    model=cauchy: laplace or normal | spread=range: variance or magnitude |
    capacity=0.9: in [1, inf)
compressors.topk.TopK
    index_dtype=int16: int32 or int64
controllers.accordion.Accordion
    low=0.5: in (0, 0.1] (high) | high=2: in (0, 1] | eta=0: a number > 0 |
    window=0: a whole number >= 1
controllers.ccr_rule.CCRRule
    d_min=0.0: in (0, 1.0] (d_max) | d_max=2: in (0, 1] | start=0: one or more densities in (0, 1] |
    weight=0: in (0, 1]
controllers.covap.COVAP
    warm_steps=0: a whole number >= 1 | profile_steps=1.5: a whole number >= 1 |
    period=0: a whole number >= 1 | max_interval=0: a whole number >= 1
controllers.dc2.DA1
    k_max=1.5: in (0, 1] | k_min=0: in (0, 0.3] (k_max) | k_min=0.4: in (0, 0.3] (k_max) |
    k_0=0.5: in [0.005, 0.3] (k_min, k_max) | window=0: >= 1
controllers.dc2.DA2
    beta=1.0: in (0, 1) | d_var=-1: >= 0 | k_inc=-1: >= 0
controllers.dc2.DA3
    k_dec=-1: >= 0
controllers.dc2.DA4
    beta=0: in (0, 1)
controllers.dc2.DA5
    alpha=0.9: >= 1
controllers.deco.DeCo
    every=0: a whole number >= 1 | d_min=0: in (0, 1.0] (d_max)
controllers.fixed.Fixed
    density=0: in (0, 1] | density=-0.1: in (0, 1] | density=1.001: in (0, 1] |
    density=.nan: in (0, 1] | density=high: in (0, 1]
controllers.gravac.GraVAC
    gain=0: in (0, 1] | d_max=1.0: below 1, the density to fall back on | omega=2: in (0, 1]
controllers.hide.Hide
    margin=0: in (0, 1] | d_max=2: in (0, 1] | d_min=0.5 d_max=0.1: in (0, 0.1] (d_max) |
    start=[]: one or more densities in (0, 1] | start=[0.1, 2]: one or more densities in (0, 1]
controllers.kimad.Kimad
    budget=all: compute or hiding | window=0: a whole number >= 1 |
    start=0: one or more densities in (0, 1]
controllers.netsense.NetSense
    floor=0: in (0, 1] | ratio_0=0.001: in [0.005, 1] | ratio_0=1.5: in [0.005, 1] |
    beta_1=-1: a number >= 0 | beta_2=-1: a number >= 0 | alpha=1: in (0, 1) |
    bdp_share=0: a number > 0 | bdp_gain=0: a number > 0 | startup_steps=0: a whole number >= 1 |
    startup_rtt=0.5: a number >= 1 | window=0: null, bbr or a whole number >= 1 |
    window=true: null, bbr or a whole number >= 1 | window=bbb: null, bbr or a whole number >= 1 |
    window=2.5: null, bbr or a whole number >= 1
controllers.pace.Pace
    eps=0: a number > 0 | eps=.nan: a number > 0 | memory=0: a whole number >= 1 |
    spacing=1: a number > 1
controllers.warmup.WarmUp
    density=0: in (0, 1] | start=1.5: in (0, 1] | stages=-1: a whole number >= 0 |
    stage_steps=0: a whole number >= 1
harness.config.parallel.Pipeline
    schedule=zb: gpipe or 1f1b
harness.config.parallel.Split
    stages=1: a whole number >= 2 | cuts=[x] stages=2: numbers of layers, or null
harness.emulation.host.Host
    interface=1 machine=0 machines=2 master=10.0.0.1: a name such as eth1 |
    machine=null interface=lo machines=2 master=10.0.0.1: a whole number in [0, 1] |
    machine=2 interface=lo machines=2 master=10.0.0.1: a whole number in [0, 1] |
    machines=1 interface=lo machine=0 master=10.0.0.1: a whole number >= 2 |
    master=fe80::1 interface=lo machine=0 machines=2: the address of a machine, IPv4 only |
    port=0 interface=lo machine=0 machines=2 master=10.0.0.1: a whole number in [1, 65535] |
    time_limit_s=0 interface=lo machine=0 machines=2 master=10.0.0.1: a number in [1, 2.592e+06]
harness.virtual.network.Simulated
    wake_s=-1.0: a number in [0, 10] | burst_s=-1.0: a number in [0, 10] |
    packet_s=-1.0: a number in [0, 10] | message_bytes=-1: a number in [0, 65536] |
    message_bytes=65537: a number in [0, 65536]
harness.workloads.data.cifar.Cifar
    classes=20: 10 or 100 | size=16 classes=10: in [32, 512] px
harness.workloads.data.clicks.Clicks
    interactions=-1.0: in [0, 10] | length=6: a number in [7, 1e+07] |
    rows=1: a number in [2, 1.67772e+07]
harness.workloads.data.criteo.Criteo
    rows=1: in [2, 16777216]
harness.workloads.data.digits.Digits
    size=4: in [8, 224] px
harness.workloads.data.imagenet.ImageNet
    classes=0: >= 1 | size=4: in [8, 1024] px | workers=-1: >= 0
harness.workloads.data.pairs.Pairs
    words=1 name=catalogues: in [2, 1000] | vocabulary=299 name=catalogues: in [300, 65536] |
    tokenize=moses name=catalogues: 13a, none, intl or char
harness.workloads.data.passages.Passages
    classes=1: >= 2 | words=0: >= 1 | vocabulary=1: >= 2 | most=39: >= 40
harness.workloads.data.ptb.PTB
    window=0: in [1, 10000] words | vocabulary=1: >= 2
harness.workloads.data.pydoc_text.PydocText
    vocabulary=9999: in [2, 2500]
harness.workloads.data.shifted_digits.ShiftedDigits
    shift=5: a whole number in [0, 4] px | noise=-1: in [0, 10]
harness.workloads.data.stdlib_text.StdlibText
    window=0: in [1, 10000] words | test_bytes=64: > window = 64
harness.workloads.data.synthetic.Synthetic
    classes=0: a number in [1, 1e+08] | noise=-1.0: a number in [0, 1e+20]
"""


def cases() -> Iterator[tuple[str, str]]:
    """Yield the path of a class and one of its cases."""
    for line in REFUSED.splitlines():
        if not line.startswith(" "):
            path = line
        else:
            yield from ((path, case) for case in line.strip(" |").split(" | "))


@pytest.mark.parametrize(("path", "case"), [*cases()])
def test_a_value_out_of_range_is_refused_by_key_range_and_value(path, case):
    words, allowed = case.split(": ", 1)
    given = {key: yaml.safe_load(value) for key, value in re.findall(r"(\w+)=(\[.*?\]|\S+)", words)}
    key, value = next(iter(given.items()))
    with pytest.raises(ValueError) as refused:
        pydoc.locate(path)(**given)
    said = str(refused.value)
    assert said.startswith(f"{key} must be {allowed}") and "\n" not in said
    assert said.endswith((f", got {value!r}", f", got {[value]!r}"))
