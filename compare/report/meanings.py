"""What the words of a report mean, for the end of every page. A term is a column's title, as it stands there."""

MEANINGS = {
    "case, variant, mode, on, dtype": (
        "A model with its inputs; one way of writing it, where the case gives several; what one step is (inference, "
        "forward_backward, train_step); the device and dtype."
    ),
    "row": "A way of running: torch.* and onnxruntime run the PyTorch reference, jax.* the JAX port.",
    "judged": "Whether the port is judged, or a further variant of the reference.",
    "equal": (
        "In float64 the port computes the same function: outputs, gradients and buffers agree on every input, and so "
        "do parameters after steps of training, where the case has an optimizer."
    ),
    "precise": (
        "In the dtype that is timed (float32 unless another is named) the port is about as close to the float64 "
        "reference as PyTorch is itself."
    ),
    "worst error, error": (
        "The largest absolute difference in float64 over the tensor's scale, of all tensors and inputs."
    ),
    "worst ratio, error ratio": (
        "The port's float32 error over PyTorch's, both as root mean square against the float64 reference: 1 is just "
        "as precise, below 1 more precise."
    ),
    "tensors, inputs, took": "Tensors that were judged, the inputs they were judged on, and how long that took.",
    "tensor, index, port, reference, input, what, why shown, note": (
        "Where two tensors differ most: the place, both values there, the input, the kind of tensor, and why this one "
        "is listed."
    ),
    "of what, reading": "What a port's output means to a person.",
    "status": (
        "ok: it ran, and its outputs passed the parity check in this run; only then is there a time. wrong: its "
        "outputs differ from the reference. unsupported: this way of running cannot take this model. unavailable: "
        "this machine or installation lacks what the row needs. failed, timeout: it raised an error, or did not "
        "finish in its time. expected: the case says beforehand, and why, that this row does not work; it does not "
        "fail the run. does less: it leaves out what the reference prints, as exporters do; where the port prints it, "
        "it is not counted as a fastest row. noisy: the median is not known to 5%, within a process or from one to "
        "another."
    ),
    "reason": "Why there is no time, or what to know of it.",
    "median, IQR, p95": (
        "Of synchronised repeats, time a step; the IQR is the 75th minus the 25th percentile, p95 the 95th percentile. "
        "On a GPU a repeat is the median of its calls, and both sides are waited for alike: PyTorch's stream, and "
        "JAX's result by asking whether it is ready, again and again, as the stream is."
    ),
    "repeats": (
        "Every repeat as a dot, the median as a stroke, on one axis for all rows of the table. An arrow: beyond its "
        "end. The axis holds the rows that are up to ten times as slow as the one in the middle."
    ),
    "samples": (
        "Repeats x calls in each. The repeats of all rows are interleaved, so that drift hits all alike. Before each "
        "of a short row some milliseconds of calls are made and not counted, since idle processors wake slowly."
    ),
    "ratio, to PyTorch's fastest, to eager": (
        "The row's median over the other's, of the same case, mode, device, dtype and batch size; below 1 the row is "
        "faster. PyTorch's fastest row is the fastest that is ok, over all variants and ONNX Runtime; eager is the "
        "reference as it was written, run op by op."
    ),
    "JAX's fastest row, PyTorch's fastest row": "Of the rows that are ok, the one with the smallest median.",
    "95% interval": (
        "Bootstrap of the ratio of medians over the interleaved repeats, and over the processes where a row ran in "
        "several. Where it holds 1 the two are called level. With fewer than five samples of a row there is none, and "
        "which is faster is not known, unless all samples of one row lie below all of the other and chance would "
        "order fewer than 1 in 20 so. It takes the two rows as chosen, and says nothing of another machine or another "
        "run."
    ),
    "enqueue": "The median time until a call returns, before anything is waited for: what the host does.",
    "host share": "Enqueue over median. Near 100% on a GPU, the device waits for the host.",
    "steady": "Time a step over many calls with one synchronisation at their end.",
    "compile": (
        "What came before the first timed call: build, trace, lower, compile, capture. Not in the median. What is "
        "imported, and what a compiler does once on a machine, is not in it. Rows are prepared a few at a time, and "
        "take processors from each other."
    ),
    "parts, build, trace, lower, backend compile, first run": (
        "The parts of it, as far as the way of running tells them apart: build makes the callable without running it "
        "(scripting, export, freezing, capture); the others are what their names say."
    ),
    "warm start": "All of it in a fresh process that finds on disk what an earlier one left in the compiler's cache.",
    "pays back after": (
        "Calls after which JAX's fastest row has made up for what it compiles longer than PyTorch's fastest; - where "
        "it is not faster beyond the interval, or a compile time is not known."
    ),
    "peak, bytes, of the largest": (
        "The most that the row's own process held above what it held before: on a GPU by its framework's allocator, "
        "on a CPU resident. The bar is its share of the largest in the table or group."
    ),
    "arguments, outputs, temporaries, code": "Bytes of one call by XLA's own analysis.",
    "launches, launched": (
        "Kernels a call on a GPU, and on a CPU the operations or fused functions that are called one by one; what "
        "they are."
    ),
    "captured": "The share of them that a captured graph (a CUDA graph, an XLA command buffer) replays.",
    "steps a launch": (
        "Steps that one launch runs, where it is more than one; all times are of one step. Such a row is set against "
        "PyTorch only in training, where one step feeds the next."
    ),
    "floor, operations a byte": (
        "The least time for the least work of a step at the bandwidth and the peak measured in this run; that work's "
        "operations over its bytes."
    ),
    "to the floor, JAX to the floor, PyTorch to the floor": (
        "Median over floor: at 1, this machine has no more to give to the work as it is counted."
    ),
    "measured, at best": (
        "A large copy, a large matrix product, and empty launches, timed in this run: the best of several repeats."
    ),
    "fixed part, each item, misfit, knee, in words": (
        "The line through a row's medians over the batch size; how far it misses one at most; and the batch at which "
        "both of its parts are equal, where that lies within the sizes measured."
    ),
    "batch": "The median at that batch size.",
    "geometric mean": "Over the comparisons that have a ratio, within one device and dtype; batch sweeps are left out.",
    "why": (
        "What the counts and times of the two rows show, and nothing else. Bound by its host: a call needs at least "
        "90% of its time until it returns. Launches removed: the slower row is bound by its host, and the faster one "
        "replays most of its kernels from a captured graph. Less time of the host: the same without a captured graph. "
        "Fusion: a compiled row runs at most 80% of the kernels of one that is not. Other kernels: about as many, and "
        "of neither row the host takes half of the time. What a call costs: an empty one takes at least half of the "
        "slower row's time, without which it would not be slower."
    ),
}
