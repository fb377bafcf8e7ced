"""How rows are read and written at indices that were computed: none is an index from the end.

JAX takes -1 for the last entry in every mode, at the price of a pass over the indices; these have none to spare for it.
"""

from typing import Any

DROP: dict[str, Any] = {"mode": "drop", "wrap_negative_indices": False}
IN_BOUNDS: dict[str, Any] = {"mode": "promise_in_bounds", "wrap_negative_indices": False}
