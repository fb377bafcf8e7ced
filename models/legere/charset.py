"""The characters that the published reader knows, by label; label 0 is CTC's blank.

Source: `legere.charset` of legere 0.11.0 (MIT).
"""

from __future__ import annotations

from collections.abc import Iterable

CHARSET = (
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789áàâãçéêíóôõúüÁÀÂÃÇÉÊÍÓÔÕÚÜ"
    " .,;:!?'\"()[]{}%$#@&*+-=/\\_<>|°ºª"
)


def labels_of(text: str) -> list[int]:
    """The labels of a text; a character that the reader does not know is left out.

    Example:
      >>> labels_of("ab 1")
      [1, 2, 89, 54]
    """
    return [CHARSET.index(character) + 1 for character in text if character in CHARSET]


def text_of(labels: Iterable[int]) -> str:
    """The text that labels spell, blanks left out.

    Example:
      >>> text_of([1, 2, 0, 89, 54])
      'ab 1'
    """
    return "".join(CHARSET[label - 1] for label in labels if label)
