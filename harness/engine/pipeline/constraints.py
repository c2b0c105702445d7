"""Settings of cuts and pipelines that do not go together, or with the rest of a run."""

from compressors.activations.dense import Dense
from harness.config.parallel import Split
from harness.config.run import Run
from harness.config.typed import of_part, require
from harness.engine.pipeline.operators import before_cuts
from harness.engine.pipeline.stages import cuts_of


def check_cuts(run: Run) -> None:
    """BadSetting, naming what to change, unless the model can be cut as `parallel` says."""
    parallel, activations = run.parallel, run.activations()
    name = type(parallel).__name__.lower()
    if not isinstance(parallel, Split):
        uncut = f"dense with parallel={name}, where the model has no cuts"
        require(isinstance(activations, Dense), "activations", type(activations), uncut)
        return
    crosses = parallel.ranks > 1 or not run.emulation.is_replay
    inside = f"measured or paced with parallel={name}, where nothing crosses a network"
    require(crosses, "emulation.compute", run.emulation.compute, inside)
    _check_model(run, parallel)
    if parallel.ranks > 1:
        _check_pipeline(run, parallel.ranks)


def _check_model(run: Run, parallel: Split) -> None:
    shape = run.dataset.shape
    with of_part("parallel", ValueError):
        if parallel.ranks == 1:
            before_cuts(run.shapes(), shape, parallel)
        else:
            cuts_of(run.shapes(), shape, parallel.stages, parallel.cuts)


def _check_pipeline(run: Run, stages: int) -> None:
    whole = f"a divisor of workers={run.workers}"
    require(run.workers % stages == 0, "parallel.stages", stages, whole)
    own = "1 with parallel=pipeline, whose stages have a node each"
    require(run.workers_per_node == 1, "workers_per_node", run.workers_per_node, own)
    flushed = (
        "per_bucket or per_tensor with parallel=pipeline, whose gradients are exchanged after "
        "backward in any case"
    )
    require(run.overlap != "after_backward", "overlap", run.overlap, flushed)
