"""The sum of tensors on several devices, as one op; see `ops.allreduce`."""

from .allreduce import sum

__all__ = ["sum"]
