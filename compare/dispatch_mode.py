"""A mode that sees every operation of PyTorch, without its compiler."""

from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):
    """As `TorchDispatchMode`, of which the first operation otherwise imports `torch._dynamo`: seconds, for nothing."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False
