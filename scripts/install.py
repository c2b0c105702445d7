"""Install this package into the Python environment that runs this script.

usage: python scripts/install.py package|dev [auto|cpu|cuda]

`package` brings what runs need, `dev` also what tests, docs and trackers need. The second argument
chooses the build of torch; `auto` takes the one for processors where there is no NVIDIA driver.
Two lines say what is installed and what that took. pip writes to install.log of the environment,
whose end is shown if pip fails; the exit status is then 1.
"""

import platform
import subprocess
import sys
import time
from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK, TORCH_LOCK = ROOT / "requirements.lock", ROOT / "requirements-torch.lock"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
NVIDIA_DRIVER = Path("/proc/driver/nvidia")
LOG = Path(sys.prefix) / "install.log"
PIP = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar=off"]
SHOWN_LINES = 20  # of the log, if pip fails


def main(what: str, torch: str) -> int:
    """Install `what`, print what it took, and return the exit status."""
    began = time.monotonic()
    LOG.write_bytes(b"")
    build = chosen_build(torch)
    print(f"installing {'the package' if what == 'package' else 'the package and all extras'}, "
          f"torch for {build}, into {sys.prefix}", flush=True)  # fmt: skip
    ok = pip("--no-deps", "--require-hashes", "-r", str(LOCK)) and install_torch(build, torch)
    editable = ["--no-build-isolation", "-e"]
    if what == "package":
        ok = ok and pip("--no-deps", *editable, str(ROOT))
    else:
        ok = ok and pip("-c", str(ROOT / "constraints.txt"), *editable, f"{ROOT}[dev]")
    if not ok:
        lines = LOG.read_text(errors="replace").splitlines()
        print(*lines[-SHOWN_LINES:], f"pip failed; all it said is in {LOG}", sep="\n")
        return 1
    size = sum(file.lstat().st_size for file in Path(sys.prefix).rglob("*") if file.is_file())
    count = len(list(distributions()))
    print(f"{count} packages, {size / 1e9:.1f} GB, {time.monotonic() - began:.0f} s")
    return 0


def chosen_build(asked: str) -> str:
    """Return the build of torch, cpu or cuda, for `asked`, which may also be auto.

    The default index has CPU builds for other processors than x86_64.
    """
    if asked != "auto":
        return asked
    return "cuda" if NVIDIA_DRIVER.exists() or platform.machine() != "x86_64" else "cpu"


def pip(*arguments: str) -> bool:
    """Run `pip install`, append its output to the log, and return True if it succeeded."""
    with LOG.open("ab") as log:
        return subprocess.run([*PIP, *arguments], stdout=log, stderr=log).returncode == 0


def install_torch(build: str, asked: str) -> bool:
    """Install torch and torchvision for `build`; return True if that succeeded.

    Where the CPU build cannot be had and `asked` is auto, install the default build and say so.
    """
    entries = [line.split()[0] for line in TORCH_LOCK.read_text().splitlines() if "==" in line]
    pinned = [entry for entry in entries if entry.startswith(("torch==", "torchvision=="))]
    if build == "cpu":
        wanted = [f"{entry}+cpu" for entry in pinned]
        patience = ["--retries", "0", "--timeout", "5"]
        if pip("--no-deps", *patience, "--index-url", CPU_INDEX, *wanted):
            return True
        if asked == "cpu":
            return False
        print("no CPU build of torch from PyTorch's index: its default build instead, with 4.3 GB "
              "for GPUs (TORCH=cpu insists on the CPU build)", flush=True)  # fmt: skip
    elif any("+cpu" in each.version for each in distributions(name="torch")):
        uninstall = [sys.executable, "-m", "pip", "uninstall", "--yes", "torch", "torchvision"]
        subprocess.run(uninstall, check=True, stdout=subprocess.DEVNULL)
    return pip("--no-deps", "--require-hashes", "-r", str(TORCH_LOCK))


if __name__ == "__main__":
    what, torch = [*sys.argv[1:], "auto"][:2]
    if what not in ("package", "dev") or torch not in ("auto", "cpu", "cuda"):
        sys.exit(f"TORCH must be auto, cpu or cuda, got {torch}; and what to install package or "
                 f"dev, got {what}")  # fmt: skip
    sys.exit(main(what, torch))
