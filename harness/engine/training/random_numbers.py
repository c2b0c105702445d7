"""Save and restore the random number generators of a rank."""

from typing import Any

import torch


def random_numbers(device: torch.device) -> dict[str, Any]:
    """Return the state of torch's CPU generator, and of `device` if it is a GPU."""
    on_cuda = device.type == "cuda"
    cuda = torch.cuda.get_rng_state(device) if on_cuda else None
    return {"random": torch.get_rng_state(), "random_cuda": cuda}


def set_random_numbers(own: dict[str, Any], device: torch.device) -> None:
    """Restore the generators to the state in `own`, as returned by `random_numbers`."""
    torch.set_rng_state(own["random"])
    if own["random_cuda"] is not None:
        torch.cuda.set_rng_state(own["random_cuda"], device)
