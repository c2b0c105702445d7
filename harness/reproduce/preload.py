"""Imports for runs and reports, made once in the process from which all pool workers are forked.

The pool only imports this module. Otherwise each worker would do these imports in its first run.
"""

import torch._dynamo  # noqa: F401  for shapes without values

import harness.reporting.report  # noqa: F401
import harness.virtual.run  # noqa: F401
from compressors import kernels

kernels.compiled()  # must run before a fork
