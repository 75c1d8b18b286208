"""Every function applies the same rules to its arguments.

A number may be any real number of Python or NumPy. A function that takes alpha, delta, min_count,
eta or confidence accepts it in all of these types, gives the same result for each type, and refuses
the same values in the same words.
"""

import json
import math
import re
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gcfcp
from gcfcp import GCFCPError, checks

GROUPS = gcfcp.Groups(["all", "some"])
RNG = np.random.default_rng(0)
SCORES = RNG.random(60)
MEMBERSHIP = np.column_stack([np.ones(60, bool), RNG.random(60) < 0.5])

TENTHS = [0.1, Fraction(1, 10), np.float64(0.1), np.float32(0.1), np.longdouble(0.1)]
FIVES = [5, Fraction(5), np.int64(5), np.int8(5), np.uint16(5)]
DELTAS = [250, 250.0, Fraction(250), np.float32(250), np.int32(250)]
NO_NUMBERS = ["x", None, True, np.True_, 1j, [0.1], np.array([0.1]), Decimal("0.1"), {}]


def summary(**options):
    return gcfcp.summarize(SCORES, MEMBERSHIP, groups=GROUPS, client="a", **options)


def audited(**options):
    return gcfcp.audit(SCORES < 0.9, MEMBERSHIP, groups=GROUPS, client="a", **options)


# --- numbers of every type, everywhere ------------------------------------------------------------


@pytest.mark.parametrize("alpha", TENTHS)
def test_alpha_is_taken_in_every_type(alpha):
    expected = gcfcp.calibrate([summary()], 0.1)
    found = gcfcp.calibrate([summary()], alpha)
    assert found.alpha == 0.1
    assert found.threshold_table.alpha == Fraction(1, 10)
    assert found.atoms == expected.atoms
    assert expected.retarget(alpha=alpha).atoms == expected.atoms
    assert gcfcp.plan([summary()], alpha).alpha == 0.1
    assert audited(alpha=alpha).alpha == 0.1
    assert gcfcp.merge_audits([audited()], alpha=alpha).alpha == 0.1
    assert gcfcp.methods.fedcp([(SCORES, MEMBERSHIP)], alpha).threshold_table.alpha == Fraction(
        1, 10
    )


@pytest.mark.parametrize("tenth", TENTHS)
def test_eta_confidence_and_margin_are_taken_in_every_type(tenth):
    expected = gcfcp.calibrate([summary()], 0.1, eta=0.1)
    assert gcfcp.calibrate([summary()], 0.1, eta=tenth).guarantee == expected.guarantee
    report = gcfcp.merge_audits([audited()], alpha=0.2, confidence=tenth, margin=tenth)
    assert report == gcfcp.merge_audits([audited()], alpha=0.2, confidence=0.1, margin=0.1)


@pytest.mark.parametrize("five", FIVES)
def test_min_count_is_taken_in_every_type(five):
    assert summary(min_count=five).to_bytes() == summary(min_count=5).to_bytes()
    assert audited(min_count=five).to_bytes() == audited(min_count=5).to_bytes()


@pytest.mark.parametrize("delta", DELTAS)
def test_delta_is_taken_in_every_type(delta):
    assert summary(delta=delta).to_bytes() == summary(delta=250).to_bytes()
    assert gcfcp.TDigest.from_values(SCORES, delta) == gcfcp.TDigest.from_values(SCORES, 250)
    builder = gcfcp.DigestBuilder(delta)
    builder.add(SCORES)
    assert builder.digest() == gcfcp.TDigest.from_values(SCORES, 250)
    merged = gcfcp.merge([summary()], "region", delta)
    assert merged.to_bytes() == gcfcp.merge([summary()], "region", 250).to_bytes()
    again = gcfcp.calibrate([summary()], 0.1, merge="recompress", delta=delta)
    assert again.atoms == gcfcp.calibrate([summary()], 0.1, merge="recompress", delta=250).atoms


@pytest.mark.parametrize("weight", [0.5, Fraction(1, 2), np.float32(0.5), np.float16(0.5)])
def test_weights_of_a_mixture_are_taken_in_every_type(weight):
    other = gcfcp.summarize(SCORES[:30], MEMBERSHIP[:30], groups=GROUPS, client="b")
    found = gcfcp.calibrate([summary(), other], 0.2, {"a": weight, "b": weight})
    assert found.shares == {"a": 0.5, "b": 0.5}
    assert found.atoms == gcfcp.calibrate([summary(), other], 0.2, "uniform").atoms


TAKERS = {
    "alpha": [
        lambda x: gcfcp.calibrate([summary()], x),
        lambda x: gcfcp.plan([summary()], x),
        lambda x: gcfcp.merge_audits([audited()], alpha=x),
        lambda x: gcfcp.methods.split_cp([(SCORES, MEMBERSHIP)], x),
    ],
    "eta": [lambda x: gcfcp.calibrate([summary()], 0.1, eta=x)],
    "confidence": [lambda x: gcfcp.merge_audits([audited()], alpha=0.1, confidence=x)],
    "delta": [
        lambda x: summary(delta=x),
        lambda x: gcfcp.TDigest.from_values(SCORES, delta=x),
        lambda x: gcfcp.DigestBuilder(x),
    ],
    "min_count": [lambda x: summary(min_count=x), lambda x: audited(min_count=x)],
}


@pytest.mark.parametrize("name", TAKERS)
@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
def test_what_is_no_number_is_refused_by_name_in_one_line(name, value):
    for take in TAKERS[name]:
        if value is None and take is TAKERS["alpha"][2]:
            continue  # None means the alpha that the audits state.
        with pytest.raises(GCFCPError) as refused:
            take(value)
        assert str(refused.value).startswith(f"{name}=")
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["alpha", "eta", "confidence"])
@pytest.mark.parametrize(
    "value", [0, 1, -0.1, 1.2, math.nan, math.inf, Fraction(3, 2), np.int64(1)]
)
def test_probabilities_lie_between_0_and_1(name, value):
    for take in TAKERS[name]:
        with pytest.raises(GCFCPError, match=rf"^{name}=.* is not in \(0, 1\)$"):
            take(value)


# --- the rules themselves -------------------------------------------------------------------------


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_a_float_stands_for_its_simplest_fraction(numerator, denominator):
    number = Fraction(numerator, denominator)
    found = checks.rational(float(number))
    assert float(found) == float(number)
    assert found.denominator <= denominator
    assert checks.rational(number) is number


def test_a_float_that_no_simple_fraction_equals_stands_for_itself():
    assert checks.rational(math.pi) == Fraction(math.pi)
    assert checks.rational(2.0**-60) == Fraction(1, 2**60)


def test_narrow_floats_count_as_what_they_print():
    assert checks.as_float(np.float32(0.1)) == 0.1
    assert checks.as_float(np.float16(0.3)) == 0.3
    assert checks.rational(np.float32(0.7)) == Fraction(7, 10)


def test_whole_numbers_have_both_their_limits():
    assert checks.whole("x", 3, 3) == 3
    assert checks.whole("x", 2**53 - 1) == 2**53 - 1
    assert type(checks.whole("x", np.int64(7))) is int
    for wrong in (2, 3.0, Fraction(7, 2), -1, 2**53, math.inf, True):
        with pytest.raises(GCFCPError, match="x="):
            checks.whole("x", wrong, 3)


def test_counts_of_a_file_are_plain_integers():
    assert checks.count("n", 0) == 0
    for wrong in (-1, 2**53, 1.0, np.int64(1), True, None, "1"):
        with pytest.raises(GCFCPError, match="n="):
            checks.count("n", wrong)


def test_shares_include_0_and_not_1():
    assert checks.share("margin", 0) == 0.0
    assert checks.share("margin", np.float32(0.3)) == 0.3
    for wrong in (1, -0.1, math.nan, None):
        with pytest.raises(GCFCPError, match=r"margin=.* is not in \[0, 1\)"):
            checks.share("margin", wrong)


def test_finite_numbers_from_a_least_one_on():
    assert checks.at_least("clip", 1, 1) == 1.0
    for wrong in (0.999, math.inf, -math.inf, math.nan, "1", 10**400):
        with pytest.raises(GCFCPError, match=r"clip=.* is not a finite number of at least 1: more"):
            checks.at_least("clip", wrong, 1, "more")


def test_numbers_of_numpy_raise_no_warning_of_its_own():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in (np.float16(250), np.float32(250), np.longdouble(250), np.int8(25)):
            assert checks.delta(number) == float(number)


def test_a_choice_names_what_there_is():
    assert checks.choice("merge", "pool", "pool", "recompress") == "pool"
    with pytest.raises(GCFCPError, match="merge='Pool' is neither 'pool' nor 'recompress'"):
        checks.choice("merge", "Pool", "pool", "recompress")
    with pytest.raises(GCFCPError, match="rule=3 is not one of a, b, c"):
        checks.choice("rule", 3, "a", "b", "c")


def test_names_are_printable_and_not_endless():
    assert checks.name("client", "Zürich 7") == "Zürich 7"
    assert checks.name("client", "x" * 200) == "x" * 200
    for wrong in ("", "  ", "x" * 201, "a\tb", "\u202eevil", "a\u00a0b", 7, None, b"a"):
        with pytest.raises(GCFCPError, match=r"client=.* is not a name"):
            checks.name("client", wrong)


def test_names_of_groups_may_hold_what_is_not_printable_but_no_control_characters():
    assert checks.group_name_problem("over\u00a065") is None
    assert checks.group_name_problem("x" * 200) is None
    for wrong, why in {
        "": "empty",
        " \n": "empty",
        "a\nb": "control",
        "a\u2028b": "control",
        "\ud800": "UTF-8",
        "x" * 201: "201 characters",
    }.items():
        assert why in checks.group_name_problem(wrong)
    assert "not a string" in checks.group_name_problem(7)


def test_scores_are_numbers_or_infinity():
    assert checks.scores("scores", [1, 2.5, math.inf]).tolist() == [1.0, 2.5, math.inf]
    masked = np.ma.MaskedArray([1.0, 2.0], mask=[False, True])
    for wrong, why in (
        ([1.0, math.nan], "1 of 2 scores are NaN, the first in row 2"),
        ([-math.inf, 1.0, -math.inf], "2 of 3 scores are -inf, the first in row 1"),
        (masked, "1 of 2 scores are NaN"),
        ([None, 1.0], "scores are NaN"),
        (["1"], "cannot be read as numbers"),
        ([1j], "cannot be read as numbers"),
        ([[1.0]], "has shape"),
        ([], "is empty"),
    ):
        with pytest.raises(GCFCPError, match=why):
            checks.scores("scores", wrong)
    with pytest.raises(GCFCPError, match="row 12"):
        checks.refuse_unusable("scores", np.array([0.0, math.nan]), 10)


# --- what is stored is plain ----------------------------------------------------------------------


def test_numbers_of_every_type_can_be_saved(tmp_path):
    """A calibration keeps what it was given in a form that a file can hold."""
    other = gcfcp.summarize(SCORES[:30], MEMBERSHIP[:30], groups=GROUPS, client="b")
    half = {"a": Fraction(1, 2), "b": np.float32(0.5)}
    found = gcfcp.calibrate([summary(), other], 0.2, half, "recompress", delta=Fraction(50))
    predictor = gcfcp.Predictor("own", found)
    predictor.save(tmp_path / "p.json")
    loaded = gcfcp.Predictor.load(tmp_path / "p.json")
    assert loaded.provenance["mixture"] == {"a": 0.5, "b": 0.5}
    assert loaded.provenance["recompression_delta"] == 50.0
    audits = [audited(), gcfcp.audit([True], [[1, 0]], groups=GROUPS, client="b")]
    report = gcfcp.merge_audits(audits, half, alpha=0.1)
    assert json.loads(json.dumps(report.to_dict()))["mixture"] == {"a": 0.5, "b": 0.5}


def test_thirds_stay_exact_in_a_mixture():
    """1/3 as a Fraction is not 0.333..., and three of them are 1."""
    three = [
        gcfcp.summarize(SCORES[i::3], MEMBERSHIP[i::3], groups=GROUPS, client=name)
        for i, name in enumerate("abc")
    ]
    found = gcfcp.calibrate(three, 0.2, dict.fromkeys("abc", Fraction(1, 3)))
    assert found.atoms == gcfcp.calibrate(three, 0.2, "uniform").atoms


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: gcfcp.calibrate([summary()], 0.1, {"a": 10**400}), "weight"),
        (lambda: gcfcp.DigestBuilder(buffer="x"), "buffer='x'"),
        (lambda: gcfcp.DigestBuilder(buffer=1.5), "buffer=1.5"),
        (lambda: gcfcp.DigestBuilder(buffer=0), "buffer=0"),
        (lambda: gcfcp.DigestBuilder(limit="x"), "limit='x'"),
        (lambda: gcfcp.TDigest.from_values([1.0], limit=math.nan), "limit=nan"),
        (lambda: gcfcp.TDigest([1.0], [1.0], 10, error_weight="x"), "error_weight=x"),
        (lambda: gcfcp.TDigest(["a"], [1.0], 10), "means cannot be read as numbers"),
        (lambda: gcfcp.Groups.from_toml("a\0b"), "null"),
        (lambda: gcfcp.scores.APS(randomized="yes"), "randomized='yes'"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_never_another_exception(call, words):
    with pytest.raises(GCFCPError, match=re.escape(words)) as refused:
        call()
    assert "\n" not in str(refused.value)


def test_a_generator_is_asked_for_by_name():
    calibration = gcfcp.calibrate([summary()], 0.2)
    with pytest.raises(GCFCPError, match="threshold_rng=5: give"):
        calibration.thresholds([[1, 0]], threshold_rng=5)


def test_masked_values_are_refused_wherever_an_array_is_taken():
    masked = np.ma.MaskedArray([0.5, 0.7], mask=[False, True])
    wrong = "1 of 2 values of .* masked|NaN"
    ones = np.ones((2, 2), bool)
    for call in (
        lambda: gcfcp.scores.AbsoluteResidual().of(masked, [0.0, 0.0]),
        lambda: gcfcp.scores.AbsoluteResidual().of([0.0, 0.0], masked),
        lambda: gcfcp.summarize(masked, ones, groups=GROUPS, client="a"),
        lambda: gcfcp.methods.split_cp([(masked, ones)], 0.1),
        lambda: gcfcp.audit(masked > 0, ones, groups=GROUPS, client="a"),
        lambda: gcfcp.audit([1, 0], ones, groups=GROUPS, client="a", set_size=masked),
    ):
        with pytest.raises(GCFCPError, match=wrong):
            call()
    matrix = np.ma.MaskedArray(ones, mask=[[False, False], [False, True]])
    with pytest.raises(GCFCPError, match="1 of 4 values of membership are masked"):
        GROUPS.check(matrix)


def test_text_is_shown_as_text():
    with pytest.raises(GCFCPError, match=re.escape("confidence='0.9' is not in (0, 1)")):
        gcfcp.merge_audits([audited()], alpha=0.1, confidence="0.9")


def test_an_alpha_that_is_a_coverage_is_asked_about() -> None:
    for alpha in (0.9, np.float32(0.9), Fraction(9, 10)):
        doubt = checks.doubt_about_alpha(alpha)
        assert doubt == "alpha=0.9 lets 0.9 of the outcomes be missed: did you mean 0.1?"
    for alpha in (0.1, 0.5, 1.0, 90, "0.9", None):
        assert checks.doubt_about_alpha(alpha) is None


@pytest.mark.parametrize(
    ("given", "meant"), [(10, "0.1"), (5.0, "0.05"), (90, "0.1"), (1, ""), (1.2, ""), (-1, "")]
)
def test_an_alpha_in_percent_is_recognised(given: float, meant: str) -> None:
    with pytest.raises(gcfcp.GCFCPError) as caught:
        gcfcp.calibrate([summary()], given)
    assert str(caught.value).startswith(f"alpha={given} is not in (0, 1)")
    assert str(caught.value).endswith(f": did you mean {meant}?" if meant else "(0, 1)")


def test_a_long_text_in_a_message_keeps_its_quotes() -> None:
    assert checks.shown("0123456789abcdef" * 4) == "01234567.."
    assert checks.shown("x" * 58) == repr("x" * 58)
    assert checks.shown("x" * 200) == repr("x" * 56 + "..")
    assert checks.shown(None) == "None"


def test_numbers_are_written_with_their_nouns() -> None:
    assert checks.counted(1, "client") == "1 client"
    assert checks.counted(0, "client") == "0 clients"
    assert checks.counted(1204, "record") == "1,204 records"
    assert checks.counted(1, "record is", "records are") == "1 record is"
    assert checks.counted(2, "summary", "summaries") == "2 summaries"
