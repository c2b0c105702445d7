"""Who may go on: bounds between sessions, stops at which all wait, and those that are gone."""

import threading
from itertools import count

from harness.engine.parameter_server.gate import Gate

OFTEN_S = 0.01  # between two times that who waits is told so


def silent() -> None:
    """Nobody listens."""


def gate(bound: int | None, *members: str) -> Gate:
    clock = count()
    made = Gate(bound, lambda: float(next(clock)))
    for member in members:
        made.enter(member, silent, OFTEN_S)
    return made


def goes_on(tried: Gate, member: str, wait_s: float = 0.1) -> bool:
    """Whether `member` passes; where not, its thread stays behind, waiting."""
    thread = threading.Thread(
        target=tried.wait_turn, args=(member, lambda: True, silent, OFTEN_S), daemon=True
    )
    thread.start()
    thread.join(wait_s)
    return not thread.is_alive()


def test_who_is_ahead_by_more_than_the_bound_waits_for_the_slowest():
    tried = gate(1, "a", "b")
    assert tried.advance("a").ahead == 0
    assert goes_on(tried, "a", 5.0)
    assert tried.advance("a").ahead == 1
    assert not goes_on(tried, "a")
    tried.advance("b")
    tried.wait_turn("a", lambda: True, silent, OFTEN_S)


def test_who_has_left_or_finished_holds_nobody_up():
    for gone in ("leaves", "finishes"):
        tried = gate(0, "a", "b")
        tried.advance("a")
        assert not goes_on(tried, "a")
        if gone == "leaves":
            tried.leave("b")
        else:
            threading.Thread(target=tried.finish, args=("b", silent, OFTEN_S), daemon=True).start()
        assert goes_on(tried, "a", 5.0)


def test_who_comes_later_counts_as_one_of_the_slowest():
    tried = gate(2, "a", "b")
    for member in ("a", "b", "a", "b", "a"):
        tried.advance(member)
    tried.enter("c", silent, OFTEN_S)
    assert tried.advance("c") == (2, 0)


def test_it_is_quiet_when_all_that_are_here_wait_and_not_before():
    tried = gate(None, "a", "b")
    tried.stop()
    assert not goes_on(tried, "a")
    assert not tried.wait_until_quiet(0.05)
    threading.Thread(target=tried.finish, args=("b", silent, OFTEN_S), daemon=True).start()
    assert tried.wait_until_quiet(5.0)
    outside = threading.Event()
    late = threading.Thread(target=tried.enter, args=("c", outside.set, OFTEN_S), daemon=True)
    late.start()
    assert outside.wait(5.0)  # c has waited, and says so
    assert sorted(map(str, tried.members())) == ["a", "b"]
    tried.go(ends=False)
    late.join(5.0)
    assert sorted(map(str, tried.members())) == ["a", "b", "c"]
    assert tried.finished() == ["b"]


def test_who_leaves_while_all_are_stopped_is_not_waited_for():
    tried = gate(None, "a", "b")
    tried.stop()
    assert not goes_on(tried, "a")
    tried.leave("b")
    assert tried.wait_until_quiet(5.0)


def test_who_waits_is_told_so_outside_of_the_lock():
    tried, told = gate(None, "a"), []
    twice = threading.Event()

    def say() -> None:
        told.append(tried.members())  # would never return inside
        if len(told) > 1:
            twice.set()

    tried.stop()
    thread = threading.Thread(
        target=tried.wait_turn, args=("a", lambda: True, say, OFTEN_S), daemon=True
    )
    thread.start()
    assert twice.wait(5.0)
    tried.go(ends=False)
    thread.join(5.0)
    assert not thread.is_alive()
