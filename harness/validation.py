"""Checks of a run before anything starts: its parts fit together and its files exist."""

from pathlib import Path

from compressors.checks import BadPart
from harness import constraints
from harness.config.parts import OURS
from harness.config.run import Run
from harness.config.settings import Settings
from harness.config.typed import BadSetting, of_part, require
from harness.contract.trial import CALLS, tried
from harness.records import checkpoint
from harness.records.run_directory import refusal


def checked(settings: Settings) -> Run:
    """Build the run of `settings` and check it. Raise BadSetting at the first invalid value."""
    run = settings.run()
    settings.build("tracker").check()
    check_fit(run)
    return run


def check_fit(run: Run) -> None:
    """Raise BadSetting if parts do not fit together or are malformed, or if data is missing."""
    for group in CALLS:
        part = run.profile if group == "profile" else getattr(run, group)()
        if type(part).__module__.partition(".")[0] not in OURS:
            with of_part(group, BadPart):
                tried(group, part)
    constraints.check(run)
    _check_weights(run)
    if not run.emulation.is_replay:
        with of_part("dataset", FileNotFoundError, ValueError):
            run.find_files()
            getattr(run.dataset, "check_content", lambda: None)()


def _check_weights(run: Run) -> None:
    """Raise BadSetting unless `initial_weights` is null or a file that fits the run's model."""
    path = run.initial_weights
    if path is None:
        return
    require(Path(path).is_file(), "initial_weights", path, "a file with weights")
    with of_part("initial_weights", ValueError):
        weights = checkpoint.weights_of(path, device="meta")
        if not run.emulation.is_replay and (why := checkpoint.unlike(weights, run.shapes())):
            raise ValueError(f"{path} does not fit model {run.model.name}: {why}")


def check_folder(settings: Settings) -> None:
    """Create the results folder. Raise BadSetting if it cannot be written."""
    results, wanted = (
        Path(settings["results"]).absolute(),
        "results must be a folder that can be written",
    )
    try:
        results.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadSetting(f"{wanted}, got {results}: {error.strerror}") from error
    if why := refusal(results):
        raise BadSetting(f"{wanted}, got {why}")
