"""PyTorch's exports, which run without the module: AOTInductor and ONNX Runtime. Inference alone."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..case import Mode
from ..torch_side import TorchBatch, TorchSide
from .rows import Row, Step, Unavailable


def aoti(side: TorchSide, mode: Mode, sample: TorchBatch) -> Step:
    """`torch.export`, compiled ahead of time into a shared library."""
    _inference_alone(mode, "AOTInductor")
    with torch.no_grad():
        program = torch.export.export(side.set_mode(mode), sample.args, sample.kwargs)
        with tempfile.TemporaryDirectory() as folder:
            package = torch._inductor.aoti_compile_and_package(program, package_path=str(Path(folder) / "model.pt2"))
            loaded = torch._inductor.aoti_load_package(package)

    def step(batch: TorchBatch) -> Any:
        with torch.no_grad():
            return loaded(*batch.args, **batch.kwargs)

    return step


def onnx_runtime(side: TorchSide, mode: Mode, sample: TorchBatch) -> Step:
    """`torch.onnx.export`, run by ONNX Runtime's own kernels with PyTorch's number of threads.

    On a GPU inputs and outputs stay there, in tensors that it is told of; on a CPU they are numpy views of tensors.
    """
    _inference_alone(mode, "an ONNX graph")
    try:
        import onnxruntime
        import onnxscript  # noqa: F401  (the exporter's)
    except ImportError as error:
        raise Unavailable(f"{error.name} is not installed; pip install 'graphmode[onnx]'") from error
    provider = "CUDAExecutionProvider" if side.device == "cuda" else "CPUExecutionProvider"
    if provider not in onnxruntime.get_available_providers():
        raise Unavailable(f"this ONNX Runtime has no {provider}")
    module = side.set_mode(mode)
    with torch.no_grad():
        example, structure = pytree.tree_flatten(module(*sample.args, **sample.kwargs))
        try:
            program = torch.onnx.export(module, sample.args, kwargs=sample.kwargs, dynamo=True, verbose=False)
        except torch.onnx.OnnxExporterError as error:
            raise error.__cause__ or error from None  # what happened, without the page of advice around it
    assert program is not None  # with dynamo=True
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    settings = {"use_tf32": str(int(side.dtype_name == "tf32"))} if side.device == "cuda" else {}
    model = program.model_proto.SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=[provider], provider_options=[settings])
    if provider not in session.get_providers():
        raise Unavailable(f"ONNX Runtime could not load its {provider}, and would run on the CPU")
    given, wanted = sample.tensors, [value.name for value in session.get_inputs()]
    if len(given) != len(wanted):
        raise TypeError(f"the exported graph takes {len(wanted)} tensors ({', '.join(wanted)}), and {len(given)} come")

    def rebuilt(outputs: list[torch.Tensor]) -> Any:
        if structure.is_leaf():
            return outputs[0]
        found = iter(outputs)
        leaves = [next(found) if isinstance(leaf, torch.Tensor) else leaf for leaf in example]
        return pytree.tree_unflatten(leaves, structure)

    def on_cpu(batch: TorchBatch) -> Any:
        feed = {name: tensor.numpy() for name, tensor in zip(wanted, batch.tensors, strict=True)}
        return rebuilt([torch.from_numpy(output) for output in session.run(None, feed)])

    if side.device == "cpu":
        return on_cpu
    names = [value.name for value in session.get_outputs()]
    targets = [torch.empty_like(leaf).contiguous() for leaf in example if isinstance(leaf, torch.Tensor)]

    def on_gpu(batch: TorchBatch) -> Any:
        binding = session.io_binding()
        for name, tensor in zip(wanted, batch.tensors, strict=True):
            binding.bind_input(*_bound(name, tensor))
        for name, tensor in zip(names, targets, strict=True):
            binding.bind_output(*_bound(name, tensor))
        torch.cuda.current_stream().synchronize()  # ONNX Runtime has a stream of its own
        session.run_with_iobinding(binding)
        return rebuilt(targets)

    return on_gpu


def _bound(name: str, tensor: torch.Tensor) -> tuple[Any, ...]:
    """As `bind_input` and `bind_output` take it: a tensor's memory on the GPU."""
    dtype = torch.empty(0, dtype=tensor.dtype).numpy().dtype
    return name, "cuda", tensor.device.index or 0, dtype, tuple(tensor.shape), tensor.data_ptr()


def _inference_alone(mode: Mode, what: str) -> None:
    if mode != "inference":
        raise Unavailable(f"{what} has no backward pass")


ROWS = (
    Row("torch.aoti", "torch", aoti, is_slow_to_compile=True, left_out="it compiles for 5 s and more a case"),
    Row("onnxruntime", "torch", onnx_runtime, again_s=1.5),  # nothing of an export is kept on disk
)
