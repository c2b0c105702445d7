"""How much code one exchange enters: what a reader of one step has to read."""

import sys
import threading
from collections import Counter
from pathlib import Path

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradnet
from tests.ranks import run_ranks

ROOT = Path(gradnet.__file__).parents[1]
MOST_FUNCTIONS, MOST_FILES = 80, 15
UNSETTLED = 3  # steps in which DDP lays out its buckets and caches fill


def functions_of_a_step() -> list[tuple[str, int, str]]:
    """File, line and name of each function of ours that one step of a small model enters."""
    entered: set[tuple[str, int, str]] = set()

    def note(frame, event, argument):
        path = Path(frame.f_code.co_filename)
        own = path.is_relative_to(ROOT) and ".venv" not in path.parts and "tests" not in path.parts
        if event == "call" and own:
            code = frame.f_code
            place = str(path.relative_to(ROOT)), code.co_firstlineno
            entered.add((*place, getattr(code, "co_qualname", code.co_name)))

    threading.setprofile(note)  # of the threads that `attach` starts
    ddp = DistributedDataParallel(nn.Linear(8, 4))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    handle = gradnet.attach(ddp, method="allreduce")

    def step() -> None:
        optimizer.zero_grad()
        ddp(torch.ones(4, 8)).square().mean().backward()
        optimizer.step()

    for _ in range(UNSETTLED):
        step()
    entered.clear()
    sys.setprofile(note)
    step()
    sys.setprofile(None)
    walk = sorted(entered)
    handle.close()
    return walk


def test_one_exchange_enters_few_functions_in_few_files():
    [walk] = run_ranks(1, functions_of_a_step)
    files = Counter(path for path, _, _ in walk)
    for path, line, name in walk:
        print(f"{path}:{line} {name}")
    print(f"{len(walk)} functions in {len(files)} files")
    names = {name for _, _, name in walk}
    known = "Exchange.hook Reduction.reduce_bucket Dense.reduce Backend.all_reduce"
    assert set(known.split()) <= names
    assert len(walk) <= MOST_FUNCTIONS and len(files) <= MOST_FILES
