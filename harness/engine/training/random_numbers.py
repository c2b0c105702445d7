"""The state of the random number generators that a rank draws from."""

from typing import Any

import torch


def random_numbers(device: torch.device) -> dict[str, Any]:
    """State of the generators of this process, and of `device` where that is a GPU."""
    on_cuda = device.type == "cuda"
    cuda = torch.cuda.get_rng_state(device) if on_cuda else None
    return {"random": torch.get_rng_state(), "random_cuda": cuda}


def set_random_numbers(own: dict[str, Any], device: torch.device) -> None:
    """Draw from now on as after `own` was taken."""
    torch.set_rng_state(own["random"])
    if own["random_cuda"] is not None:
        torch.cuda.set_rng_state(own["random_cuda"], device)
