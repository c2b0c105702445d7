"""Models and data sets that are no parts of ours: torch's, a library's, one's own.

A section may name a class that knows nothing of this project. What its own kind of part has no key
for are its arguments.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from harness.config.typed import located


class Own(NamedTuple):
    """A part that stands for what is no part."""

    has: str  # what a part has, as PARTS of harness.config.settings says
    target: str
    keys: tuple[str, ...]


OWN = {
    "model": Own("build", "harness.workloads.models.own.OwnModel", ("times", "arguments")),
    "dataset": Own(
        "train",
        "harness.workloads.data.own.OwnData",
        ("classes", "train_arguments", "test_arguments", "arguments", "workers"),
    ),
}


def as_part(part: str, section: Mapping[str, Any]) -> dict[str, Any]:
    """`section`, or that of the part that stands for what it names."""
    own, path = OWN.get(part), section["_target_"]
    if own is None or hasattr(made := located(path), own.has) or not callable(made):
        return dict(section)
    taken = {key: section[key] for key in section if key in own.keys}
    rest = {key: section[key] for key in section if key not in (*own.keys, "_target_")}
    arguments = rest | dict(taken.pop("arguments", {}))
    return {"_target_": own.target, "make": path, **taken, "arguments": arguments}
