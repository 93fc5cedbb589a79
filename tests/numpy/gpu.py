"""Arrays on a GPU that is made up (tests/plugins/fake_cuda.c), whose memory is the host's:  gpu.py BUILD_FOLDER

A program of its own: whoever has opened that driver cannot have another one.
"""

from __future__ import annotations

import ctypes
import sys
from contextlib import nullcontext
from types import ModuleType
from typing import Any

import numpy as np

folder = sys.argv[1]
ctypes.CDLL(f"{folder}/fake_cuda.so", mode=ctypes.RTLD_GLOBAL)

import tenon  # noqa: E402
import tenon.numpy as tn  # noqa: E402
from tenon.numpy import _ops  # noqa: E402

STREAM = 7
streams: list[Any] = []  # that calls ran on
stream_host = _ops.lib.tn_stream_host


class Recorder:
    """The library, with a note of the streams that it is given."""

    def __getattr__(self, name: str) -> Any:
        return getattr(tenon._lib.lib, name)

    def tn_stream_host(self, stream: Any) -> Any:
        streams.append(stream)
        return stream_host(stream)


_ops.lib = Recorder()  # type: ignore[assignment]


class Named:
    """What CuPy's arrays are like: they say where they are and on which stream."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.device = nullcontext()
        self.__cuda_array_interface__ = {
            **{key: array.__array_interface__[key] for key in ("data", "shape", "typestr")},
            "strides": array.strides,
            "version": 3,
            "stream": STREAM,
        }


class Exported:
    """What PyTorch's are like: they speak DLPack, and want to know which stream they are read on."""

    asked: list[Any] = []  # noqa: RUF012

    def __init__(self, array: Any) -> None:
        self.array = array
        self.device = nullcontext()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, stream: Any = None, max_version: Any = None) -> Any:
        self.asked.append(stream)
        capsule = self.array.__dlpack__()
        address = ctypes.pythonapi.PyCapsule_GetPointer(capsule, b"dltensor")
        ctypes.c_int32.from_address(address + 8).value = 2  # the device
        return capsule


class Unmade(Named):
    """Of a module that makes none."""


def library(kind: Any) -> None:
    """The arrays are of a module that makes them."""
    module: Any = ModuleType(kind.__name__.lower())
    kind.__module__ = module.__name__
    module.float32 = np.float32
    module.empty = lambda shape, dtype: kind(np.full(shape, np.nan, dtype))
    sys.modules[module.__name__] = module


x = np.arange(12, dtype=np.float32).reshape(3, 4)
tenon.load(f"{folder}/plugin_gpu_ops.so")
for kind, wanted in ((Named, STREAM), (Exported, None)):
    library(kind)
    for array in (x, x.T, x[:, ::2]):
        made = tn.gpu_right(kind(array))
        assert type(made) is kind and np.array_equal(made.array, 2 * array)
    out = kind(np.zeros((3, 4), np.float32))
    assert tn.gpu_right(kind(x), out=out) is out and np.array_equal(out.array, 2 * x)
    assert streams == [wanted] * 4
    streams.clear()
assert Exported.asked and set(Exported.asked) == {1}  # DLPack's number of the default stream

for call, words in (
    (lambda: tn.add(Named(x), x), "add: y is on cpu"),
    (lambda: tn.gpu_right(Unmade(x)), "gpu_right: y would be an array of __main__, which has no __main__.empty"),
    (lambda: tn.gpu_right(Named(x.view(np.uint32))), "gpu_right: x has type u32, needs"),
):
    try:
        call()
    except Exception as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)
print("good")
