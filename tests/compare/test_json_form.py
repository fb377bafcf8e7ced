"""Records as JSON and back: nothing is lost, and what is not the record says where."""

import dataclasses
import json
import math
from dataclasses import dataclass, field
from typing import Literal

import pytest
from graphmode.compare.report.json_form import RecordError, from_json, to_json


@dataclass(frozen=True, kw_only=True)
class Part:
    name: str
    kind: Literal["small", "large"] = "small"
    at: tuple[int, ...] = ()
    pair: tuple[str, float] | None = None

    def __post_init__(self):
        if self.name == "refused":
            raise ValueError("a part that its record refuses")


@dataclass(kw_only=True)
class Whole:
    parts: list[Part]
    by_name: dict[str, float | None] = field(default_factory=dict)
    main: Part | None = None
    ready: bool = False
    count: int = 0
    rate: float = 0.0


WHOLE = Whole(
    parts=[Part(name="ä\n\x00", at=(1, 2)), Part(name="b", kind="large", pair=("c", 2.5))],
    by_name={"z": 1.0, "a": None},
    main=Part(name="main"),
    ready=True,
    count=10**18,
    rate=1e-300,
)


@pytest.mark.parametrize("indent", [None, 1])
def test_a_record_comes_back_as_it_was(indent):
    again = from_json(to_json(WHOLE, indent=indent), Whole)
    assert again == WHOLE
    assert isinstance(again.parts[0].at, tuple)
    assert list(again.by_name) == ["z", "a"]


def test_keys_are_sorted_on_request_and_fields_never():
    whole = json.loads(to_json(WHOLE, sort_keys=True))
    assert list(whole["by_name"]) == ["a", "z"]
    assert list(whole) == [each.name for each in dataclasses.fields(Whole)]


def test_what_json_has_no_form_for():
    assert json.loads(to_json({"x": [math.inf, -math.inf, math.nan, 1.0]})) == {"x": [None, None, None, 1.0]}
    assert json.loads(to_json(["\udcff"])) == ["?"]
    with pytest.raises(TypeError, match="is set, which no record holds"):
        to_json({"x": {1}})


def test_defaults_stand_for_what_is_missing_and_unknown_fields_are_passed_over():
    assert from_json(b'{"parts": [], "later": {"a": 1}}', Whole) == Whole(parts=[])


def test_an_integer_is_a_float_and_stays_none_of_another_kind():
    rate = from_json(b'{"parts": [], "rate": 3}', Whole).rate
    assert isinstance(rate, float)
    assert rate == 3


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        (b'{"parts": [', "Expecting value"),
        (b"\xff\xfe\x00", "can't decode|codec"),
        (b"[" * 100_000, "recursion"),
        (b"[]", r"\$ is an array, and an object was wanted"),
        (b"{}", r"\$ lacks the field 'parts' of a Whole"),
        (b'{"parts": {}}', r"\$.parts is an object, and an array was wanted"),
        (b'{"parts": [{"name": 3}]}', r"\$.parts\[0\].name is 3, and str was wanted"),
        (b'{"parts": [{"name": "a", "kind": "huge"}]}', r"\.kind is \"huge\", and 'small' or 'large' was wanted"),
        (b'{"parts": [{"name": "a", "kind": []}]}', r"\.kind is an array, and 'small' or 'large' was wanted"),
        (b'{"parts": [{"name": "a", "at": [1, 2.5]}]}', r"\.at\[1\] is 2.5, and int was wanted"),
        (b'{"parts": [{"name": "a", "pair": ["b"]}]}', r"\.pair is an array, and an array of 2 was wanted"),
        (b'{"parts": [{"name": "refused"}]}', r"\$.parts\[0\]: a part that its record refuses"),
        (b'{"parts": [], "main": 3}', r"\$.main is 3, and an object was wanted"),
        (b'{"parts": [], "ready": 1}', r"\$.ready is 1, and bool was wanted"),
        (b'{"parts": [], "count": true}', r"\$.count is true, and int was wanted"),
        (b'{"parts": [], "rate": true}', r"\$.rate is true, and float was wanted"),
        (b'{"parts": [], "rate": null}', r"\$.rate is null, and float was wanted"),
        (b'{"parts": [], "rate": NaN}', r"\$.rate is nan, and a finite number was wanted"),
        (b'{"parts": [], "rate": -Infinity}', r"\$.rate is -inf, and a finite number was wanted"),
        (b'{"parts": [], "rate": 1e999}', r"\$.rate is inf, and a finite number was wanted"),
        (b'{"parts": [], "rate": 1%s}' % (b"0" * 400), r"\$.rate is inf, and a finite number was wanted"),
        (b'{"parts": [], "count": 1%s}' % (b"0" * 5000), "integer string"),
        (b'{"parts": [], "by_name": {"a": "b"}}', r"\$.by_name.a is \"b\", and float was wanted"),
    ],
)
def test_what_is_not_the_record_says_where(payload, says):
    with pytest.raises(RecordError, match=says):
        from_json(payload, Whole)
