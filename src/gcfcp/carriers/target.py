"""What to calibrate for, and on which terms answers are gathered.

What is wrong with either, or with both together, is said before any client is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gcfcp import checks
from gcfcp.calibration import CORRECTIONS, MAX_ATOMS, MERGES, RULES, Admission, Mixture
from gcfcp.calibration import mixture as mixtures
from gcfcp.errors import GCFCPError
from gcfcp.rounds import Question
from gcfcp.summary import signatures


@dataclass(frozen=True)
class Target:
    """What to calibrate for, and what to do with the result.

    alpha, mixture, merge, rule, correction, confidence: As in `gcfcp.calibrate`. The mixture
    "proportional" lets every record count the same, as if all records lay in one place, and
    "uniform" lets every site count the same, however few records it has.
    coreset: Whether the predictor carries the pooled centroids, as in `Predictor.save`. If there
    is an audit, the clients get them with the predictor.
    audit: Whether the clients are asked for an audit of the predictor afterwards. It is about the
    predictor's mixture.
    max_share, allow_share, max_atoms: As in `gcfcp.calibrate`.
    """

    alpha: float = 0.1
    mixture: Mixture = "proportional"
    merge: str = "pool"
    rule: str | None = None
    correction: str = "sharp"
    confidence: float | None = None
    coreset: bool = False
    audit: bool = False
    max_share: float | None = None
    allow_share: tuple[str, ...] = ()
    max_atoms: int | None = MAX_ATOMS

    def __post_init__(self) -> None:
        # What is wrong here must be said before the clients are asked, and not after it.
        object.__setattr__(self, "alpha", float(checks.alpha(self.alpha)))
        checks.choice("merge", self.merge, *MERGES)
        if self.rule is not None:
            checks.choice("rule", self.rule, *RULES)
        if self.confidence is not None:
            checks.probability("confidence", self.confidence)
        checks.choice("correction", self.correction, *CORRECTIONS)
        mixtures.check(self.mixture)
        Admission.of((), None, self.max_share, self.allow_share, self.max_atoms)


@dataclass(frozen=True)
class Terms:
    """The terms on which answers are gathered.

    deadline: The seconds after which nothing more is waited for.
    min_clients: If fewer clients answer, the round fails.
    missing: What happens if a client is missing: "fail" ends the round, "present" goes on with
    those that answered.
    clients: The roster: it maps the name of each client to the key of its node, as the carrier
    gives it (over Flower, the fingerprint of a public key). None believes the name that a node
    gives itself.
    max_bytes: The most bytes that one reply may have.
    aggregates: The summaries that may stand for several clients: their names, or a mapping from
    each name to the number of its sites, as in `gcfcp.calibrate`.
    known_keys: The public signing keys of the clients (`gcfcp.summary.signatures.load_known`). With
    them a secure sum is signed; the sites must have the same keys.

    A secure sum has up to five steps, and the deadline is that of each.
    """

    deadline: float = 300
    min_clients: int = 1
    missing: str = "fail"
    clients: Mapping[str, str] | None = None
    max_bytes: int = 64 * 2**20
    aggregates: Iterable[str] | Mapping[str, int | None] = ()
    known_keys: signatures.KnownKeys | None = None

    def __post_init__(self) -> None:
        _ = self.admission  # What is wrong in it is said before anyone is asked.
        if not checks.is_number(self.deadline) or not 0 < self.deadline <= 7 * 24 * 3600:
            raise GCFCPError(
                f"deadline={self.deadline} is not a number of seconds above 0, up to 604,800 (a "
                "week)"
            )
        object.__setattr__(self, "deadline", checks.as_float(self.deadline))
        object.__setattr__(self, "min_clients", checks.whole("min_clients", self.min_clients, 1))
        object.__setattr__(self, "max_bytes", checks.whole("max_bytes", self.max_bytes, 1))
        checks.choice("missing", self.missing, "fail", "present")
        if self.clients is not None and self.min_clients > len(self.clients):
            raise GCFCPError(
                f"min_clients={self.min_clients}, but the roster has {len(self.clients)} clients: "
                "give a smaller number"
            )

    @property
    def admission(self) -> Admission:
        """What is let in."""
        return Admission.of(self.aggregates)


def check_mixture(target: Target, terms: Terms) -> None:
    """Refuse a mixture with weights that does not name the clients of the roster.

    The mixture "uniform" needs to know how many sites are behind an aggregate. All this can be
    known before anyone is asked.
    """
    unknown = [name for name, sites in terms.admission.aggregates.items() if sites is None]
    if unknown and (target.mixture == "uniform" or target.correction == "paper"):
        raise GCFCPError(
            f"mixture 'uniform' and correction 'paper' count an aggregate as its sites: say how "
            f'many {unknown[0]!r} has, such as aggregates = "{unknown[0]}=3"'
        )
    if terms.clients is None or not isinstance(target.mixture, Mapping):
        return
    odd = sorted(set(target.mixture) ^ set(terms.clients))
    if odd:
        raise GCFCPError(
            f"the mixture and the roster differ in {', '.join(map(repr, odd[:5]))}: both must name "
            "the same clients"
        )


def check_sum(question: Question, target: Target, terms: Terms) -> None:
    """Refuse what a secure sum cannot be calibrated or audited for, before anyone is asked.

    Nobody knows how many records a site has, so only the proportional mixture is possible. An audit
    would tell the counts of every single site.
    """
    if not question.secure:
        return
    wrong = {
        f"mixture={target.mixture!r:.60}": target.mixture != "proportional",
        f"correction={target.correction!r}": target.correction != "sharp",
        f"max_share={target.max_share}": target.max_share is not None,
        "audit=True": target.audit,
        "an aggregate": bool(terms.admission.aggregates),
    }
    for what, given in wrong.items():
        if given:
            raise GCFCPError(
                f"{what} is not possible with a secure sum, in which nothing is known about a "
                "single site: leave it out"
            )
    if question.makers is not None and terms.known_keys is None:
        raise GCFCPError(
            f"epsilon={question.epsilon:g} in a secure sum needs the keys of all sites, because "
            "only a signed sum keeps the noise in it: give known_keys (known-keys), or leave "
            "epsilon or secure out"
        )


def check_rule(question: Question, target: Target) -> None:
    """Refuse a rule that the summaries could not be calibrated with, before anyone is asked."""
    if question.epsilon is not None and (
        target.rule == "simultaneous" or target.confidence is not None
    ):
        raise GCFCPError(
            f"epsilon={question.epsilon:g} goes with rule='max' and without confidence, for which "
            "coverage with noise is proved: leave rule and confidence out"
        )
    if target.rule == "simultaneous" and (question.by == "group" or target.confidence is not None):
        raise GCFCPError(
            "rule='simultaneous' needs summaries by atom and no confidence: ask with by='atom', or "
            "use rule='max'"
        )
