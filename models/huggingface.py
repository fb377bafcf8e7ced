"""What the ports share whose originals are classes of the `transformers` library."""

from __future__ import annotations

from types import ModuleType

EXPECTED = {
    "torch.trace": "refuses outputs in a dict, which a ModelOutput is",
    "torch.script": "cannot read the source of a configuration's constructor",
}


def transformers() -> ModuleType:
    """The library, imported when an original is built.

    Raises:
      ImportError: where it is not installed.
    """
    try:
        import transformers as library
    except ImportError as error:
        raise ImportError(
            f"the original of this model is a class of transformers ({error}): pip install 'graphmode[huggingface]'"
        ) from error
    return library
