"""`Checkpoints`: a folder of training states, written in the background and whole or not at all."""

from __future__ import annotations

import logging
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import jax

from ..nn.arguments import as_integer
from .checksums import checksums
from .manifest import FOLDER, check_fits, is_complete, make_manifest, read_manifest, told_changes
from .orbax import Quiet, QuietRead, close_before_exit, import_orbax, make_context, why
from .state import TrainState, check_there
from .stored import as_state, targets, to_store

if TYPE_CHECKING:
    from .step import TrainStep

LOG = logging.getLogger(__name__)
REMOVED = ".removed"
INCOMPLETE = ".incomplete"  # what had the name of a checkpoint that is saved, and was none
UNFINISHED = ".orbax-checkpoint-tmp"  # Orbax's own suffix of what it has not renamed yet


class Checkpoints:
    """The checkpoints of one run of training, in one folder: `folder/2000`, `folder/3000`, ...

    A checkpoint holds the whole `TrainState` bit by bit (parameters, running statistics, optimizer, random-number
    keys, loss scale, averages, step), the position in the data, and a manifest in JSON. It is written under another
    name and renamed when it is complete, so one that is listed is whole, whenever the process was killed; an older one
    goes only after a newer one is on the disk. The arrays are those of Orbax, each process writing its own shards; a
    checksum of each, whole, is in the manifest, and is computed again of what is restored.

    Every process of a run calls `save`, `restore`, `wait` and `close` alike. The folder is of a file system (one that
    all processes see), not of an object store.

    Args:
      folder: is made when `fit` starts, or by the first save.
      every: steps from one checkpoint to the next; `save` does nothing in between.
      keep: how many of the newest stay; None keeps all.
      asynchronous: whether `save` returns as soon as the state is copied to host memory, and the disk is written to
        while training goes on. An error then comes with the next call, `close` or the end of a `with` block.

    Raises:
      ImportError: where Orbax is not installed.
      ValueError: for a folder that is itself a checkpoint, a file or an address.

    Example:
      >>> import tempfile
      >>> import graphmode as gm, jax.numpy as jnp
      >>> from flax import nnx
      >>> model = gm.nn.Linear(3, 1, rngs=nnx.Rngs(0))
      >>> step = gm.train_step(model, lambda model, x: jnp.mean(model(x) ** 2), gm.optim.adam())
      >>> with gm.training.Checkpoints(tempfile.mkdtemp(), every=2) as checkpoints:
      ...     state, data = checkpoints.restore(step) or (step.init(), {"batch": 0})
      ...     for batch in range(data["batch"], 5):
      ...         state, metrics = step(state, jnp.ones((4, 3)))
      ...         saved = checkpoints.save(state, data={"batch": batch + 1}, metrics=metrics)
      >>> checkpoints.steps
      [2, 4]

    Source: https://orbax.readthedocs.io/en/latest/guides/checkpoint/v1/orbax_checkpoint_101.html
    """

    def __init__(self, folder: str | Path, *, every: int = 1000, keep: int | None = 3, asynchronous: bool = True):
        if "://" in str(folder):
            raise ValueError(f"folder is {str(folder)!r}; give a folder of a file system, where renaming is atomic")
        self.folder = Path(folder).expanduser().absolute()
        self.every = as_integer("every", every, least=1)
        self.keep = None if keep is None else as_integer("keep", keep, least=1)
        self.asynchronous = asynchronous
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"folder is {self.folder}, which is a file; give a folder")
        if is_complete(self.folder):
            raise ValueError(
                f"folder is {self.folder}, which is one checkpoint; give {self.folder.parent}, and "
                f"restore(step, at={self.folder.name})"
            )
        self._orbax = import_orbax()
        self._context = make_context(self._orbax)
        self._background = ThreadPoolExecutor(1, thread_name_prefix="checkpoints")
        self._running: Future[None] | None = None
        self._last: int | None = None
        self._prepared = self._closed = False
        close_before_exit(self)

    @property
    def steps(self) -> list[int]:
        """Of the complete checkpoints in the folder as it is now, ascending."""
        return [step for step in self._numbered() if is_complete(self.folder / str(step))]

    def is_due(self, step: int, launched: int = 1) -> bool:
        """Whether one of the times to save lies in the last `launched` steps before `step`."""
        return step // self.every > (step - launched) // self.every

    def save(
        self,
        state: TrainState,
        *,
        data: dict[str, Any] | None = None,
        metrics: Mapping[str, Any] | None = None,
        step: int | None = None,
        force: bool = False,
    ) -> bool:
        """Saves the state where `every` steps went by since the last one; the state may be donated afterwards.

        It waits for the save before, where that is still being written.

        Args:
          state: of a `TrainStep`.
          data: the position in the data: what JSON gives back as it is. With several processes, that of the first one.
          metrics: scalars by name, for the manifest.
          step: number of steps taken, where the caller counts along; else it is read from the state, and each call
            waits for the device.
          force: saves whatever step it is.

        Returns:
          Whether it is being saved: not between two times, and not once more where the newest is of this very step.

        Raises:
          RuntimeError: after `close`.
          OSError, RuntimeError: where this save failed, or the one before did in the background, with the folder and
            step. The complete checkpoints are as they were, and the next save tries again.
          ValueError: where the folder has a later checkpoint: it is of another run; where a step consumed the state.
          TypeError: for what is no state.
        """
        check_there(state)
        if self._running is not None and self._running.done():
            self.wait()
        self.prepare()
        if self._last is None:
            self._last = max(self.steps, default=-1)
        at = int(state.step) if step is None else as_integer("step", step, least=0)
        if at == self._last or not (force or at // self.every > max(self._last, 0) // self.every):
            return False
        self.wait()
        if (actual := int(state.step)) != at and int(state.bad_step) < 0:
            raise ValueError(f"step is {at}, and the state's is {actual}; count steps_per_launch for each call")
        if (newest := max(self.steps, default=-1)) >= actual:
            if newest == actual == self._last:
                return False
            raise ValueError(
                f"folder is {self.folder}, which has step {newest} already, and the state is of step {actual}: restore "
                f"it first, give another folder, or remove what is later by discard_after({actual - 1})"
            )
        manifest = make_manifest(state, actual, data, metrics, checksums(state))
        self._make_way(actual)
        quiet = Quiet()
        try:
            with self._context:
                writing = self._orbax.save_checkpointables_async(
                    self.folder / str(actual), {"state": to_store(state), FOLDER: manifest}
                )
        except Exception as error:
            quiet.end()
            self._raise_failed(actual, error)
        self._last = actual
        self._running = self._background.submit(self._finish, actual, writing, quiet)
        if not self.asynchronous:
            self.wait()
        return True

    def restore(self, step: TrainStep, *, at: int | None = None) -> tuple[TrainState, dict[str, Any]] | None:
        """The newest complete checkpoint, placed as `step.placement` says, whatever it was saved from.

        Args:
          step: the `TrainStep` that goes on; of the same model, optimizer and options as the one that was saved.
          at: another step than the newest.

        Returns:
          The state and the position in the data; None where there is no checkpoint yet. One that is newer and not
          complete is passed over, with a warning in the log.

        Raises:
          ValueError: where arrays are missing, left over or of another shape or dtype, all of them named; where the
            checkpoint is of a newer graphmode, is damaged, or is none; where there is none of step `at`.
          TypeError: where step is no `TrainStep`, or at no integer.
        """
        if not callable(getattr(step, "abstract", None)):
            raise TypeError(f"step is a {type(step).__name__}; give the TrainStep that goes on, not its state")
        at = None if at is None else as_integer("at", at, least=0)
        self.wait()
        numbered, complete = self._numbered(), self.steps
        if at is None and not complete:
            if not numbered:
                return None
            at = numbered[-1]
        elif at is None:
            at = complete[-1]
            if later := [other for other in numbered if other > at]:
                LOG.warning(
                    "%s is passed over, since it is not complete (it has no %s/data.json that can be read); going on "
                    "from step %d", self.folder / str(later[-1]), FOLDER, at
                )  # fmt: skip
        elif at not in numbered:
            raise ValueError(f"at is {at}, and {self.folder} has {', '.join(map(str, complete)) or 'no checkpoint'}")
        checkpoint = self.folder / str(at)
        manifest = read_manifest(checkpoint)
        wanted = step.abstract()
        check_fits(checkpoint, manifest, wanted)
        quiet, quiet_read = Quiet(), QuietRead()
        try:
            with self._context:
                read = self._orbax.load_checkpointables(checkpoint, {"state": targets(wanted)})["state"]
        except Exception as error:
            raise self._damaged(at, why(error)[1]) from error
        finally:
            quiet.end()
        quiet_read.succeeded()
        state = as_state(read, wanted)
        if told := told_changes(manifest, checksums(state)):
            raise self._damaged(at, told)
        self._last = at
        return state, manifest["data"]

    def _damaged(self, at: int, reason: str) -> ValueError:
        others = [other for other in self.steps if other != at]
        advice = ""
        if others:
            advice = f", which restore(step, at={others[-1]}) gives"
        if earlier := [other for other in others if other < at]:
            advice += f"; after discard_after({earlier[-1]}) a run goes on from there"
        return ValueError(
            f"{self.folder / str(at)} is damaged: {reason}. Others in {self.folder}: {others or 'none'}{advice}"
        )

    def manifest(self, at: int) -> dict[str, Any]:
        """Of the checkpoint of step `at`: `format`, `graphmode`, `jax`, `step`, `data`, `metrics`, `arrays` and
        `checksums`."""
        return read_manifest(self.folder / str(at))

    def discard_after(self, step: int) -> None:
        """Removes the checkpoints of later steps, to go on from an earlier one in the same folder."""
        self.wait()
        if jax.process_index() == 0:
            for later in [x for x in reversed(self._numbered()) if x > step]:
                self._remove(later)
        self._last = None

    def wait(self) -> None:
        """Until nothing is being written any more; raises what went wrong there, once."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def close(self) -> None:
        """Waits, and ends the thread: what was saved can be restored still, and no more be saved."""
        self._closed = True
        try:
            self.wait()
        finally:
            self._background.shutdown()

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Checkpoints({str(self.folder)!r}, every={self.every}, keep={self.keep})"

    def _numbered(self) -> list[int]:
        if not self.folder.is_dir():
            return []
        return sorted(int(path.name) for path in self.folder.iterdir() if re.fullmatch(r"0|[1-9]\d*", path.name))

    def prepare(self) -> None:
        """Makes the folder, tries to write to it, and clears away what a killed process left; once.

        Raises:
          OSError: where it cannot be written to.
          RuntimeError: after `close`.
        """
        if self._closed:
            raise RuntimeError(f"{self!r} is closed; save before close, or make another of the same folder")
        if self._prepared:
            return
        if jax.process_index() == 0:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=self.folder):
                    pass
            except OSError as error:
                raise OSError(
                    error.errno,
                    f"folder is {self.folder}, and nothing can be written there ({error.strerror}); give another one, "
                    "or see to its permissions",
                ) from error
            for path in self.folder.iterdir():
                if re.fullmatch(rf"\d+({re.escape(UNFINISHED)}.*|{re.escape(REMOVED)})", path.name):
                    shutil.rmtree(path, ignore_errors=True)
        self._prepared = True

    def _make_way(self, step: int) -> None:
        """What is no complete checkpoint and has this one's name gets another: Orbax writes over nothing."""
        taken = self.folder / str(step)
        if jax.process_index() == 0 and taken.exists():
            aside = self.folder / f"{step}{INCOMPLETE}"
            shutil.rmtree(aside, ignore_errors=True)
            taken.rename(aside)
            LOG.warning(
                "%s is not complete, and is now %s: the checkpoint of step %d takes its name", taken, aside, step
            )

    def _finish(self, step: int, writing: Any, quiet: Quiet) -> None:
        """In the background: until the checkpoint has its name and is on the disk, and then the oldest ones go."""
        try:
            writing.result()
            if jax.process_index() == 0:
                _to_disk(self.folder / str(step))
        except Exception as error:
            self._raise_failed(step, error)
        finally:
            quiet.end()
        if jax.process_index() == 0 and self.keep is not None:
            for old in self.steps[: -self.keep]:
                self._remove(old)

    def _remove(self, step: int) -> None:
        """Takes the name away first, so that what a kill leaves behind is not listed."""
        removed = self.folder / f"{step}{REMOVED}"
        shutil.rmtree(removed, ignore_errors=True)
        (self.folder / str(step)).rename(removed)
        shutil.rmtree(removed, ignore_errors=True)

    def _raise_failed(self, step: int, error: Exception) -> NoReturn:
        """Raises what says where and why; what was written of the checkpoint is removed, for it may fill the disk."""
        self._last = None
        self._prepared = False  # another of Orbax's threads may still write there: the next save clears it away again
        if jax.process_index() == 0:
            for path in self.folder.glob(f"{step}{UNFINISHED}*"):
                shutil.rmtree(path, ignore_errors=True)
        complete = self.steps
        rest = f"the newest complete one there is of step {complete[-1]}" if complete else "there is no other there"
        number, reason = why(error)
        told = f"the checkpoint of step {step} could not be written to {self.folder} ({rest}): {reason}"
        if number is not None:
            raise OSError(number, told) from None  # Orbax's threads and tasks would make a trace of a thousand lines
        raise RuntimeError(told) from error


def _to_disk(folder: Path) -> None:
    """The older checkpoints go next, which must not happen while this one is only in the system's memory."""
    for path in [*folder.rglob("*"), folder, folder.parent]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
