"""The device that rows in host memory are sent to."""

from __future__ import annotations

import importlib.util
from typing import Any

from kernelweave._array import Array, is_array, is_numpy, to_numpy

__all__ = ["device_array", "on_host"]


def on_host(X: Any) -> bool:
    """Whether X is in host memory."""
    return not is_array(X) or is_numpy(X) or "cpu" in str(X.device).lower()


def device_array(like: Array, device: str | None) -> Array:
    """An array of no rows on the device, from torch or, without torch, from CuPy.

    Parameters
    ----------
    like : array
        Rows in host memory, which determine the dtype.
    device : str or None
        A device of torch such as "cuda" or "cuda:1", or "cupy"; None leaves rows where
        they are.
    """
    if device is None:
        return like
    dtype = str(to_numpy(like).dtype)
    try:
        if device != "cupy" and _has_torch():
            import torch

            return torch.empty((0, 1), dtype=getattr(torch, dtype), device=device)
        if device.startswith("cu"):
            import cupy

            return cupy.empty((0, 1), dtype=dtype)
        problem = "torch is not installed"
    except Exception as error:  # each library raises its own exceptions here
        problem = f"{type(error).__name__}: {error}"
    raise ValueError(
        f"device={device!r} cannot be used: {problem}. Install torch or CuPy for this "
        "device, or leave device at None."
    )


def _has_torch() -> bool:
    return importlib.util.find_spec("torch") is not None
