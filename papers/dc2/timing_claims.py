"""DC2's claims on throughput, held against bounds.

What is above its bound is not volume alone, and fails. What is below is not confirmed by that: the
densities that controllers chose and the rates of the dynamic network are not published.
"""

from harness.fidelity.timing import TimingClaim
from harness.reporting.claims.base import all_of
from papers.dc2.predictor import Dc2

MODERATE = 0.1  # of the uniform compressor
DA3_DENSITY, DA4_DENSITY = 0.145, 0.071  # means of figure 9
MILD = 2.0
ABOUT_EQUAL = 1.2
DYNAMIC_MBIT = (500, 10_000)  # what a dynamic network might be; the paper's is not published
UP_TO = (  # the factor, and whether it is over no compression
    (
        "dc2_fig4d",
        "VGG16, dynamic: DC2 has up to 15.2 times the speed-up of no compression",
        15.2,
        True,
    ),
    ("dc2_fig4d", "VGG16: DC2 has up to 2.5 times the speed-up of uniform 0.1", 2.5, False),
    (
        "dc2_fig5a",
        "ImageNet, dynamic: DC2 has up to 2.2 times the speed-up of uniform 0.1",
        2.2,
        False,
    ),
    ("dc2_fig6a", "LSTM, dynamic: DC2 has up to 41 times the speed-up of no compression", 41, True),
    (
        "dc2_fig6a",
        "LSTM, dynamic: DC2 has up to 5.3 times the speed-up of uniform compression",
        5.3,
        False,
    ),
    (
        "dc2_fig8a",
        "LSTM, static: DC2 has up to 8.8 times the speed-up of no compression",
        8.8,
        True,
    ),
    (
        "dc2_fig8a",
        "LSTM, static: DC2 has up to 2.1 times the speed-up of uniform compression",
        2.1,
        False,
    ),
)


def claims(dc2: Dc2) -> list[TimingClaim]:
    """Claims and the numbers that decide them."""
    bounds = [_bounded(dc2, *told) for told in UP_TO]
    return [
        *bounds,
        _twice_da2(dc2),
        _near_extreme(dc2),
        _static_imagenet(dc2),
        _eighteen_times(dc2),
    ]


def _bounded(dc2: Dc2, id: str, text: str, published: float, over_dense: bool) -> TimingClaim:
    """A published factor, over no compression or else over 0.1, and the most that it can be."""
    least = dc2.testbed["least_density"]
    return _up_to(id, text, published, dc2.most_gain(least) if over_dense else MODERATE / least)


def _twice_da2(dc2: Dc2) -> TimingClaim:
    bound = dc2.testbed["da2_density"] / dc2.testbed["extreme_density"]
    return _up_to("dc2_fig4e", "VGG16: uniform 0.001 has about twice DA2's throughput", 2, bound)


def _up_to(id: str, text: str, published: float, bound: float) -> TimingClaim:
    """Judge an "up to" speed-up: above the bound of volume alone it fails, below is undecided."""
    why = "" if published > bound else _only_bound(f"of {bound:.0f}")
    told = f"at most {bound:.0f} times"
    return TimingClaim(id, text, False, told, "volume alone cannot do it", undecidable=why)


def _only_bound(bound: str) -> str:
    return f"a bound {bound} allows it, which is all that is known without its densities and rates"


def _near_extreme(dc2: Dc2) -> TimingClaim:
    """If DA2 stays at its floor, and at the mean that figure 9 has of it."""
    over = {
        density: [
            dc2.iteration("ResNet-50", density, mbit).total_s
            / dc2.iteration("ResNet-50", dc2.testbed["extreme_density"], mbit).total_s
            for mbit in DYNAMIC_MBIT
        ]
        for density in (dc2.testbed["least_density"], dc2.testbed["da2_density"])
    }
    told = "; ".join(f"at {k:g} {low:.2f} to {high:.2f}" for k, (low, high) in over.items())
    near = {times <= ABOUT_EQUAL for each in over.values() for times in each}
    return TimingClaim(
        "dc2_fig5b",
        "ImageNet, dynamic: DA2's throughput is about that of uniform 0.001",
        near.pop() if len(near) == 1 else None,
        f"times as long from {DYNAMIC_MBIT[0]} to {DYNAMIC_MBIT[1]} Mbit/s: {told}",
        f"about is up to {ABOUT_EQUAL:g}; neither rates nor DA2's density here are published",
    )


def _static_imagenet(dc2: Dc2) -> TimingClaim:
    densities = (dc2.testbed["extreme_density"], dc2.testbed["da2_density"], MODERATE, DA3_DENSITY)
    took_s = [dc2.iteration("ResNet-50", density).total_s for density in densities]
    return TimingClaim(
        "dc2_fig7b",
        "ImageNet, static: DC2 is about equal to uniform in throughput",
        max(took_s) / min(took_s) <= ABOUT_EQUAL,
        f"iterations of {min(took_s):.3f} to {max(took_s):.3f} s at densities {densities[0]} to "
        f"{DA3_DENSITY}: computation is most of them",
    )


def _eighteen_times(dc2: Dc2) -> TimingClaim:
    """DA2's factor by its bound, the others by the mean densities that figure 9 has of them."""
    bound = dc2.most_gain(dc2.testbed["least_density"])
    da2, others = (dc2.most_gain(k) for k in (dc2.testbed["da2_density"], DA4_DENSITY))
    mild = others <= MILD
    allowed = f"of {bound:.0f} at k_min, {da2:.1f} at the mean that DA2 has elsewhere,"
    return TimingClaim(
        "dc2_fig8b",
        "LSTM, static: DA2 has 18 times the throughput, the others gain mildly",
        all_of([bound >= 18, mild]),
        f"at most {bound:.0f} times at k_min; the others at most {others:.1f} at their means",
        "volume alone cannot do it",
        undecidable=_only_bound(allowed) if bound >= 18 and mild else "",
    )
