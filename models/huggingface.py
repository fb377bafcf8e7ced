"""The `transformers` library, whose own classes are the originals of some ports: imported when one is built."""

from __future__ import annotations

from types import ModuleType


def transformers() -> ModuleType:
    """The library.

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
