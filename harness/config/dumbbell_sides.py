"""Checks of the two halves of a dumbbell, shared by all networks of that shape."""

from typing import Any

from profiles.limits import check_profile, check_whole


def check_halves(left: int | None, access: Any) -> None:
    """Raise ValueError unless `left` (node count) and `access` (profile of its links) are valid."""
    if left is not None:
        check_whole(1, left=left)
    if access is not None:
        check_profile(access=access)
        if access.extremes().flows:
            raise ValueError("access must be a profile without competing flows: use the trunk's")


def check_nodes(nodes: int, left: int | None) -> None:
    """Raise ValueError unless each half has at least one of the `nodes`."""
    if nodes < 2:
        raise ValueError(f"a dumbbell needs at least 2 nodes, got {nodes}")
    if left is not None:
        check_whole(1, nodes - 1, left=left)


def on_left(nodes: int, left: int | None) -> int:
    """Return the number of nodes on the left; None means half of `nodes`, rounded up."""
    return left or (nodes + 1) // 2
