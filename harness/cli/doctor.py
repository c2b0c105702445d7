"""Command `doctor [KEY=VALUE ...]`: report what this machine can emulate; flags change it."""

import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from harness.cli import clean, contract
from harness.cli.arguments import Arguments
from harness.config.refused import in_a_line
from harness.config.scales import describe
from harness.config.settings import BadSetting, Settings
from harness.doctor import accelerators, data, kernel, machine, permissions
from harness.doctor.composition import Composition, build
from harness.doctor.findings import Finding, told
from harness.doctor.show import Groups, as_json, show, verdict


def main(given: Arguments) -> int:
    """Print findings on this machine. Return 0 if the runs of the overrides can run here, else 1.

    Other flags start the contract, cleaning or calibration instead. Raise BadSetting for overrides
    that do not go with a flag.
    """
    if "--contract" in given.flags:
        return contract.main(given.overrides)
    for flag in ("--clean", "--calibrate"):
        if flag in given.flags and given.overrides:
            raise BadSetting(f"{flag} takes no overrides, got {given.overrides[0]}")
    if "--clean" in given.flags:
        return clean.main(given)
    if "--calibrate" in given.flags:
        from harness.cli import calibrate  # imports torch

        return calibrate.main(given)
    command = shlex.join(["python", "-m", "harness", *given.overrides])
    with in_a_line(given.overrides):
        settings, scale, *_ = describe([given.overrides])
    if scale:
        print(scale, file=sys.stderr)
    groups = examine(settings)
    if "--json" in given.flags:
        print(as_json(groups, command))
    else:
        show(groups, command)
    return 0 if verdict(groups, command)[0] else 1


def examine(settings: Sequence[Settings]) -> Groups:
    """Return all findings on this machine and on runs of these settings, by group."""
    runs, refused = _built(settings)
    shaped = [each for each in runs if not each.run.network.in_process]
    enclosed = bool(shaped) or not runs
    most_nodes = max((run.nodes for run, _ in shaped), default=1)
    checks: dict[str, dict[str, Callable[[], Iterable[Finding]]]] = {
        "permissions": {
            "user": permissions.user,
            "namespaces": partial(permissions.namespaces, most_nodes, enclosed),
        },
        "kernel": {
            "kernel": kernel.kernel,
            "links": partial(kernel.links, shaped, enclosed),
            "congestion": partial(kernel.tcp, shaped),
        },
        "programs": {"programs": partial(machine.programs, runs)},
        "machine": {
            "cores": partial(machine.cores, runs),
            "memory": partial(machine.memory, runs),
            "disk": partial(machine.disk, runs),
            "shared": machine.shared_memory,
            "files": partial(machine.open_files, runs),
            "runs": machine.others,
        },
        "data": {"data": partial(data.data_sets, runs)},
        "accelerators": {
            "kernels": accelerators.compiled,
            "torch": partial(accelerators.accelerators, runs),
        },
    }
    found = {
        group: [line for name, check in named.items() for line in told(name, check)]
        for group, named in checks.items()
    }
    return found | ({"composition": refused} if refused else {})


def _built(settings: Sequence[Settings]) -> tuple[list[Composition], list[Finding]]:
    """Return the runs that can be built, and one finding per different reason of the others."""
    runs, refused = [], []
    for one in settings:
        try:
            runs.append(build(one))
        except BadSetting as error:
            finding = Finding("settings", "missing", str(error))
            if finding not in refused:
                refused.append(finding)
    return runs, refused
