"""Has Triton interpret its kernels where there is no GPU; it asks when it is first imported."""

import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
