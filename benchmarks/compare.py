"""A benchmark at another commit and here, in turn: its numbers before, after, and their ratio.

    python benchmarks/compare.py COMMIT compression --only topk qsgd
    python benchmarks/compare.py COMMIT --rounds 5 simulate --only replay

COMMIT is checked out beside, for as long as it takes, and each side runs its own benchmark. Shown
are medians over rounds; lines whose words are not the same on both sides are left out, and numbers
that never change. Other work on the machine hits both sides, as they take turns.
"""

import argparse
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.]*[A-Za-z_])")
Lines = dict[str, list[float]]  # numbers by the words of their line, and how often these came


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", folder, commit], check=True)
        try:
            yield Path(folder)
        finally:
            subprocess.run([*git, "remove", "--force", folder], check=True)


def measured(root: Path, name: str, options: list[str]) -> Lines:
    """Numbers that the benchmark prints; that it misses a target is no failure here."""
    command = [sys.executable, f"benchmarks/{name}.py", *options]
    known = os.environ | {"PYTHONPATH": str(root)}
    done = subprocess.run(command, cwd=root, env=known, text=True, stdout=subprocess.PIPE)
    seen: Counter[str] = Counter()
    found: Lines = {}
    for line in done.stdout.splitlines():
        words = " ".join(NUMBER.sub("#", line).split())
        seen[words] += 1
        found[f"{words} ({seen[words]})"] = list(map(float, NUMBER.findall(line)))
    if not any(found.values()):
        sys.exit(
            f"{' '.join(command)} in {root} printed no number, and ended with {done.returncode}"
        )
    return found


def shown(words: str, before: list[list[float]], after: list[list[float]]) -> str:
    """A line with the medians of its numbers, but of those that are the same at all times."""
    pairs = [
        (median(was), median(now))
        for was, now in zip(zip(*before, strict=True), zip(*after, strict=True), strict=True)
        if len({*was, *now}) > 1
    ]
    told = (f"{was:10.4g} {now:10.4g} {now / was if was else 1:6.2f}" for was, now in pairs)
    return f"{words:44}" + " |".join(told) if pairs else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("name", choices=sorted(each.stem for each in ROOT.glob("benchmarks/*.py")))
    asked, options = parser.parse_known_args()
    with checkout(asked.commit) as beside:
        rounds = [
            [measured(root, asked.name, options) for root in (beside, ROOT)]
            for _ in range(asked.rounds)
        ]
    before, after = zip(*rounds, strict=True)
    for words in before[0]:
        if all(words in lines for lines in (*before, *after)):
            sides = ([lines[words] for lines in side] for side in (before, after))
            if line := shown(words.removesuffix(" (1)"), *sides):
                print(line)


if __name__ == "__main__":
    main()
