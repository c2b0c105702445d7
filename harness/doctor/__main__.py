"""Command line: `python -m harness.doctor [--json] [OVERRIDES...]`, overrides as of a run."""

import argparse
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from harness.config.refused import in_a_line
from harness.config.scales import describe
from harness.config.settings import BadSetting, Settings
from harness.doctor import accelerators, data, kernel, machine, permissions, programs
from harness.doctor.composition import Composition, build
from harness.doctor.findings import Finding, told
from harness.doctor.show import Groups, as_json, show, verdict

DESCRIPTION = """What this machine can emulate, and how to enable the rest. Exit status 0 when the
default experiment, or the composition that OVERRIDES give, can run here; 1 otherwise.
Nothing is changed."""


def main() -> None:
    """Exit status 0 when the composition can run here, else 1."""
    parser = argparse.ArgumentParser("python -m harness.doctor", description=DESCRIPTION)
    parser.add_argument("--json", action="store_true", help="one JSON object, for machines")
    arguments, overrides = parser.parse_known_args()
    command = shlex.join(["python", "-m", "harness", *overrides])
    try:
        with in_a_line(overrides):
            settings, scale, *_ = describe([overrides])
    except BadSetting as error:
        sys.exit(f"harness.doctor: {error}")
    if scale:
        print(scale, file=sys.stderr)
    groups = examine(settings)
    if arguments.json:
        print(as_json(groups, command))
    else:
        show(groups, command)
    sys.exit(0 if verdict(groups, command)[0] else 1)


def examine(settings: Sequence[Settings]) -> Groups:
    """All findings, by group, about this machine and these runs."""
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
        "programs": {"programs": partial(programs.programs, runs)},
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
    """The runs that can be, and a finding for each different reason of those that cannot."""
    runs, refused = [], []
    for one in settings:
        try:
            runs.append(build(one))
        except BadSetting as error:
            finding = Finding("settings", "missing", str(error))
            if finding not in refused:
                refused.append(finding)
    return runs, refused


if __name__ == "__main__":
    main()
