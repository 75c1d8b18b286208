"""The questions that a site has agreed to answer. Anything else is refused.

A server that could vary a single part of its question would read scores one by one: between two
deltas the boundary of a cluster moves over one record, and the difference of two means is its
score. So a policy pins every part of the question: groups, score and parameters, model, delta,
representative, min_count, by, shape, grid, epsilon, round, and who adds noise to a sum. How many of
the agreed questions are answered about the same records, and what privacy they lose together, is
counted by the `ledger`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gcfcp import checks, scores
from gcfcp.errors import GCFCPError
from gcfcp.groups import Groups
from gcfcp.prediction import Predictor
from gcfcp.rounds.codes import Code, Refusal
from gcfcp.rounds.question import Question, differences
from gcfcp.secure import Rules

_CODES = {
    "groups": Code.GROUPS_NOT_ALLOWED,
    "score": Code.SCORE_NOT_ALLOWED,
    "parameters": Code.SCORE_NOT_ALLOWED,
    "model": Code.MODEL_DIFFERS,
    "delta": Code.DELTA_DIFFERS,
    "representative": Code.REPRESENTATIVE_DIFFERS,
    "min_count": Code.MIN_COUNT_DIFFERS,
    "by": Code.BY_DIFFERS,
    "shape": Code.SHAPE_DIFFERS,
    "grid": Code.GRID_DIFFERS,
    "epsilon": Code.EPSILON_DIFFERS,
    "round": Code.ROUND_DIFFERS,
    "secure": Code.SECURE_DIFFERS,
    "dishonest": Code.MAKERS_DIFFER,
    "spare": Code.MAKERS_DIFFER,
}
_ORDER = list(_CODES)


@dataclass(frozen=True)
class Policy:
    """What a site lets the server ask for.

    agreed: The question that the site has agreed to answer, or several.
    absent: The names of the groups that this site cannot have. The site states it and never the
    server. Of several families, each takes those names that it has.
    questions: How many different questions are answered about one data set. The first ones that
    are asked count, and a repeated question is answered with the same bytes.
    audits: How many different predictors are audited on one data set.
    budget: The most epsilon that all summaries of one data set may lose together, or None. With a
    budget every agreed question has an epsilon. Losses are added (basic composition). Audits are
    not covered: they are exact counts about other records.
    sums: What the site demands of a secure sum: the fewest sites on its roster, and in it.
    """

    agreed: Question | Sequence[Question]
    absent: tuple[str, ...] = ()
    questions: int = 1
    audits: int = 1
    budget: float | None = None
    sums: Rules = field(default_factory=Rules)

    def __post_init__(self) -> None:
        agreed = (self.agreed,) if isinstance(self.agreed, Question) else self.agreed
        if not isinstance(agreed, Sequence) or not agreed:
            raise GCFCPError(
                f"agreed={self.agreed!r:.60} is not a question: give Question(groups, score, ...), "
                "which the server then asks, or several of them"
            )
        for question in agreed:
            if not isinstance(question, Question):
                raise GCFCPError(
                    f"agreed={question!r:.60} is not a question: give Question(groups, score, ...)"
                )
        object.__setattr__(self, "agreed", tuple(agreed))
        object.__setattr__(self, "questions", checks.whole("questions", self.questions, 1))
        object.__setattr__(self, "audits", checks.whole("audits", self.audits, 1))
        if self.budget is not None:
            object.__setattr__(self, "budget", checks.at_least("budget", self.budget, 0))
            if any(question.epsilon is None for question in agreed):
                raise GCFCPError(
                    f"budget={self.budget:g} needs an epsilon in every agreed question: a summary "
                    "without noise has no bounded privacy loss"
                )
        if isinstance(self.absent, str):
            raise GCFCPError(f"absent={self.absent!r:.60} is not a list of groups: give a tuple")
        object.__setattr__(self, "absent", tuple(self.absent))
        known = list(dict.fromkeys(n for q in self._questions for n in q.groups.others))
        for name in self.absent:
            if name not in known:
                raise GCFCPError(
                    f"absent={name!r:.60} is not one of the groups {checks.listed(known)}: "
                    "give the names of groups that this site cannot have"
                )

    @property
    def _questions(self) -> tuple[Question, ...]:
        """The agreed questions."""
        assert isinstance(self.agreed, tuple)
        return self.agreed

    def absent_of(self, groups: Groups) -> tuple[str, ...]:
        """The groups of a family that this site cannot have, in the order of the family."""
        return tuple(name for name in groups.others if name in self.absent)

    def agreed_to(self, asked: Question) -> Question:
        """The agreed question that is asked, as the site wrote it; a `Refusal` if there is none.

        The site works with its own copy, so that nothing of the server's is used. The refusal names
        the first part that differs from the agreed question that is nearest. This tells the server
        something about the policy and nothing about the data.
        """
        nearest: tuple[str, object, object] | None = None
        for question in self._questions:
            first = next(differences(asked, question), None)
            if first is None:
                return question
            if nearest is None or _ORDER.index(first[0]) > _ORDER.index(nearest[0]):
                nearest = first
        assert nearest is not None
        what, theirs, ours = nearest
        raise Refusal(
            _CODES[what], f"{what} {theirs!r:.60} was asked for, but {ours!r:.60} is agreed"
        )

    def check_predictor(self, predictor: Predictor, agreed: Question) -> None:
        """Raise a `Refusal` unless the predictor is for the groups, score and model agreed on.

        Otherwise an audit would count how another score, which was never agreed on, lies to
        thresholds of the server's choice.
        """
        name, parameters = predictor.described()
        for what, theirs, ours in (
            ("groups", predictor.groups.fingerprint, agreed.groups.fingerprint),
            ("score", name, agreed.score_name),
            ("parameters", *_told(parameters, agreed.parameters)),
            ("model", predictor.provenance.get("model"), agreed.model),
        ):
            if theirs != ours:
                raise Refusal(
                    _CODES[what],
                    f"the predictor has {what} {theirs!r:.60}, but {ours!r:.60} is agreed",
                )


def _told(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> tuple[Any, Any]:
    """The parameters of a predictor's score and the agreed ones, to be compared.

    The predictor may name labels that the question does not name. Then the agreed ones are returned
    twice, because the labels of a site's table are compared when the audit is made.
    """
    return (ours, ours) if scores.alike(theirs, ours) else (dict(theirs), dict(ours))
