"""DC2's claims on throughput, held against bounds: what is above its bound is not volume alone."""

from harness.reporting.claims.base import Claim, judged_claim
from papers.dc2.predictor import Dc2

MODERATE = 0.1  # of the uniform compressor
DA3_DENSITY, DA4_DENSITY = 0.145, 0.071  # means of figure 9
MILD = 2.0
ABOUT_EQUAL = 1.2
DYNAMIC_MBIT = (500, 10_000)  # what a dynamic network might be; the paper's is not published


def claims(dc2: Dc2) -> list[Claim]:
    """Claims with their verdicts and the numbers that decide them."""
    least, da2 = dc2.testbed["least_density"], dc2.testbed["da2_density"]
    bound, extreme = dc2.most_gain(least), dc2.testbed["extreme_density"]
    others = max(dc2.most_gain(DA3_DENSITY), dc2.most_gain(DA4_DENSITY))
    needed = dc2.density_needed(18)
    static = [dc2.iteration("ResNet-50", k).total_s for k in (extreme, da2, MODERATE, DA3_DENSITY)]
    floor, mean = (
        [
            dc2.iteration("ResNet-50", k, mbit).total_s
            / dc2.iteration("ResNet-50", extreme, mbit).total_s
            for mbit in DYNAMIC_MBIT
        ]
        for k in (least, da2)
    )
    return [
        judged_claim(
            "dc2_fig8b",
            "static LSTM: DA2 has 18 times the throughput",
            least <= needed,
            f"possible at a density of {needed:.4f} or less; k_min is {least}, its mean elsewhere "
            f"{da2}, which gives {dc2.most_gain(da2):.1f}",
        ),
        judged_claim(
            "dc2_fig8b",
            "static LSTM: the others gain mildly",
            others <= MILD,
            f"at most {others:.1f} at the mean densities of DA3 and DA4",
        ),
        judged_claim(
            "dc2_fig4d",
            "dynamic VGG16: up to 15.2 times the baseline",
            bound >= 15.2,
            f"at most {bound:.0f} at k_min",
        ),
        judged_claim(
            "dc2_fig6a",
            "dynamic LSTM: up to 41 times the baseline",
            bound >= 41,
            f"at most {bound:.0f} at k_min: volume alone does not explain it",
        ),
        judged_claim(
            "dc2_fig4e",
            "dynamic VGG16: uniform 0.001 has about twice DA2's throughput",
            da2 / extreme >= 2,
            f"at most {da2 / extreme:.0f} times, where sending is all",
        ),
        judged_claim(
            "dc2_fig5a",
            "dynamic ImageNet: up to 2.2 times uniform 0.1",
            MODERATE / least >= 2.2,
            f"at most {MODERATE / least:.0f} times, where sending is all",
        ),
        judged_claim(
            "dc2_fig5b",
            "dynamic ImageNet: DA2's throughput is about that of uniform 0.001",
            max(floor) <= ABOUT_EQUAL,
            f"if it stays at k_min, {floor[0]:.2f} to {floor[1]:.2f} times as long from "
            f"{DYNAMIC_MBIT[0]} to {DYNAMIC_MBIT[1]} Mbit/s; at its mean density {mean[0]:.2f} to "
            f"{mean[1]:.2f}",
        ),
        judged_claim(
            "dc2_fig7b",
            "static ImageNet: DC2 and uniform compressors have about equal throughput",
            max(static) / min(static) <= ABOUT_EQUAL,
            f"iterations of {min(static):.3f} to {max(static):.3f} s at densities {extreme} to "
            f"{DA3_DENSITY}: computation is most of them",
        ),
        judged_claim(
            "dc2_fig6a",
            "dynamic LSTM: up to 5.3 times uniform compression",
            MODERATE / least >= 5.3,
            f"at most {MODERATE / least:.0f} times uniform 0.1, where sending is all",
        ),
        judged_claim(
            "dc2_fig8a",
            "static LSTM: up to 8.8 times the baseline, 2.1 times uniform compression",
            bound >= 8.8 and MODERATE / least >= 2.1,
            f"at most {bound:.0f} and {MODERATE / least:.0f} times at k_min",
        ),
    ]
