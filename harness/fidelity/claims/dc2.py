"""DC2's claims on throughput, held against bounds: what is above its bound is not volume alone."""

from harness.fidelity.claims import Claim
from harness.fidelity.dc2 import Dc2

DA3_DENSITY, DA4_DENSITY = 0.145, 0.071  # means of figure 9
MILD = 2.0


def claims(dc2: Dc2) -> list[Claim]:
    """Every one with the numbers that decide it."""
    least, da2 = dc2.testbed["least_density"], dc2.testbed["da2_density"]
    bound, extreme = dc2.most_gain(least), dc2.testbed["extreme_density"]
    others = max(dc2.most_gain(DA3_DENSITY), dc2.most_gain(DA4_DENSITY))
    needed = dc2.density_needed(18)
    return [
        Claim(
            "dc2_fig8b",
            "static LSTM: DA2 has 18 times the throughput",
            least <= needed,
            f"possible at a density of {needed:.4f} or less; k_min is {least}, its mean elsewhere "
            f"{da2}, which gives {dc2.most_gain(da2):.1f}",
        ),
        Claim(
            "dc2_fig8b",
            "static LSTM: the others gain mildly",
            others <= MILD,
            f"at most {others:.1f} at the mean densities of DA3 and DA4",
        ),
        Claim(
            "dc2_fig4d",
            "dynamic VGG16: up to 15.2 times the baseline",
            bound >= 15.2,
            f"at most {bound:.0f} at k_min",
        ),
        Claim(
            "dc2_fig6a",
            "dynamic LSTM: up to 41 times the baseline",
            bound >= 41,
            f"at most {bound:.0f} at k_min: volume alone does not explain it",
        ),
        Claim(
            "dc2_fig4e",
            "dynamic VGG16: uniform 0.001 has about twice DA2's throughput",
            da2 / extreme >= 2,
            f"at most {da2 / extreme:.0f} times, where sending is all",
        ),
        Claim(
            "dc2_fig5a",
            "dynamic ImageNet: up to 2.2 times uniform 0.1",
            0.1 / least >= 2.2,
            f"at most {0.1 / least:.0f} times, where sending is all",
        ),
    ]
