"""Everything that touches the outside world: processes, networks, files, training."""

import os

__version__ = "0.1.0"

# Torch asks how many GPUs there are without starting CUDA, which ranks that are forked could not.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
