"""Imports of runs and reports, made once in the process that all workers of a pool are forked from.

The pool only imports this module; otherwise each worker would import them during its first run.
"""

import torch._dynamo  # noqa: F401  for shapes without values

import harness.reporting.report  # noqa: F401
import harness.virtual.run  # noqa: F401
from compressors import kernels

kernels.compiled()  # which is to be called before a fork
