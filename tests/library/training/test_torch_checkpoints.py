"""A training begun by PyTorch goes on here as it would have there, in float64, and back again."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax import nnx
from optimizer_cases import in_double

import graphmode as gm

pytest.importorskip("graphmode.optim.torch_state")


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.second = torch.nn.Linear(6, 1)  # NNX goes through the modules by name, PyTorch as they were made
        self.first = torch.nn.Linear(4, 6)
        self.norm = torch.nn.BatchNorm1d(6)

    def forward(self, x):
        return self.second(self.norm(torch.tanh(self.first(x))))  # a bias right before a norm has no gradient


class Port(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.second = gm.nn.Linear(6, 1, rngs=rngs)
        self.first = gm.nn.Linear(4, 6, rngs=rngs)
        self.norm = gm.nn.BatchNorm1d(6)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.second(self.norm(jnp.tanh(self.first(x))))


def squared_error(model, batch):
    return jnp.mean((model(batch["x"]) - batch["y"]) ** 2)


def batch(number: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(number).normal(size=(16, 4))
    return x, np.sin(x.sum(1, keepdims=True))


def halved(count):
    return 0.05 * 0.5 ** (count // 2)


# name: PyTorch's optimizer, ours, and PyTorch's schedule
PAIRS = {
    "adam": (lambda p: torch.optim.Adam(p, lr=0.05), lambda: gm.optim.adam(lr=0.05), None),
    "adamw, amsgrad": (
        lambda p: torch.optim.AdamW(p, lr=0.05, amsgrad=True, weight_decay=0.1),
        lambda: gm.optim.adamw(lr=0.05, amsgrad=True, weight_decay=0.1),
        None,
    ),
    "sgd": (
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
        lambda: gm.optim.sgd(lr=0.05, momentum=0.9, nesterov=True),
        None,
    ),
    "rmsprop": (lambda p: torch.optim.RMSprop(p, lr=0.05), lambda: gm.optim.rmsprop(lr=0.05), None),
    "adagrad": (lambda p: torch.optim.Adagrad(p, lr=0.05), lambda: gm.optim.adagrad(lr=0.05), None),
    "schedule": (
        lambda p: torch.optim.Adam(p, lr=0.05),
        lambda: gm.optim.adam(lr=halved),
        lambda o: torch.optim.lr_scheduler.StepLR(o, 2, 0.5),
    ),
}


class Torch:
    """A loop of PyTorch's."""

    def __init__(self, name: str, *, frozen: tuple[str, ...] = (), listed: bool = False):
        torch.manual_seed(0)
        self.model = Reference().double()
        for module in frozen:
            getattr(self.model, module).requires_grad_(False)
        make, _, schedule = PAIRS[name]
        given = {name: p for name, p in self.model.named_parameters() if p.requires_grad or listed}
        self.names = list(given)
        self.optimizer = make(given.values())
        self.schedule = schedule and schedule(self.optimizer)

    def run(self, numbers: range) -> list[float]:
        losses = []
        for number in numbers:
            x, y = map(torch.tensor, batch(number))
            self.optimizer.zero_grad()
            loss = ((self.model(x) - y) ** 2).mean()
            loss.backward()
            self.optimizer.step()
            if self.schedule:
                self.schedule.step()
            losses.append(loss.item())
        return losses

    def content(self) -> dict:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "epoch": 1}


def make_step(name: str, tx=None, **options) -> gm.training.TrainStep:
    model = Port(nnx.Rngs(1))
    nnx.update(
        model,
        jax.tree.map(lambda x: x.astype(jnp.float64) if jnp.issubdtype(x.dtype, jnp.floating) else x, nnx.state(model)),
    )
    return gm.train_step(model, squared_error, PAIRS[name][1]() if tx is None else tx, **options)


def run(step, state, numbers: range) -> tuple:
    losses = []
    for number in numbers:
        x, y = batch(number)
        state, metrics = step(state, {"x": jnp.asarray(x), "y": jnp.asarray(y)})
        losses.append(float(metrics["loss"]))
    return state, losses


def assert_same(ours: dict, theirs: dict) -> None:
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        np.testing.assert_allclose(ours[key].numpy(), value.numpy(), rtol=1e-12, atol=1e-14, err_msg=key)


@pytest.mark.parametrize("name", PAIRS)
def test_pytorchs_training_goes_on_here_and_there_again(name, tmp_path):
    theirs = Torch(name)
    theirs.run(range(3))
    torch.save(theirs.content(), tmp_path / "last.pt")
    with in_double():
        step = make_step(name)
        count = 3 if name == "sgd" else None
        state = gm.training.from_torch_checkpoint(tmp_path / "last.pt", step, count=count)
        assert state.step == 3
        expected = theirs.run(range(3, 7))
        state, losses = run(step, state, range(3, 7))
        np.testing.assert_allclose(losses, expected, rtol=1e-12)
        content = gm.training.to_torch_checkpoint(state, step, names=theirs.names)
    assert_same(content["model"], theirs.model.state_dict())
    again = Torch(name)
    again.model.load_state_dict(content["model"])
    again.optimizer.load_state_dict(content["optimizer"])
    if theirs.schedule:
        again.schedule.load_state_dict(theirs.schedule.state_dict())
    np.testing.assert_allclose(again.run(range(7, 10)), theirs.run(range(7, 10)), rtol=1e-12)
    assert_same(again.model.state_dict(), theirs.model.state_dict())


# what PyTorch's takes beside the optimizer, and ours beside the learning rate
SCHEDULES = {
    "StepLR": (10, 0.5),
    "MultiStepLR": ([20, 30], 0.1),
    "ExponentialLR": (0.9,),
    "CosineAnnealingLR": (40,),
    "LambdaLR": (lambda count: 0.9**count,),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_goes_on_in_pytorch(name):
    """By the state of PyTorch's scheduler, and by one that is made anew where 15 updates were made."""

    def scheduled(optimizer, **more):
        return getattr(torch.optim.lr_scheduler, name)(optimizer, *SCHEDULES[name], **more)

    theirs = Torch("sgd")
    theirs.schedule = scheduled(theirs.optimizer)
    with in_double():
        schedule = getattr(gm.optim.lr_scheduler, name)(0.05, *SCHEDULES[name])
        step = make_step("sgd", tx=gm.optim.sgd(lr=schedule, momentum=0.9, nesterov=True))
        state = gm.training.from_torch_checkpoint(theirs.content(), step, count=0)
        state, _ = run(step, state, range(15))
        at_15 = gm.training.to_torch_checkpoint(state, step, names=theirs.names)
        state, _ = run(step, state, range(15, 20))
        at_20 = gm.training.to_torch_checkpoint(state, step, names=theirs.names)
    theirs.run(range(20))
    kept = theirs.schedule.state_dict()
    theirs.run(range(20, 40))
    for start, content in {15: at_15, 20: at_20}.items():
        again = Torch("sgd")
        again.model.load_state_dict(content["model"])
        again.optimizer.load_state_dict(content["optimizer"])
        if start == 15:
            again.schedule = scheduled(again.optimizer, last_epoch=14)
        else:
            again.schedule = scheduled(Torch("sgd").optimizer)
            again.schedule.optimizer = again.optimizer
            again.schedule.load_state_dict(kept)
        again.run(range(start, 40))
        assert_same(again.model.state_dict(), theirs.model.state_dict())


def test_the_scheduler_counts_where_the_optimizer_does_not(caplog):
    theirs = Torch("sgd")
    theirs.schedule = torch.optim.lr_scheduler.ExponentialLR(theirs.optimizer, 0.9)
    theirs.run(range(3))
    content = theirs.content() | {"scheduler": theirs.schedule.state_dict()}
    with in_double():
        schedule = gm.optim.lr_scheduler.ExponentialLR(0.05, 0.9)
        step = make_step("sgd", tx=gm.optim.sgd(lr=schedule, momentum=0.9, nesterov=True))
        state = gm.training.from_torch_checkpoint(content, step)
        assert not caplog.records
        assert (int(state.step), int(state.optimizer.count)) == (3, 3)
        assert int(gm.training.from_torch_checkpoint(content, step, count=2).step) == 2
        state, losses = run(step, state, range(3, 6))
        np.testing.assert_allclose(losses, theirs.run(range(3, 6)), rtol=1e-12)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(theirs.optimizer)
        plateau.step(1.0)
        plateau.step(1.0)
        content |= {"scheduler": plateau.state_dict()}
        assert int(gm.training.from_torch_checkpoint(content, step).step) == 1
        counting = Torch("adam")
        counting.run(range(2))
        content = counting.content() | {"scheduler": {"last_epoch": 7}}
        assert int(gm.training.from_torch_checkpoint(content, make_step("adam")).step) == 2


def test_what_schedulers_write_into_a_group_is_handed_back():
    theirs = Torch("sgd")
    theirs.schedule = torch.optim.lr_scheduler.OneCycleLR(theirs.optimizer, 0.5, 20, cycle_momentum=False)
    theirs.run(range(3))
    with in_double():
        for lr in (
            gm.optim.lr_scheduler.OneCycleLR(0.05, 0.5, 20, cycle_momentum=False),
            optax.linear_schedule(0.05, 0.0, 20),
        ):
            step = make_step("sgd", tx=gm.optim.sgd(lr=lr, momentum=0.9, nesterov=True))
            state, _ = run(step, step.init(), range(3))
            (group,) = gm.training.to_torch_checkpoint(state, step, names=theirs.names)["optimizer"]["param_groups"]
            if isinstance(lr, gm.optim.lr_scheduler.OneCycleLR):
                expected = theirs.optimizer.state_dict()["param_groups"][0]
                for name in ("lr", "initial_lr", "max_lr", "min_lr"):
                    assert group[name] == pytest.approx(expected[name], rel=1e-12)
            else:
                assert group["initial_lr"] == 0.05
                assert "max_lr" not in group


def frozen_pair(name: str, *, listed: bool) -> Torch:
    """A loop of PyTorch's whose `first` and `norm` are frozen, and its optimizer's or not."""
    theirs = Torch(name, frozen=("first", "norm"), listed=listed)
    assert any(name.startswith("first") for name in theirs.names) == listed
    return theirs


@pytest.mark.parametrize("named", [True, False], ids=["names", "no names"])
@pytest.mark.parametrize(
    ("name", "listed"),
    [("adam", False), ("adam", True), ("sgd", True), ("adagrad", True)],
    ids=lambda value: {True: "listed", False: "not listed"}.get(value, value),
)
def test_frozen_parameters_may_be_the_optimizers_or_not(name, listed, named):
    theirs = frozen_pair(name, listed=listed)
    theirs.run(range(2))
    with in_double():
        step = make_step(name, frozen=r"^(first|norm)")
        names = theirs.names if named else None
        state = gm.training.from_torch_checkpoint(theirs.content(), step, names=names, count=2)
        state, losses = run(step, state, range(2, 5))
        np.testing.assert_allclose(losses, theirs.run(range(2, 5)), rtol=1e-12)
        content = gm.training.to_torch_checkpoint(state, step, names=theirs.names)
    assert_same(content["model"], theirs.model.state_dict())
    assert content["optimizer"]["state"].keys() == theirs.optimizer.state_dict()["state"].keys()
    again = frozen_pair(name, listed=listed)
    again.model.load_state_dict(content["model"])
    again.optimizer.load_state_dict(content["optimizer"])
    if listed:  # and goes on with them
        again.model.requires_grad_(True)
        theirs.model.requires_grad_(True)
    np.testing.assert_allclose(again.run(range(5, 8)), theirs.run(range(5, 8)), rtol=1e-12)


@pytest.mark.parametrize("name", ["adam", "adagrad"])
def test_what_is_trained_from_now_on_begins_anew(name):
    theirs = frozen_pair(name, listed=True)
    with in_double():
        first = make_step(name, frozen=r"^(first|norm)")
        state = gm.training.from_torch_checkpoint(theirs.content(), first, names=theirs.names)
        theirs.run(range(3))
        state, _ = run(first, state, range(3))
        content = gm.training.to_torch_checkpoint(state, first, names=theirs.names)
        second = make_step(name)
        state = gm.training.from_torch_checkpoint(content, second)
        theirs.model.requires_grad_(True)
        state, losses = run(second, state, range(3, 6))
        np.testing.assert_allclose(losses, theirs.run(range(3, 6)), rtol=1e-12)
        assert sorted(state.optimizer.step.tolist()) == [3, 3, 3, 3, 6, 6]
        last = gm.training.to_torch_checkpoint(state, second, names=theirs.names)
        assert_same(last["model"], theirs.model.state_dict())
        trained = [name for name in theirs.names if name.startswith("second")]
        content = gm.training.to_torch_checkpoint(first.init(), first, names=trained)
        with pytest.raises(ValueError, match=r"first\.weight: missing, and first\.weight is trained here; list it"):
            gm.training.from_torch_checkpoint(content, second)


def test_what_pytorch_has_trained_and_is_frozen_here_is_told(caplog):
    theirs = Torch("adam")
    theirs.run(range(2))
    with in_double():
        step = make_step("adam", frozen="^first")
        gm.training.from_torch_checkpoint(theirs.content(), step)
    assert "first.weight, first.bias: PyTorch's optimizer has stepped what is not trained here" in caplog.text


def test_the_loss_scale_goes_along():
    theirs = Torch("adam")
    theirs.model.float()
    scaler = torch.amp.GradScaler("cpu", init_scale=128.0, growth_interval=7)
    x, y = (torch.tensor(part).float() for part in batch(0))
    for _ in range(3):
        theirs.optimizer.zero_grad()
        scaler.scale(((theirs.model(x) - y) ** 2).mean()).backward()
        scaler.step(theirs.optimizer)
        scaler.update()
    scaling = gm.training.LossScaling(growth_interval=7)
    step = gm.train_step(
        Port(nnx.Rngs(0)), squared_error, gm.optim.adam(lr=0.05), precision="float16", loss_scaling=scaling
    )
    content = theirs.content() | {"scaler": scaler.state_dict()}
    state = gm.training.from_torch_checkpoint(content, step)
    assert (float(state.scale.value), int(state.scale.growth_tracker)) == (128.0, 3)
    back = gm.training.to_torch_checkpoint(state, step, names=theirs.names)
    assert back["scaler"] == scaler.state_dict()
    torch.amp.GradScaler("cpu").load_state_dict(back["scaler"])
    other = content | {"scaler": scaler.state_dict() | {"growth_factor": 3.0}}
    with pytest.raises(ValueError, match=r"growth_factor is 3\.0, here 2\.0"):
        gm.training.from_torch_checkpoint(other, step)
    with pytest.raises(ValueError, match=r"source has no 'scaler'; it has 'model', 'optimizer', 'epoch'"):
        gm.training.from_torch_checkpoint(theirs.content(), step)


def test_what_does_not_match_is_refused(tmp_path):
    theirs = Torch("adam")
    theirs.run(range(1))
    content = theirs.content()
    step = gm.train_step(Port(nnx.Rngs(0)), squared_error, gm.optim.adam(lr=0.05))
    with in_double(), pytest.raises(ValueError, match=r"first\.weight is float64, here float32"):
        gm.training.from_torch_checkpoint(content, step)
    with pytest.raises(ValueError, match="source has no 'net'; it has 'model'"):
        gm.training.from_torch_checkpoint(content, step, model_key="net")
    of_lightning = {"state_dict": content["model"], "optimizer_states": [content["optimizer"]]}
    keys = {"model_key": "state_dict", "optimizer_key": "optimizer_states"}
    with pytest.raises(TypeError, match=r"optimizer_key is 'optimizer_states', which is a list .*\[0\]}, which is"):
        gm.training.from_torch_checkpoint(of_lightning, step, **keys)
    torch.save(theirs, tmp_path / "pickled.pt")
    with pytest.raises(ValueError, match="refuses"):
        gm.training.from_torch_checkpoint(tmp_path / "pickled.pt", step)
    chained = gm.train_step(Port(nnx.Rngs(0)), squared_error, optax.adam(0.1))
    with pytest.raises(TypeError, match=r"PyTorch's state is one of gm\.optim's"):
        gm.training.from_torch_checkpoint(content, chained)
    with in_double(), pytest.raises(ValueError, match="momentum_buffer"):
        gm.training.from_torch_checkpoint(content, make_step("sgd"))


def test_the_rate_that_counts_is_told_where_another_is_given(caplog):
    theirs = Torch("adam")
    theirs.run(range(2))
    theirs.model.float()
    content = theirs.content()
    rate = content["optimizer"]["param_groups"][0]["lr"]

    def goes_on(lr):
        caplog.clear()
        step = gm.train_step(Port(nnx.Rngs(0)), squared_error, gm.optim.adam(lr=lr))
        return gm.training.from_torch_checkpoint(content, step)

    for given in (rate, rate * (1 + 1e-7)):
        goes_on(given)
        assert not caplog.records
    assert float(goes_on(7.0).optimizer.lr[0]) == pytest.approx(rate)
    assert f"lr is given as 7, and PyTorch's optimizer has {rate:.6g}, which counts" in caplog.text
    goes_on(lambda count: rate)
    assert not caplog.records
    goes_on(lambda count: 3.0 * count)
    assert f"a schedule, which gives 6 for update 2, and counts; PyTorch's optimizer has {rate:.6g}" in caplog.text
