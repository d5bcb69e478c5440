"""Loads kernels that `sparse-mla emit` wrote and launches them through the CUDA driver (cuda-python and NumPy)."""

import ctypes
import json
from pathlib import Path

import numpy as np
from cuda.bindings import driver as cu

SCALARS = {"u32": ctypes.c_uint32, "i32": ctypes.c_int32, "f32": ctypes.c_float}
BYTES = {"f32": 4, "i32": 4, "u32": 4, "bf16": 2, "f16": 2, "e4m3": 1, "e5m2": 1, "u8": 1}


def check(result):
    """The values of a driver call; raises where it failed."""
    status, *values = result
    if status != cu.CUresult.CUDA_SUCCESS:
        raise RuntimeError(check(cu.cuGetErrorString(status)).decode())
    return values[0] if len(values) == 1 else values


def open_device(index=0):
    check(cu.cuInit(0))
    check(cu.cuCtxSetCurrent(check(cu.cuDevicePrimaryCtxRetain(check(cu.cuDeviceGet(index))))))


class Memory:
    """Device memory of a shape, with the strides of rows without gaps. Not initialised unless `values` are given."""

    def __init__(self, dtype, shape, values=None):
        self.dtype, self.shape = dtype, tuple(shape)
        self.bytes = BYTES[dtype] * int(np.prod(self.shape))
        self.address = int(check(cu.cuMemAlloc(max(1, self.bytes))))
        if values is not None:
            values = np.ascontiguousarray(values)
            assert values.nbytes == self.bytes, f"{values.nbytes} bytes for {dtype} {self.shape}"
            check(cu.cuMemcpyHtoD(self.address, values.ctypes.data, self.bytes))

    def read(self, numpy_dtype):
        values = np.empty(self.shape, numpy_dtype)
        check(cu.cuMemcpyDtoH(values.ctypes.data, self.address, self.bytes))
        return values


def tensor_map(param, memory):
    """The 128 bytes that describe a tensor to the copy engine; dimensions innermost first."""
    shape, rank = memory.shape[::-1], len(param["box"])
    assert len(shape) == rank, f"{param['name']} takes a tensor of {rank} dimensions"
    strides = np.cumprod(shape)[: rank - 1] * BYTES[memory.dtype]
    return check(
        cu.cuTensorMapEncodeTiled(
            getattr(cu.CUtensorMapDataType, param["dataType"]),
            rank,
            memory.address,
            [cu.cuuint64_t(int(n)) for n in shape],
            [cu.cuuint64_t(int(n)) for n in strides],
            [cu.cuuint32_t(n) for n in param["box"]],
            [cu.cuuint32_t(n) for n in param["elementStrides"]],
            getattr(cu.CUtensorMapInterleave, param["interleave"]),
            getattr(cu.CUtensorMapSwizzle, param["swizzle"]),
            getattr(cu.CUtensorMapL2promotion, param["l2Promotion"]),
            getattr(cu.CUtensorMapFloatOOBfill, param["outOfBounds"]),
        )
    )


class Kernel:
    def __init__(self, folder, description):
        self.description = description
        ptx = (Path(folder) / description["file"]).read_bytes() + b"\0"
        self.module = check(cu.cuModuleLoadData(ptx))
        self.function = check(cu.cuModuleGetFunction(self.module, description["entry"].encode()))
        attribute = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        check(cu.cuFuncSetAttribute(self.function, attribute, description["dynamicSharedBytes"]))

    def launch(self, grid, **args):
        """Arguments by name: numbers, `Memory`, or None for what the configuration does not read."""
        held = [self.argument(param, args.pop(param["name"])) for param in self.description["parameters"]]
        assert not args, f"no parameters: {list(args)}"
        pointers = (ctypes.c_void_p * len(held))(*[address for _, address in held])
        shared = self.description["dynamicSharedBytes"]
        launch = [*grid, *self.description["block"], shared, 0, ctypes.addressof(pointers), 0]
        check(cu.cuLaunchKernel(self.function, *launch))
        check(cu.cuCtxSynchronize())

    @staticmethod
    def argument(param, value):
        """What must stay alive until the launch, and its address."""
        if param["kind"] == "tensorMap":
            held = tensor_map(param, value)
            return held, int(held.getPtr())
        if param["kind"] == "buffer":
            assert value is None or value.dtype == param["dtype"], f"{param['name']} takes {param['dtype']}"
            held = ctypes.c_uint64(0 if value is None else value.address)
        else:
            held = SCALARS[param["dtype"]](value)
        return held, ctypes.addressof(held)

    @property
    def example(self):
        """Grid and arguments of the example in the manifest: numbers, or shapes of memory."""
        return self.description["example"]


def load(folder):
    """The kernels of a folder, by name."""
    manifest = json.loads((Path(folder) / "manifest.json").read_text())
    return {kernel["name"]: Kernel(folder, kernel) for kernel in manifest["kernels"]}
