"""What the names of metrics in evaluations.csv say."""

LOWER_IS_BETTER = ("perplexity", "ppl", "loss", "error")


def lower_is_better(metric: str) -> bool:
    return any(word in metric.lower() for word in LOWER_IS_BETTER)
