"""Noise for differential privacy: its law, what leaves a site, what is charged, and attacks."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import gcfcp
from gcfcp import ClientSummary, GCFCPError, Grid, Groups, Predictor, add, calibrate, summarize
from gcfcp.calibration import PROVED, plan, screen
from gcfcp.calibration.noisy import (
    GAMMAS,
    KAPPAS,
    MISLED,
    OUTLYING,
    NoiseCharge,
    charge_for,
    deviations,
    margin_of,
    mean_excess,
    outlying,
)
from gcfcp.noise import (
    Noise,
    imitated,
    scale_of,
    variance_of,
    with_noise,
)
from gcfcp.rounds import (
    Code,
    Ledger,
    Policy,
    Question,
    Records,
    Refusal,
    Site,
    answer_audit,
    answer_summary,
    question_of,
    spent,
)
from gcfcp.summary import counts_of, sensitivity_of

pytest.importorskip("opendp", reason="noise needs OpenDP (extra dp)")

GROUPS = Groups({"all": "TRUE", "f": "sex = 'F'", "old": "age >= 65"})
GRID = Grid.uniform(0, 4, 12)


def rows(n, seed=0):
    rng = np.random.default_rng([seed, n])
    membership = np.column_stack([np.ones(n, bool), rng.random(n) < 0.5, rng.random(n) < 0.3])
    return np.abs(rng.normal(size=n)) * (1 + membership[:, 1]), membership


def site(name="a", n=300, seed=0, epsilon=1.0, **options):
    options = {"grid": GRID, "score": "residual"} | options
    return summarize(*rows(n, seed), groups=GROUPS, client=name, epsilon=epsilon, **options)


# --- the law -------------------------------------------------------------------------------------


def probabilities(scale, most):
    """P(noise = x) for x from -most to most."""
    x = np.arange(-most, most + 1)
    a = math.exp(-1 / scale)
    return (1 - a) / (1 + a) * a ** np.abs(x)


@pytest.mark.parametrize("scale", [0.2, 1.0, 7.0])
def test_opendp_draws_the_law_that_the_server_charges(scale):
    """Both the site's draws and the server's copies have the frequencies of the formula."""
    n = 20_000
    secure = with_noise(np.zeros(n, dtype=np.int64), scale, 1, 1 / scale * (1 + 1e-12))
    copies = imitated(np.random.default_rng(0), scale, 1, (n,))
    for drawn in (secure, copies):
        assert abs(drawn.mean()) < 6 * math.sqrt(variance_of(scale) / n)
        for x, p in zip(range(-3, 4), probabilities(scale, 3), strict=True):
            assert abs((drawn == x).mean() - p) < 6 * math.sqrt(p * (1 - p) / n) + 1e-4


def test_sums_of_copies_have_the_variance_of_the_sum():
    drawn = imitated(np.random.default_rng(1), 2.0, 5, (40_000,))
    assert drawn.var() == pytest.approx(5 * variance_of(2.0), rel=0.05)
    noise = Noise.total([Noise.of(1.0, 2), Noise.of(0.5, 1), Noise.of(1.0, 1)])
    assert noise.terms == ((1.0, 1), (2.0, 2))
    assert noise.epsilon == 1.0
    assert noise.variance == pytest.approx(variance_of(1.0) + 2 * variance_of(2.0))
    assert Noise.from_values(noise.values) == noise


def test_a_scale_never_loses_more_than_epsilon():
    for epsilon in (0.1, 0.3, 1 / 3, 1.0, 7.0):
        for sensitivity in (1, 3, 7):
            scale = scale_of(epsilon, sensitivity)
            assert Fraction(scale) * Fraction(epsilon) >= sensitivity
            assert scale == pytest.approx(sensitivity / epsilon, rel=1e-12)


@pytest.mark.parametrize("epsilon", [0, -1, 1e-9, 1e6, math.inf, math.nan, "1"])
def test_an_epsilon_that_means_nothing_is_refused(epsilon):
    with pytest.raises(GCFCPError, match="epsilon="):
        site(epsilon=epsilon)


# --- what leaves a site --------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["atom", "group"])
def test_every_possible_cell_has_a_count(by):
    noisy = site(by=by, n=30)
    exact = site(by=by, n=30, epsilon=None)
    assert len(noisy.membership) == (4 if by == "atom" else 3)
    assert len(noisy.counts) == len(noisy.membership) * 13
    assert noisy.noise == Noise.of(1.0, 1 if by == "atom" else 3)
    assert noisy.n == 30
    assert (noisy.suppressed, noisy.uncovered) == (0, 0)
    assert not noisy.errors.any()
    assert not any(noisy.suppressed_groups)
    again = ClientSummary.from_bytes(noisy.to_bytes())
    assert again == noisy
    assert again.counts.tolist() == noisy.counts.tolist()
    assert not exact.errors.any()
    assert site(by=by, n=30).to_bytes() != noisy.to_bytes()  # Every call is a release of its own.


def test_negative_counts_are_written_and_read():
    noisy = site(n=3, epsilon=0.05)
    assert noisy.counts.min() < -20
    assert ClientSummary.from_bytes(noisy.to_bytes()) == noisy


def test_the_sensitivity_is_the_most_that_a_record_changes():
    """Adding any one record changes the exact vector by D in sum at most, and by D for some."""
    scores, membership = rows(40)
    for by in ("atom", "group"):
        before = counts_of(
            summarize(scores, membership, groups=GROUPS, client="a", grid=GRID, by=by)
        )
        most = 0
        for row in ([1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1]):
            for score in (0.1, 3.9, 99.0):
                after = counts_of(
                    summarize(
                        [*scores, score], np.vstack([membership, row]), groups=GROUPS, client="a",
                        grid=GRID, by=by,
                    )
                )  # fmt: skip
                most = max(most, int(np.abs(after - before)[1:].sum()))
        assert most == sensitivity_of(np.ones(3, bool), by)


def test_absent_groups_get_no_noise_and_lower_the_sensitivity():
    scores, membership = rows(40)
    membership[:, 2] = False
    noisy = summarize(
        scores, membership, groups=GROUPS, client="a", grid=GRID, epsilon=1, absent=["old"],
        by="group",
    )  # fmt: skip
    assert noisy.noise == Noise.of(1.0, 2)
    assert len(noisy.membership) == 2


def test_groups_of_sites_have_noise_in_the_own_site_only():
    groups = Groups({"all": "TRUE", "f": "sex = 'F'"}, sites=["a", "b"])
    scores, membership = rows(40)
    for by, number in (("atom", 2), ("group", 3)):
        noisy = summarize(
            scores, membership[:, :2], groups=groups, client="b", grid=GRID, epsilon=1, by=by
        )
        assert len(noisy.membership) == number
        assert not noisy.membership[:, 2].any()
        assert ClientSummary.from_bytes(noisy.to_bytes()) == noisy


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grid": None}, "needs a grid and min_count=1"),
        ({"min_count": 5}, "needs a grid and min_count=1"),
        ({"holdout": 0.3, "rng": np.random.default_rng(0)}, "does not go with holdout"),
    ],
)
def test_what_does_not_go_with_noise_is_refused(options, message):
    with pytest.raises(GCFCPError, match=message):
        site(**options)


def test_too_many_combinations_are_refused_with_a_remedy():
    groups = Groups([f"g{i}" for i in range(24)])
    with pytest.raises(GCFCPError, match=r"2\*\*24 combinations .* use by='group'"):
        summarize([1.0], np.ones((1, 24)), groups=groups, client="a", grid=GRID, epsilon=1)


def test_a_summary_that_leaves_a_cell_out_or_lies_about_its_noise_is_refused():
    noisy = site()
    for change in (
        {"noise": Noise(1.0, ((3.0, 1),))},
        {"noise": Noise(2.0, noisy.noise.terms)},
        {"suppressed": 3},
        {"uncovered": 1},
        {"membership": noisy.membership[:3], "start": noisy.start[:4], "errors": noisy.errors[:3],
         "values": noisy.values[:39], "counts": noisy.counts[:39]},
    ):  # fmt: skip
        with pytest.raises(GCFCPError):
            replace(noisy, **change)


def test_what_a_person_reads():
    text = str(site().disclosure)
    assert "52 counts" in text
    assert "factor e^1" in text
    assert "whether it has records or not" in text


# --- attacks -------------------------------------------------------------------------------------


COARSE = Grid([1.0, 2.0])


def released(scores, membership, times, by, epsilon):
    """Many releases of the same records, (times, places), without n, and the exact counts."""
    exact = summarize(scores, membership, groups=GROUPS, client="a", grid=COARSE, by=by)
    vector = counts_of(exact)[1:]
    noise = Noise.of(epsilon, sensitivity_of(np.ones(3, bool), by))
    many = with_noise(np.tile(vector, times), noise.scale, 1, 1 / noise.scale * (1 + 1e-9))
    return many.reshape(times, -1), vector, noise


@pytest.mark.parametrize("by", ["atom", "group"])
def test_the_best_test_between_two_neighbours_does_not_beat_e_to_epsilon(by):
    """The likelihood ratio is the best test. Its power is at most e^epsilon times its level."""
    scores, membership = rows(30)
    one = np.vstack([membership, [True, True, True]]), [*scores, 1.5]
    times, epsilon = 2000, 1.0
    without, v0, noise = released(scores, membership, times, by, epsilon)
    with_it, v1, _ = released(one[1], one[0], times, by, epsilon)

    def ratio(found):
        """log P(found | with) - log P(found | without)"""
        return (np.abs(found - v0) - np.abs(found - v1)).sum(axis=1) / noise.scale

    low, high = ratio(without), ratio(with_it)
    assert max(low.max(), high.max()) <= epsilon * (1 + 1e-9)
    assert min(low.min(), high.min()) >= -epsilon * (1 + 1e-9)
    for cut in np.linspace(-epsilon, epsilon, 9):
        level, power = (low >= cut).mean(), (high >= cut).mean()
        slack = 5 * math.sqrt(math.e**epsilon / times)
        assert power <= math.exp(epsilon) * level + slack
        assert 1 - level <= math.exp(epsilon) * (1 - power) + slack
    # The test is a real one: it tells the two apart as well as epsilon allows.
    assert (high >= epsilon * 0.999).mean() > 1.5 * (low >= epsilon * 0.999).mean()


def test_a_record_of_an_otherwise_empty_atom_does_not_show():
    """The cells, the size of the file within its noise, and the header are those without it."""
    membership = np.tile([True, False, False], (40, 1))
    scores = np.linspace(0, 3, 40)
    rare = np.vstack([membership[:-1], [True, True, True]])
    both = []
    for rows_ in (membership, rare):
        noisy = summarize(scores, rows_, groups=GROUPS, client="a", grid=GRID, epsilon=0.5)
        both.append(noisy)
    one, two = both
    assert one.membership.tolist() == two.membership.tolist()
    assert one.start.tolist() == two.start.tolist()
    assert (one.n, one.noise, one.members) == (two.n, two.noise, two.members)
    public = ("suppressed", "suppressed_groups", "uncovered", "absent", "strangers", "library")
    assert all(getattr(one, name) == getattr(two, name) for name in public)


def test_records_in_no_group_are_not_told():
    groups = Groups(["f", "old"])
    scores, membership = rows(40)
    membership = membership[:, 1:] & False
    with pytest.warns(gcfcp.GCFCPWarning, match="belong to no group"):
        noisy = summarize(scores, membership, groups=groups, client="a", grid=GRID, epsilon=1)
    assert noisy.uncovered == 0
    assert noisy.n == 40
    assert len(noisy.membership) == 3


# --- what the server charges ---------------------------------------------------------------------


def test_alpha_is_divided_between_records_and_noise():
    charge = NoiseCharge.of(Fraction(1, 10), Fraction(1, 100), 1.0)
    chance = Fraction(1, 10**6) + Fraction(1, 10**5)
    assert (MISLED, OUTLYING) == (1e-6, 1e-5)
    assert charge.alpha + charge.gamma + chance == Fraction(1, 10)
    assert NoiseCharge.of(Fraction(1, 1000), Fraction(1, 100), 1.0) is None


LAWS = [((1.0, 1.0, 4),), ((1.0, 3.0, 2), (0.25, 1.0, 5)), ((1.0, 0.2, 1),)]


def errors(law, cells, alpha, times):
    """Fresh copies of E_j, (times, B), and of S, (times,)."""
    rng = np.random.default_rng(7)
    noise = sum(rate * imitated(rng, scale, n, (times, cells + 1)) for rate, scale, n in law)
    below, a = np.cumsum(noise, axis=1), float(alpha)
    return a * below[:, :-1] - (1 - a) * (below[:, -1:] - below[:, :-1]), below[:, -1]


@pytest.mark.parametrize("law", LAWS)
def test_the_mean_excess_of_fresh_noise_is_below_its_bound(law):
    """And not far below: the bound is not wasteful."""
    alpha, cells, times = Fraction(9, 100), 20, 20_000
    error, total = errors(law, cells, alpha, times)
    sd = deviations(law, cells, alpha)
    assert error.std(axis=0) == pytest.approx(sd, rel=0.1)
    bounds = mean_excess(law, cells, alpha)
    assert list(bounds) == sorted(bounds, reverse=True)
    for kappa, bound in zip(KAPPAS, bounds, strict=True):
        most = np.maximum((error - kappa * sd).max(axis=1), 0)
        assert most.mean() <= bound
        if kappa < 2:
            assert bound < most.mean() + 0.1 * sd.max()
    s = outlying(law, cells)
    assert (total > s).mean() <= 10 * OUTLYING
    assert s < 6 * total.std() + 12 * law[0][1]


def test_a_heavier_group_is_charged_less_and_one_that_drowns_is_infinite():
    charge = NoiseCharge.of(Fraction(1, 10), Fraction(1, 50), 1.0)
    law, weights = LAWS[0], [-5.0, 10.0, 60.0, 100.0, 200.0, 400.0, 1000.0]
    margins = [margin_of(law, 20, charge, w) for w in weights]
    assert np.isposinf(margins[0]).all()
    assert np.isposinf(margins[1]).all()
    assert all((b <= a).all() for a, b in itertools.pairwise(margins))
    assert not margins[-1].any()
    assert np.isfinite(margins[3]).all()
    # In the units of the mixture everything is smaller by the same factor.
    small = margin_of(((1 / 500, 1.0, 4),), 20, charge, 100 / 500)
    assert small * 500 == pytest.approx(margins[3])
    assert (margin_of((), 20, charge, 1.0) == 0).all()


def test_gamma_follows_from_public_numbers():
    """The largest that is at most half of the largest deviation by the weight of a quarter."""
    parts = [site("a", 400, 0), site("b", 900, 1, epsilon=2.0), site("c", 100, 2, epsilon=None)]
    shares = [Fraction(4, 14), Fraction(9, 14), Fraction(1, 14)]
    cell = 2 * (variance_of(1.0) + variance_of(0.5)) / 1400**2  # Half of the four atoms.
    wanted = 0.5 * math.sqrt(12 * cell) / 0.25
    found = charge_for(parts, shares, Fraction(1, 5))
    assert found.gamma == max(g for g in GAMMAS if g <= wanted)
    assert found.epsilon == 2.0
    # Not more than half of alpha, and at least the least.
    assert charge_for([site("a", 20)], [Fraction(1)], Fraction(1, 50)).gamma == Fraction(1, 100)
    assert charge_for([site("a", 10**5)], [Fraction(1)], Fraction(1, 5)).gamma == GAMMAS[0]


@pytest.mark.parametrize("by", ["atom", "group"])
def test_levels_follow_the_formula(by):
    """An oracle in exact fractions: the first edge at which Z plus noise reaches c + q."""
    parts = [site("a", 400, 0, by=by), site("b", 900, 1, by=by, epsilon=2.0)]
    made = calibrate(parts, 0.2, mixture={"a": 0.5, "b": 0.5})
    problem, charge = made.problem, made.problem.noise
    inner = charge.alpha
    omega = [Fraction(1, 2) / s.n for s in parts]
    inside = problem.inside
    rate = [
        Fraction(1, 2) / (s.n + 1) if t else w for s, w, t in zip(parts, omega, inside, strict=True)
    ]
    within = sum(r for r, t in zip(rate, inside, strict=True) if t)
    outside = max((w for w, t in zip(omega, inside, strict=True) if not t), default=0)
    c = (1 - inner) * within + outside
    for g in range(3):
        law = {}
        for s, r in zip(parts, rate, strict=True):
            key = float(r), s.noise.scale
            law[key] = law.get(key, 0) + int(s.membership[:, g].sum())
        weight = sum(
            float(r) * int(s.counts.reshape(-1, 13)[s.membership[:, g]].sum())
            for s, r in zip(parts, rate, strict=True)
        )
        law = tuple((r, s, n) for (r, s), n in sorted(law.items()))
        margin = margin_of(law, 12, charge, weight - float(max(rate)))
        level = math.inf
        for j in reversed(range(12)):
            z = Fraction(0)
            for s, r in zip(parts, rate, strict=True):
                counts = s.counts.reshape(-1, 13)[s.membership[:, g]].sum(axis=0)
                z += r * (int(counts[: j + 1].sum()) - (1 - inner) * int(counts.sum()))
            if float(z - c) >= margin[j]:
                level = GRID.upper_edges[j]
        (found,) = {r.threshold for r in made.atoms if r.groups == (GROUPS.names[g],)} or {
            made.threshold_table.source.by_group[g]
        }
        assert found == level


def test_noise_only_raises_levels_of_the_same_counts():
    exact = site("a", 3000, epsilon=None, by="group")
    noisy = site("a", 3000, by="group", epsilon=10.0)
    same = replace(noisy, counts=np.concatenate([
        counts_of(exact)[1:].reshape(3, -1)[g] for g in (2, 1, 0)
    ]))  # fmt: skip
    plain, charged = calibrate([exact], 0.1), calibrate([same], 0.1)
    for one, two in zip(plain.atoms, charged.atoms, strict=True):
        assert two.threshold >= one.threshold


def test_the_guarantee_is_proved_and_says_what_privacy_took():
    made = calibrate([site("a", 4000), site("b", 4000, 1)], 0.1)
    assert made.rule == "max"
    for g in made.guarantee:
        assert g.certified_status == PROVED
        assert g.certified == 0.9
        assert g.theorem.startswith("theorem 4")
        assert 0 < g.privacy < 0.1
        assert g.epsilon == 1.0
    found = plan([site("a", 4000), site("b", 4000, 1)], 0.1)
    assert "noise of epsilon=1 costs this much coverage" in str(found)
    assert found.unseen_site == ()
    predictor = Predictor(gcfcp.scores.AbsoluteResidual(), made)
    again = Predictor.from_json(predictor.to_json())
    assert again.thresholds(np.eye(3, dtype=bool) | [True, False, False]).tolist() == (
        predictor.thresholds(np.eye(3, dtype=bool) | [True, False, False]).tolist()
    )


@pytest.mark.parametrize("by", ["atom", "group"])
def test_a_plan_says_before_the_round_what_an_epsilon_costs(by):
    plain = [site("a", 4000, epsilon=None, by=by), site("b", 2000, 1, epsilon=None, by=by)]
    noisy = [site("a", 4000, by=by), site("b", 2000, 1, by=by)]
    planned = plan(plain, 0.1, epsilon=1.0)
    happened = calibrate(noisy, 0.1).guarantee
    for before, after in zip(planned.groups, happened, strict=True):
        assert before.privacy == pytest.approx(after.privacy, rel=0.5)
    assert "noise of epsilon=1 would cost this much coverage: all 0.0" in str(planned)
    dearer = plan(plain, 0.1, epsilon=0.1)
    assert all(d.privacy > p.privacy for d, p in zip(dearer.groups, planned.groups, strict=True))
    assert all(g.privacy == 0 for g in plan(plain, 0.1).groups)
    with pytest.raises(GCFCPError, match="needs counts on a grid without noise"):
        plan(noisy, 0.1, epsilon=1.0)


def test_too_much_noise_is_infinite_with_a_reason():
    with pytest.warns(gcfcp.GCFCPWarning, match=r"noise of epsilon=0\.01: a larger epsilon"):
        made = calibrate([site("a", 200, epsilon=0.01)], 0.1)
    assert np.isposinf([r.threshold for r in made.atoms]).any()
    found = plan([site("a", 200, epsilon=0.01)], 0.1)
    assert not found.finite
    assert "a larger epsilon" in found.advice[0]
    assert "INFINITE, and noise costs" in str(found)


def test_what_is_not_proved_for_noise_is_refused():
    parts = [site("a", 4000), site("b", 4000, 1)]
    for options, message in [
        ({"rule": "simultaneous"}, "'simultaneous' is not possible with noise"),
        ({"confidence": 0.9}, "confidence=0.9 is not possible with noise"),
        ({"shape": gcfcp.Shape(GROUPS, (0, 1, 0))}, "shape cannot be subtracted from noisy"),
        ({"merge": "recompress"}, "not possible with a grid"),
    ]:
        with pytest.raises(GCFCPError, match=message):
            calibrate(parts, 0.1, **options)
    with pytest.raises(GCFCPError, match="too small for noise"):
        calibrate(parts, 0.0002)
    with pytest.raises(GCFCPError, match="cannot be made from counts with noise"):
        gcfcp.fit_shape(parts, 0.1)
    with pytest.raises(GCFCPError, match="min_count=5 beside sites with noise"):
        calibrate([parts[0], site("c", 900, 2, epsilon=None, min_count=5)], 0.1)
    with pytest.raises(GCFCPError, match="cannot be told from counts with noise"):
        calibrate(parts, 0.1).unseen_site()
    assert not any(s.flagged for s in screen(parts))
    made = calibrate(parts, 0.1)
    assert made.without("a").correction.inside == ("b",)
    assert made.retarget(alpha=0.2).alpha == 0.2
    assert len(made.influence()) == 6


# --- sums ----------------------------------------------------------------------------------------


def test_noisy_summaries_add_up_with_their_noise():
    parts = [site(f"s{k}", 500, k) for k in range(3)]
    whole = add(parts)
    assert whole.noise == Noise(1.0, ((1.0, 3),))
    assert whole.counts.tolist() == sum(s.counts for s in parts).tolist()
    assert ClientSummary.from_bytes(whole.to_bytes()) == whole
    one, two = calibrate(parts, 0.1), calibrate([whole], 0.1, aggregates=[whole.client])
    assert [r.threshold for r in one.atoms] == [r.threshold for r in two.atoms]
    with pytest.raises(GCFCPError, match="only if all sites add noise"):
        add([parts[0], site("z", 50, epsilon=None)])


# --- a budget at the site ------------------------------------------------------------------------


def question(epsilon=1.0, **options):
    options = {"grid": GRID, "min_count": 1} | options
    return Question(GROUPS, "residual", epsilon=epsilon, **options)


def asked_site(tmp_path, agreed, budget, dataset="2026Q4", **options):
    return Site(
        "a",
        Policy(agreed, questions=9, budget=budget, **options),
        Ledger(tmp_path, sync=False),
        Records(dataset, lambda _: rows(60)),
    )


def test_the_ledger_adds_up_epsilons_and_refuses_beyond_the_budget(tmp_path):
    agreed = [question(1.0), question(0.5), question(0.75, by="group")]
    here = asked_site(tmp_path, agreed, budget=1.5)
    first = answer_summary(here, agreed[0])
    assert ClientSummary.from_bytes(first).noise.epsilon == 1.0
    assert answer_summary(here, agreed[0]) == first  # The same bytes, which cost nothing.
    with pytest.raises(Refusal) as refused:
        answer_summary(here, agreed[2])
    assert refused.value.code == Code.BUDGET_USED_UP
    assert "epsilon 1 of 1.5 is spent" in refused.value.detail
    answer_summary(here, agreed[1])
    assert spent(here.ledger.entries()) == 1.5
    assert answer_summary(here, agreed[0]) == first
    # Other records have a budget of their own.
    answer_summary(asked_site(tmp_path, agreed, 1.5, "2027Q1"), agreed[2])


def test_what_was_told_without_noise_leaves_no_budget(tmp_path):
    plain = Question(GROUPS, "residual", min_count=1)
    without = Site(
        "a", Policy(plain), Ledger(tmp_path, sync=False), Records("2026Q4", lambda _: rows(60))
    )
    answer_summary(without, plain)
    with pytest.raises(Refusal) as refused:
        answer_summary(asked_site(tmp_path, question(), budget=100), question())
    assert refused.value.code == Code.BUDGET_USED_UP


def test_an_audit_tells_exact_counts_and_the_ledger_says_so(tmp_path, capsys):
    """The documentation says that audits have no noise. No line may say that they lose nothing."""
    from gcfcp.cli import entry as cli

    agreed, lone = question(), np.arange(60) == 7
    here = replace(
        asked_site(tmp_path / "ledger", agreed, budget=1.0),
        audit=Records("labelled", lambda *_: (~lone, np.column_stack([lone | True, lone, lone]))),
    )
    summary = ClientSummary.from_bytes(answer_summary(here, agreed))
    predictor = Predictor("residual", calibrate([summary, site("b", 4000)], 0.2))
    told = gcfcp.Audit.from_bytes(answer_audit(here, agreed, predictor.to_json().encode()))
    assert (told.total.tolist(), told.covered.tolist()) == ([60, 1, 1], [59, 0, 0])
    by_name = {e.asked.dataset: e for e in here.ledger.entries()}
    assert spent([by_name["2026Q4"]]) == 1.0
    assert spent([by_name["labelled"]]) == math.inf
    cli.run(["ledger", str(tmp_path / "ledger")])
    shown = capsys.readouterr().out
    assert "data set 2026Q4: epsilon 1 in all" in shown
    assert "data set labelled: told without noise: no epsilon bounds it" in shown


def test_the_policy_pins_grid_and_epsilon(tmp_path):
    here = asked_site(tmp_path, question(), budget=5)
    for asked, code in [
        (question(2.0), Code.EPSILON_DIFFERS),
        (question(None), Code.EPSILON_DIFFERS),
        (question(grid=Grid.uniform(0, 4, 13)), Code.GRID_DIFFERS),
        (Question(GROUPS, "residual", min_count=1), Code.DELTA_DIFFERS),
    ]:
        with pytest.raises(Refusal) as refused:
            answer_summary(here, asked)
        assert refused.value.code == code
    with pytest.raises(GCFCPError, match="needs an epsilon in every agreed question"):
        asked_site(tmp_path, [question(), question(None)], budget=5)
    with pytest.raises(GCFCPError, match="needs a grid and min_count=1"):
        question(min_count=10)


def test_a_question_with_noise_is_the_same_after_json_and_from_settings(tmp_path):
    one = question()
    assert Question.from_json(one.to_json()).to_json() == one.to_json()
    (tmp_path / "groups.toml").write_text('all = "TRUE"\nf = "sex = \'F\'"\n')
    found = question_of(
        {"groups": str(tmp_path / "groups.toml"), "score": "residual", "min-count": 1,
         "grid": "uniform:0,4,12", "epsilon": 0.5}
    )  # fmt: skip
    assert (found.grid, found.epsilon, found.by, found.delta) == (GRID, 0.5, "atom", None)
    assert Question.of_summary(site()).epsilon == 1.0
