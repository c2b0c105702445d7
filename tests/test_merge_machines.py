"""Records of several machines become those of one run, and lose nothing."""

from pathlib import Path

from harness.records.merge_machines import join, share
from harness.records.run_directory import TABLES, Events, LinkSample, Table, read_events


def machine(folder: Path, link: str, times_s: list[float]) -> Path:
    """The run directory of a machine that sampled `link`; its n-th sample counts n bytes."""
    folder.mkdir()
    for name in TABLES:
        Table(folder, name).header()
    for count, time_s in enumerate(times_s):
        Table(folder, "links.csv").append(LinkSample(time_s, link, 1.0, 1.0, count, 0, 0))
    Events(folder).append("rank_finished", 1.0, rank=link)
    return folder


def test_rows_are_in_order_of_time_and_of_each_machine(tmp_path: Path) -> None:
    first = machine(tmp_path / "0", "up0", [0.0, 2.0, 1.9, 4.0])  # a pause sets the clock back
    other = machine(tmp_path / "1", "up1", [1.0, 3.0])
    join(first, [share(other)])
    header, *rows = (first / "links.csv").read_text().splitlines()
    assert header.split(",") == list(LinkSample._fields)
    seen = [(row.split(",")[1], int(row.split(",")[4])) for row in rows]
    assert [count for link, count in seen if link == "up0"] == [0, 1, 2, 3]
    assert [count for link, count in seen if link == "up1"] == [0, 1]
    assert seen[1] == ("up1", 0) and seen[-1] == ("up0", 3), seen
    assert [event.get("machine") for event in read_events(first)] == [None, 1]
    assert (first / "steps.csv").read_text().count("\n") == 1
