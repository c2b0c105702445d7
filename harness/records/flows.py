"""Bytes of competing flows in summary.json, by the links they cross."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple


class Competing(NamedTuple):
    """Bytes of competing flows on a link."""

    delivered: int
    sent: int


def competing_bytes(flows: list[dict[str, Any]]) -> Mapping[str, Competing]:
    """Return bytes that competing flows delivered and sent, by link. Trunk flows cross only it."""
    found: dict[str, Competing] = defaultdict(lambda: Competing(0, 0))
    for flow in flows:
        sender, _, receiver = flow["pair"].partition("-")
        links = [f"up{sender}", f"down{receiver}"] if receiver else [flow["pair"]]
        for link in links:
            delivered, sent = found[link]
            more = flow["received_bytes"] or 0
            found[link] = Competing(delivered + more, sent + flow["sent_bytes"])
    return found
