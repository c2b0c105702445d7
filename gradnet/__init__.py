"""Adaptive gradient compression for your own torchrun script: `gradnet.attach`."""

from gradnet.attached import Attached, attach
from harness import __version__

__all__ = ["Attached", "__version__", "attach"]
