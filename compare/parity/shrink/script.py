"""A failing pair of modules as a script that runs both and shows what they give."""

from __future__ import annotations

import importlib.util
import pprint
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...case import Case
from ...observation import Named
from .pair import Spec

if TYPE_CHECKING:
    from .run import Shrunk

INLINE = 64  # numbers; more are kept in a file beside the script
ARRAYS = "{name}.npz"

SCRIPT = '''"""{title}

{told}

Run it with Python where graphmode and the modules of the case can be imported{beside}. It exits with 1 as long as the
two differ, and with 0 once they agree.
"""

import sys
{imports}
import numpy as np
from graphmode.compare.locate import locate
from graphmode.compare.parity.shrink.pair import Call, From, ModulePair, Spec, To

CASE = locate({location!r})
{loaded}INPUTS = {inputs}
WEIGHTS = {weights}
SPEC = {spec}

pair = ModulePair(CASE, SPEC, WEIGHTS)  # pair.reference is the torch module, pair.port the JAX one, both in float64
answer = pair.run(INPUTS, backward={backward})
key = {key!r}
print("reference", *key)
print(answer.reference[key])
print("port", *key)
print(answer.port[key])
off = answer.off(key, floor={floor!r})
differ = off.error > {least!r}
print(f"off by {{off.error:.3g}} of its scale at {{list(off.index)}}", off.note)
print("they differ" if differ else "they agree")
sys.exit(1 if differ else 0)
'''


def location_of(case: Case) -> str | None:
    """Where a loaded module holds this very case: `package.module:NAME` or `path/to/file.py:NAME`."""
    last = {"__main__": sys.modules.get("__main__")}  # what runs now, and would run again
    for name, module in [*((n, m) for n, m in sys.modules.items() if n not in last), *last.items()]:
        for attribute, value in list(getattr(module, "__dict__", {}).items()):
            path = getattr(module, "__file__", None)
            if value is case and path is not None:
                place = name if _is_importable(name, path) else Path(path).absolute()
                return f"{place}:{attribute}"
    return None


def _is_importable(name: str, path: str) -> bool:
    """Whether the name of a module in a package leads to this file."""
    try:
        spec = importlib.util.find_spec(name) if "." in name else None
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin == path


def written(shrunk: Shrunk, location: str, name: str) -> tuple[str, Named]:
    """The script, and the arrays that belong beside it as `NAME.npz`."""
    failure, spec = shrunk.failure, shrunk.failure.pair.spec
    inputs, kept = _arrays(shrunk.inputs, "input")
    weights, more = _arrays(failure.pair.weights, "weight")
    kept |= more
    file = ARRAYS.format(name=name)
    loaded = f"ARRAYS = np.load(Path(__file__).with_name({file!r}))\n" if kept else ""
    text = SCRIPT.format(
        title=f"{spec.port or 'The port'} ({failure.kind}) is not {spec.reference or 'the reference'} "
        f"({failure.reference_kind}) of the case {failure.pair.case.name!r}.",
        told=_told(shrunk),
        beside=f", with {file} beside it" if kept else "",
        imports="from pathlib import Path\n" if kept else "",
        location=location,
        loaded=loaded,
        inputs=inputs,
        weights=weights,
        spec=_spec(spec),
        backward=failure.key[0] != "output",
        key=failure.key,
        floor=failure.floor,
        least=failure.least,
    )
    return text, kept


def _told(shrunk: Shrunk) -> str:
    shapes = ", ".join(f"{name} {list(array.shape)} {array.dtype}" for name, array in shrunk.inputs.items())
    kind, name = shrunk.failure.key
    return f"Inputs: {shapes}. What differs: {kind.replace('_', ' ')} {name}, in {shrunk.failure.pair.spec.mode}."


def _arrays(named: Named, prefix: str) -> tuple[str, Named]:
    """As a dict in Python, and those of them that are too large to write down."""
    kept: Named = {}
    lines = []
    for name, array in named.items():
        if array.size > INLINE:
            kept[f"{prefix} {name}"] = array
            lines.append(f"    {name!r}: ARRAYS[{f'{prefix} {name}'!r}],")
        else:
            lines.append(f"    {name!r}: {_literal(array)},")
    return "{\n" + "\n".join(lines) + "\n}" if lines else "{}", kept


def _literal(array: np.ndarray) -> str:
    if array.size and not np.isfinite(array).all():
        values = str([float(x) for x in array.ravel()]).replace("nan", "np.nan").replace("inf", "np.inf")
    else:
        values = repr(array.ravel().tolist())
    return f"np.array({values}, np.{array.dtype.name}).reshape({array.shape})"


def _spec(spec: Spec) -> str:
    return pprint.pformat(spec, width=110, sort_dicts=False)
