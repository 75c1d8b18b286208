"""What a server asks of every client: the arguments of `gcfcp.summarize`, as one value.

Both sides have a question. The server asks it, and a site agrees to it beforehand (see `policy`).
`differences` says in what two of them differ, or in what a summary differs from a question.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import eq
from typing import Any

from gcfcp import checks, scores
from gcfcp.errors import GCFCPError
from gcfcp.grid import Grid, as_grid
from gcfcp.groups import Groups
from gcfcp.noise import Makers, checked_epsilon
from gcfcp.shape import Shape, as_shape
from gcfcp.summary import BY, ClientSummary


@dataclass(frozen=True)
class Question:
    """What the server asks of every client: the arguments of `gcfcp.summarize`.

    groups: The family of groups.
    score: A score of `gcfcp.scores`, another object with a name, or a name.
    model: A fingerprint of the model that the sites must confirm, or None.
    delta: How fine the digests are; about delta / 2 clusters for each atom. None with a grid.
    representative: "upper" or "mean".
    min_count: Nothing that stands for fewer records than this leaves a site. The default is 10 and
    not 1, because over a network nobody looks at a summary before it leaves.
    by: "atom" or "group". By default it is "group" if min_count is above 1, because groups have
    more records than combinations of groups, and "atom" otherwise.
    shape: With by="group", the shape that the sites subtract from their scores, or None.
    round: The round that summaries and audits must name, such as "2026Q4", or None.
    grid: The public grid on which the sites count their records, or None.
    epsilon: With a grid and min_count=1, the privacy loss of one record: the sites add noise.
    secure: Whether the sites add up their counts in a secure sum (see `gcfcp.secure`), so that the
    server sees nothing of a single site. It needs a grid, and min_count then applies to the sum.
    dishonest: In a secure sum with noise, how many sites may tell others their noise, by default 1.
    One more than these add noise, and a sum with fewer of them is not unmasked.
    spare: How many more sites add noise, so that as many of those may be lost, by default none.
    """

    groups: Groups
    score: Any = None
    model: str | None = None
    delta: float | None = 250
    representative: str = "upper"
    min_count: int = 10
    by: str | None = None
    shape: Shape | None = None
    round: str | None = None
    grid: Grid | None = None
    epsilon: float | None = None
    secure: bool = False
    dishonest: int | None = None
    spare: int | None = None
    parameters: Mapping[str, Any] = field(init=False)
    score_name: str = field(init=False)

    def __post_init__(self) -> None:
        name, parameters = scores.describe(self.score)
        object.__setattr__(self, "score_name", name)
        object.__setattr__(self, "parameters", parameters)
        checks.name("score", name)
        if self.model is not None:
            checks.name("model", self.model)
        if self.round is not None:
            checks.name("round", self.round)
        object.__setattr__(self, "grid", as_grid(self.grid))
        # As floats, 250 and 250.0 give the same bytes in a summary.
        delta = checks.delta(self.delta) if self.grid is None else None
        object.__setattr__(self, "delta", delta)
        object.__setattr__(self, "representative", checks.representative(self.representative))
        object.__setattr__(self, "min_count", checks.min_count(self.min_count))
        usual = "group" if self.min_count > 1 or self.shape is not None else "atom"
        by = checks.choice("by", usual if self.by is None else self.by, *BY)
        object.__setattr__(self, "by", by)
        object.__setattr__(self, "shape", as_shape(self.shape, self.groups))
        if self.epsilon is not None:
            object.__setattr__(self, "epsilon", checked_epsilon(self.epsilon))
            if self.grid is None or self.min_count != 1:
                raise GCFCPError(
                    f"epsilon={self.epsilon:g} needs a grid and min_count=1, because noise hides "
                    "what min_count would"
                )
        if by == "atom" and self.shape is not None:
            raise GCFCPError("a summary by atom takes no shape: ask with by='group'")
        if checks.flag("secure", self.secure):
            self._check_secure()
        self._set_makers()

    def _check_secure(self) -> None:
        """Raise a GCFCPError if this question cannot be answered by a secure sum."""
        if self.grid is None:
            raise GCFCPError(
                "a secure sum adds up counts on a public grid: give a grid, such as "
                "gcfcp.Grid.uniform(0, 1, 64)"
            )
        if self.groups.sites:
            raise GCFCPError(
                "a secure sum tells nothing of a single site, but the groups have sites: leave "
                "them out"
            )
        if self.representative != "upper":
            raise GCFCPError("a secure sum has no means: ask with representative='upper'")

    def _set_makers(self) -> None:
        """Fill in who adds noise to a secure sum; a GCFCPError if there is none to add."""
        if self.secure and self.epsilon is not None:
            usual = Makers()
            dishonest = usual.dishonest if self.dishonest is None else self.dishonest
            makers = Makers(dishonest, usual.spare if self.spare is None else self.spare)
            object.__setattr__(self, "dishonest", makers.dishonest)
            object.__setattr__(self, "spare", makers.spare)
        elif (self.dishonest, self.spare) != (None, None):
            raise GCFCPError(
                f"dishonest={self.dishonest} and spare={self.spare} say who adds noise to a secure "
                "sum: give them with secure=True and an epsilon, or leave them out"
            )

    @property
    def makers(self) -> Makers | None:
        """Who adds noise to a secure sum; None if nobody does."""
        if self.dishonest is None or self.spare is None:
            return None
        return Makers(self.dishonest, self.spare)

    @property
    def at_site(self) -> Question:
        """The question that a site answers with its own counts, before they are masked.

        It has no noise: which sites add it is known when the roster is.
        """
        return replace(self, secure=False, min_count=1, epsilon=None, dishonest=None, spare=None)

    @property
    def of_sum(self) -> Question:
        """The question that the summary of a secure sum answers, with min_count and noise."""
        return replace(self, secure=False, dishonest=None, spare=None)

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of everything that is asked, in hexadecimal digits."""
        text = json.dumps(_parts(self), sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def of_summary(cls, summary: ClientSummary) -> Question:
        """The question that a summary answers."""
        return cls(
            groups=summary.groups,
            score=score_of(summary.score, summary.parameters),
            model=summary.model,
            delta=summary.delta,
            representative=summary.representative,
            min_count=summary.min_count,
            by=summary.by,
            shape=summary.shape,
            round=summary.round,
            grid=summary.grid,
            epsilon=_epsilon(summary),
        )

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `gcfcp.summarize` that the question decides, all but the score."""
        return {
            "groups": self.groups,
            "model": self.model,
            "delta": self.delta,
            "representative": self.representative,
            "min_count": self.min_count,
            "by": self.by,
            "shape": self.shape,
            "round": self.round,
            "grid": self.grid,
            "epsilon": self.epsilon,
        }

    def to_json(self) -> dict[str, Any]:
        """The question in plain values; equal questions give equal values."""
        return {
            **self.groups.to_dict("groups"),
            "score": self.score_name,
            "parameters": dict(self.parameters),
            "model": self.model,
            "delta": self.delta,
            "representative": self.representative,
            "min_count": self.min_count,
            "by": self.by,
            "shape": self.shape and self.shape.values,
            "round": self.round,
            "grid": self.grid and self.grid.values,
            "epsilon": self.epsilon,
            "secure": self.secure,
            "dishonest": self.dishonest,
            "spare": self.spare,
        }

    @classmethod
    def from_json(cls, data: Any) -> Question:
        """The question in plain values from any server; a GCFCPError if it makes no sense."""
        try:
            groups, shape = Groups.from_dict(data, "groups"), data.get("shape")
            grid = data.get("grid")
            return cls(
                groups=groups,
                score=score_of(data["score"], data["parameters"]),
                model=data["model"],
                delta=data["delta"],
                representative=data["representative"],
                min_count=data["min_count"],
                by=data.get("by", "atom"),  # A server of 0.1.0 knows no other.
                shape=None if shape is None else Shape.from_values(groups, shape),
                round=data.get("round"),
                grid=None if grid is None else Grid.from_values(grid),
                epsilon=data.get("epsilon"),
                secure=data.get("secure", False),
                dishonest=data.get("dishonest"),
                spare=data.get("spare"),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise GCFCPError(f"this is not a question: {type(error).__name__}") from None


@dataclass(frozen=True)
class NamedScore:
    """A score that the library does not know, with its name and its parameters."""

    name: str
    parameters: Mapping[str, Any]


def score_of(name: Any, parameters: Any) -> Any:
    """The score with this name and these parameters; one that is not known stays a name."""
    checks.name("score", name)
    try:
        return scores.from_name(name, parameters)
    except (GCFCPError, TypeError):
        if not isinstance(parameters, Mapping):
            raise GCFCPError("the parameters of a score must be a mapping") from None
        return NamedScore(name, dict(parameters)) if parameters else name


def differences(
    found: Question | ClientSummary, wanted: Question
) -> Iterator[tuple[str, Any, Any]]:
    """In what a question or a summary differs from the question that is wanted.

    Each difference is (what, the value that was found, the value that is wanted). Of groups,
    shapes and grids the fingerprints are compared. Labels may be named on one side alone, because a
    table tells their names and scores do not depend on them.
    """
    theirs, ours = _parts(found), _parts(wanted)
    for what, value in theirs.items():
        same = scores.alike if what == "parameters" else eq
        if not same(value, ours[what]):
            yield what, value, ours[what]


def _epsilon(asked: Question | ClientSummary) -> float | None:
    """The privacy loss of a question or of a summary; None without noise."""
    if isinstance(asked, Question):
        return asked.epsilon
    return None if asked.noise is None else asked.noise.epsilon


def _parts(asked: Question | ClientSummary) -> dict[str, Any]:
    """Everything that a summary is made with, by name."""
    score = asked.score_name if isinstance(asked, Question) else asked.score
    return {
        "groups": asked.groups.fingerprint,
        "score": score,
        "parameters": dict(asked.parameters),
        "model": asked.model,
        "delta": asked.delta,
        "representative": asked.representative,
        "min_count": asked.min_count,
        "by": asked.by,
        "shape": None if asked.shape is None else asked.shape.fingerprint,
        "grid": None if asked.grid is None else asked.grid.fingerprint,
        "epsilon": _epsilon(asked),
        "round": asked.round,
        "secure": isinstance(asked, Question) and asked.secure,
        "dishonest": asked.dishonest if isinstance(asked, Question) else None,
        "spare": asked.spare if isinstance(asked, Question) else None,
    }
