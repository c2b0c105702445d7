"""The halves of a dumbbell, as any network of that shape checks them."""

from typing import Any

from profiles.limits import check_profile, check_whole


def check_halves(left: int | None, access: Any) -> None:
    """Raise ValueError for what no dumbbell has: nodes on the left, the profile of access links."""
    if left is not None:
        check_whole(1, left=left)
    if access is not None:
        check_profile(access=access)
        if access.extremes().flows:
            raise ValueError("access must be a profile without competing flows: use the trunk's")


def check_nodes(nodes: int, left: int | None) -> None:
    """Raise ValueError unless both halves get nodes."""
    if nodes < 2:
        raise ValueError(f"a dumbbell needs at least 2 nodes, got {nodes}")
    if left is not None:
        check_whole(1, nodes - 1, left=left)


def on_left(nodes: int, left: int | None) -> int:
    """Number of nodes on the left: `left`, or half of `nodes`, rounded up."""
    return left or (nodes + 1) // 2
