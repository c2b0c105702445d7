"""What runs and reports import: once in the process that all processes of a pool are forked from.

To import this module is all; else each process would import it in the midst of its first run.
"""

import sklearn.datasets  # noqa: F401  digits are in it
import sklearn.model_selection  # noqa: F401  likewise
import torch._dynamo  # noqa: F401  for shapes without values

import harness.report  # noqa: F401
import harness.virtual.run  # noqa: F401
from compressors import kernels

kernels.compiled()  # which is to be called before a fork
