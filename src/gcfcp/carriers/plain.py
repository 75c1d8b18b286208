"""A round in plain values, for carriers whose jobs or tasks are JSON.

    round_to_json(question, Target(0.1, audit=True), Terms(min_clients=3))
    {"question": {...}, "target": {"alpha": 0.1, "audit": True}, "terms": {"min_clients": 3}}

Of target and terms only what differs from its default is written, as a person would write it.
Secure sums are refused here: they were tried over Flower alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from gcfcp.carriers.target import Target, Terms
from gcfcp.errors import GCFCPError
from gcfcp.rounds import Question

_Part = TypeVar("_Part", Target, Terms)


def round_to_json(question: Question, target: Target, terms: Terms) -> dict[str, Any]:
    """The round in plain values, which `round_of` reads."""
    _refuse_sums(question, terms)
    return {"question": question.to_json(), "target": _plain(target), "terms": _plain(terms)}


def round_of(data: Any) -> tuple[Question, Target, Terms]:
    """The question, the target and the terms in plain values; a GCFCPError if they make no sense.

    A question that comes with a task or a job names the groups and their conditions, so that no
    file needs to be where the round is conducted.
    """
    if not isinstance(data, Mapping) or set(data) - {"question", "target", "terms"}:
        raise GCFCPError("a round has question, target and terms: write it with round_to_json")
    question = Question.from_json(data.get("question"))
    target = _made(Target, "target", data.get("target"))
    terms = _made(Terms, "terms", data.get("terms"))
    _refuse_sums(question, terms)
    return question, target, terms


def _refuse_sums(question: Question, terms: Terms) -> None:
    """Raise a GCFCPError if a secure sum is asked for."""
    if question.secure or terms.known_keys is not None:
        raise GCFCPError(
            "secure sums are possible over Flower alone for now: use gcfcp.flower, or ask with "
            "secure=False and without known_keys"
        )


def _plain(value: Target | Terms) -> dict[str, Any]:
    """What differs from its default, by name."""
    found = {f.name: getattr(value, f.name) for f in fields(value)}
    default = type(value)()
    return {
        name: dict(part) if isinstance(part, Mapping) else _listed(part)
        for name, part in found.items()
        if part != getattr(default, name)
    }


def _listed(part: Any) -> Any:
    """A list of what can be gone through, such as a tuple of names; anything else as it is."""
    return list(part) if isinstance(part, tuple | list | set | frozenset) else part


def _made(kind: type[_Part], name: str, given: Any) -> _Part:
    """The target or the terms with these values."""
    values = {} if given is None else given
    if not isinstance(values, Mapping):
        raise GCFCPError(f"{name} of a round is not a mapping of names to values")
    known = [f.name for f in fields(kind)]
    for key in values:
        if key not in known:
            raise GCFCPError(f"{name} has the unknown key {key!r:.60}: the keys are {known}")
    parts: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    try:
        return kind(**parts)
    except (TypeError, ValueError, AttributeError) as error:
        if isinstance(error, GCFCPError):
            raise
        raise GCFCPError(f"{name} of a round makes no sense: {type(error).__name__}") from None
