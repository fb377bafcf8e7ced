"""What the words of a report mean, for the end of every page."""

MEANINGS = {
    "equal": (
        "In float64 the port computes the same function: outputs, gradients and buffers agree on every input, and so "
        "do parameters after steps of training, where the case has an optimizer."
    ),
    "precise": "In float32 the port is about as close to the float64 reference as PyTorch is itself.",
    "worst error": "The largest absolute difference in float64 over the tensor's scale, of all tensors and inputs.",
    "worst ratio, error ratio": (
        "The port's float32 error over PyTorch's, both as root mean square against the float64 reference: 1 is just as "
        "precise, below 1 more precise."
    ),
    "median, IQR, p95": (
        "Of synchronised repeats, time a call; the IQR is the 75th minus the 25th percentile, p95 the 95th percentile."
    ),
    "samples": "Repeats x calls in each. The repeats of all rows are interleaved, so that drift hits all alike.",
    "ratio, to PyTorch's fastest, to eager": (
        "The row's median over the other's, of the same case, mode, device and dtype; below 1 the row is faster. "
        "PyTorch's fastest row is the fastest that is ok, over all variants and ONNX Runtime; eager is the reference "
        "as it was written, run op by op."
    ),
    "95% interval": (
        "Bootstrap of the ratio of medians over the interleaved repeats. Where it holds 1 the two are called level. It "
        "takes the two rows as chosen, and says nothing of another machine or another run."
    ),
    "compile": "What came before the first timed call: trace, lower, compile, capture, warm-up. Not in the median.",
    "pays back after": (
        "Calls after which JAX's fastest row has made up for what it compiles longer than PyTorch's fastest; - where "
        "it never does, or a compile time is not known."
    ),
    "geometric mean": "Over the comparisons that have a ratio, within one device and dtype.",
    "ok": "It ran, and its outputs passed the parity check in this run: only then is there a time.",
    "wrong": "It ran, and its outputs differ from the reference.",
    "unsupported": "This way of running cannot take this model, for the reason given.",
    "unavailable": "This machine or installation lacks what the row needs.",
    "failed, timeout": "It raised an error, or did not finish in its time.",
    "expected": "The case says beforehand, and why, that this row does not work; it does not fail the run.",
    "noisy": "The repeats spread widely: read the time with care.",
}
