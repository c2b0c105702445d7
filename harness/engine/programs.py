"""Choice of the program that a rank runs, by the kind of parallelism."""

from collections.abc import Callable, Mapping
from typing import Any

from harness.config.local_steps import LocalSteps
from harness.config.parallel import Data, Parallel, Pipeline, Split
from harness.config.run import Run
from harness.config.server import Server
from harness.engine.local_steps.build import local_loop
from harness.engine.parameter_server.build import build_trainer
from harness.engine.pipeline.build import stage_loop
from harness.engine.training.build import whole_model_loop
from harness.engine.training.rank_context import RankContext

# Arguments: the run, its `parallel` and the rank's context. Returns the loop, or a trainer.
Program = Callable[[Run, Any, RankContext], Any]
PROGRAMS: Mapping[type[Parallel], Program] = {
    Data: whole_model_loop,
    Split: whole_model_loop,
    Pipeline: stage_loop,
    LocalSteps: local_loop,
    Server: build_trainer,
}


def build_loop(run: Run, context: RankContext) -> Any:
    """Return the training loop (or server trainer) of a rank, ready for its first step."""
    kinds = type(run.parallel).__mro__  # a user's class may derive from one of ours
    program = next(PROGRAMS[kind] for kind in kinds if kind in PROGRAMS)
    return program(run, run.parallel, context)
