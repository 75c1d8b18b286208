"""Groups from columns, combinations of groups, and how many rows of a frame each group has."""

import math
import tomllib
from datetime import date

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gcfcp
from gcfcp import Group, Groups
from gcfcp.errors import GCFCPError, GCFCPWarning
from gcfcp.groups import Levels
from without import run_without

OLD = Group("old", "age >= 65")
FEMALE = Group("female", "sex = 'F'")
NIGHT = Group("night", "night")
BASE = [OLD, FEMALE, NIGHT]
FRAME = {
    "age": [30, 70, 65, 12, 80],
    "sex": ["F", "M", "F", "M", "F"],
    "night": [True, False, True, False, False],
}


def members(group: Group, frame: object) -> np.ndarray:
    return Groups([group]).membership(frame)[:, 0]


# --- the algebra -------------------------------------------------------------------------------


def test_a_combination_has_a_name_and_sql_like_any_other():
    assert Group("old and female", "(age >= 65) AND (sex = 'F')") == (OLD & FEMALE)
    assert Group("old or female", "(age >= 65) OR (sex = 'F')") == (OLD | FEMALE)
    assert Group("not old", "NOT (age >= 65)") == ~OLD
    nested = ~(OLD & FEMALE) | NIGHT
    assert nested.name == "not (old and female) or night"
    assert nested.condition == "(NOT ((age >= 65) AND (sex = 'F'))) OR (night)"
    assert ((OLD | NIGHT) & FEMALE).name == "(old or night) and female"
    assert (OLD & FEMALE).named("old women") == Group("old women", "(age >= 65) AND (sex = 'F')")
    assert ((OLD & FEMALE).named("old women") & NIGHT).name == "old women and night"


def test_a_long_chain_stays_flat():
    chain = OLD
    for i in range(60):
        chain = chain | Group(f"{i}", f"age = {i}")
    assert chain.condition.startswith("(age >= 65) OR (age = 0) OR (age = 1) OR")
    assert members(chain.named("chain"), {"age": [59, 60, 65]}).tolist() == [True, False, True]


@st.composite
def expressions(draw: st.DrawFn, depth: int = 4):
    """A combination of the base groups, as a Group and as a function of their members."""
    if depth == 0 or draw(st.booleans()):
        place = draw(st.integers(0, len(BASE) - 1))
        return BASE[place], lambda columns: columns[place]
    what = draw(st.sampled_from("&|~"))
    group, value = draw(expressions(depth=depth - 1))
    if what == "~":
        return (~group).named("n"), lambda columns: ~value(columns)
    other, second = draw(expressions(depth=depth - 1))
    if what == "&":
        return (group & other).named("n"), lambda columns: value(columns) & second(columns)
    return (group | other).named("n"), lambda columns: value(columns) | second(columns)


rows = st.lists(
    st.tuples(st.integers(0, 99), st.sampled_from("FM"), st.booleans()), min_size=1, max_size=12
)


@settings(max_examples=60, deadline=None)
@given(expressions(), rows)
def test_members_are_what_numpys_operators_say(expression, records):
    group, value = expression
    frame = pl.DataFrame(records, schema=["age", "sex", "night"], orient="row")
    columns = [
        frame["age"].to_numpy() >= 65,
        frame["sex"].to_numpy() == "F",
        frame["night"].to_numpy(),
    ]
    assert np.array_equal(members(group, frame), value(columns))
    # The file has the same text, and so the same fingerprint.
    family = Groups([group])
    assert Groups.from_toml_text(family.to_toml()).fingerprint == family.fingerprint


class Kleene:
    """Three truth values as numbers: 0 no, 1/2 open, 1 yes. This is the oracle for SQL's logic."""

    def __init__(self, values):
        self.values = np.asarray(values, dtype=float)

    def __and__(self, other):
        return Kleene(np.minimum(self.values, other.values))

    def __or__(self, other):
        return Kleene(np.maximum(self.values, other.values))

    def __invert__(self):
        return Kleene(1 - self.values)


@settings(max_examples=40, deadline=None)
@given(
    expressions(),
    st.lists(
        st.tuples(
            st.none() | st.integers(0, 99),
            st.none() | st.sampled_from("FM"),
            st.none() | st.booleans(),
        ),
        min_size=1,
        max_size=12,
    ),
)
@pytest.mark.filterwarnings("ignore::gcfcp.GCFCPWarning")
def test_a_missing_value_leaves_open_what_it_leaves_open(expression, records):
    group, value = expression
    schema = {"age": pl.Int64, "sex": pl.String, "night": pl.Boolean}
    frame = pl.DataFrame(records, schema=schema, orient="row")
    known = lambda f, v: 0.5 if v is None else float(f(v))  # noqa: E731
    columns = [
        Kleene([known(lambda a: a >= 65, a) for a, _, _ in records]),
        Kleene([known(lambda s: s == "F", s) for _, s, _ in records]),
        Kleene([known(bool, n) for _, _, n in records]),
    ]
    assert np.array_equal(members(group, frame), value(columns).values == 1)


def test_a_row_that_is_open_is_neither_in_a_group_nor_outside_of_it():
    frame = {"sex": ["F", "M", None]}
    with pytest.warns(GCFCPWarning, match="female: 1, not female: 1"):
        found = Groups([FEMALE, ~FEMALE]).membership(frame)
    assert found.tolist() == [[True, False], [False, True], [False, False]]


def test_groups_without_a_condition_cannot_be_combined():
    names = Groups(["all", "female"])
    with pytest.raises(GCFCPError, match="group 'female' has no condition"):
        names["female"]
    with pytest.raises(GCFCPError, match="group 'site a' has no condition"):
        Groups([FEMALE], sites=["a"])["site a"]
    with pytest.raises(GCFCPError, match="no group 'old'; the groups are all, female"):
        names["old"]
    with pytest.raises(GCFCPError, match="group 'all' has no condition"):
        list(names)


def test_a_group_is_checked_where_it_is_made():
    with pytest.raises(GCFCPError, match="calls avg"):
        Group("a", "avg(age) > 3")
    with pytest.raises(GCFCPError, match="is empty or blank"):
        Group(" ", "TRUE")
    for open_ in ("sex = 'F", 'sex" = 1', "`sex = 1"):  # Another part could close it.
        with pytest.raises(GCFCPError, match=r"open quotation mark .: close it"):
            Group("a", open_)
    with pytest.raises(GCFCPError, match="one \\) too many"):
        Group("a", "age > 1) OR (TRUE")
    with pytest.raises(GCFCPError, match=r"has 201 characters .*: give it another one with"):
        Groups([Group("a" * 98, "TRUE") & Group("b" * 98, "TRUE")])
    with pytest.raises(GCFCPError, match="give values of Group alone"):
        Groups([OLD, "female"])
    for wrong in (lambda: OLD & "sex = 'F'", lambda: OLD | "sex = 'F'"):
        with pytest.raises(GCFCPError, match=r"""a str: write Group\('name', "sex = 'F'"\)"""):
            wrong()
    with pytest.raises(GCFCPError, match="not with a Series: write Group"):
        OLD & pl.Series([True])


# --- families ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [lambda: OLD and FEMALE, lambda: OLD or FEMALE, lambda: not OLD],
)
def test_words_of_python_do_not_drop_a_group_silently(wrong):
    with pytest.raises(GCFCPError, match="'old' is neither true nor false: write & for and"):
        wrong()


def test_a_family_is_a_row_of_its_groups():
    family = Groups([OLD, FEMALE])
    assert list(family) == [OLD, FEMALE]
    assert Groups([NIGHT, *family]).names == ("night", "old", "female")
    assert "old" in family
    assert OLD in family
    assert "night" not in family
    assert OLD.named("night") not in family


def test_a_list_of_groups_is_a_family():
    family = Groups([Group("all", "TRUE"), OLD, OLD & FEMALE])
    assert family == Groups(
        {"all": "TRUE", "old": "age >= 65", "old and female": "(age >= 65) AND (sex = 'F')"}
    )
    assert family["old"] == OLD
    assert family.membership(FRAME).sum(axis=0).tolist() == [5, 3, 2]


def test_families_are_put_together_and_crossed():
    sexes, hours = Groups.from_column("sex", ["F", "M"]), Groups([NIGHT, ~NIGHT])
    both = sexes + hours + OLD
    assert both.names == ("sex F", "sex M", "night", "not night", "old")
    crossed = sexes & hours
    assert crossed.names == (
        "sex F and night",
        "sex F and not night",
        "sex M and night",
        "sex M and not night",
    )
    a, b = sexes.membership(FRAME), hours.membership(FRAME)
    expected = (a[:, :, None] & b[:, None, :]).reshape(len(a), -1)
    assert np.array_equal(crossed.membership(FRAME), expected)
    assert (sexes & OLD).names == ("sex F and old", "sex M and old")
    assert (OLD & sexes).names == ("old and sex F", "old and sex M")
    every = Groups({"all": "TRUE"})
    assert (every + sexes + every).names == ("all", "sex F", "sex M")
    with pytest.raises(GCFCPError, match="'all' is given twice"):
        every + Groups({"all": "age > 0"})


def test_families_without_conditions_and_with_sites():
    assert Groups(["a"]) + Groups(["b"]) == Groups(["a", "b"])
    assert Groups([OLD], sites=["x"]) + Groups([], sites=["x", "y"]) == Groups(
        [OLD], sites=["x", "y"]
    )
    with pytest.raises(GCFCPError, match="has names only"):
        Groups(["a"]) + Groups([OLD])
    with pytest.raises(GCFCPError, match="'site x' has no condition"):
        Groups([OLD], sites=["x"]) & FEMALE


def test_what_is_not_meant_for_families_says_so():
    family = Groups([OLD, FEMALE])
    for wrong in (lambda: family | family, lambda: OLD | family, lambda: family | OLD):
        with pytest.raises(GCFCPError, match="a \\+ b for the groups of two families"):
            wrong()
    with pytest.raises(GCFCPError, match="~ is for a single group"):
        ~family  # noqa: B018
    with pytest.raises(TypeError):
        family + "old"


# --- one group for each level ------------------------------------------------------------------


def test_levels_that_are_probably_one_are_named():
    frame = pl.DataFrame({"region": ["north", "North ", "south"]})
    with pytest.warns(GCFCPWarning, match="'North ' and 'north' of column 'region' differ only"):
        assert len(Groups.from_column("region", frame=frame).names) == 3


def test_levels_that_are_given_make_a_public_family():
    groups = Groups.from_column("region", ["north", "O'Hara", 'the "south"'])
    assert groups.names == ("region north", "region O'Hara", 'region the "south"')
    assert groups.predicates is not None
    assert groups.predicates[1] == "\"region\" = 'O''Hara'"
    frame = {"region": ["O'Hara", "north", 'the "south"', "west"]}
    assert groups.membership(frame).argmax(axis=1).tolist()[:3] == [1, 0, 2]
    assert not groups.membership(frame)[3].any()
    assert Groups.from_toml_text(groups.to_toml()) == groups
    assert list(tomllib.loads(groups.to_toml())["groups"]) == list(groups.names)


@pytest.mark.parametrize(
    "values",
    [[True, False], [3, -1, 10**15], [0.5, -2.0, 1e-7], ["a", "b c", "ä"], [np.int64(4), 5]],
    ids=repr,
)
@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, dict])
def test_every_kind_of_level_matches_itself(values, kind):
    column = 'order by "x"'  # A name that must stand in quotes.
    found = Groups.from_column(column, values).membership(kind({column: list(values)}))
    assert np.array_equal(found, np.eye(len(values), dtype=bool))


def test_the_levels_of_a_frame_are_sorted_and_known_only_then():
    frame = pd.DataFrame({"region": ["south", None, "north", "south"], "x": [1.0, 2.0, 2.0, None]})
    groups = Groups.from_column("region", frame=frame)
    assert groups == Groups.from_column("region", ["north", "south"])
    open_ = Groups.from_column("region")
    assert isinstance(open_, Levels)
    assert open_.of(frame) == ("north", "south")
    assert open_.fill(frame) == groups
    assert Groups.from_column("x", frame=frame).names == ("x 1.0", "x 2.0")
    category = frame.assign(region=frame["region"].astype("category"))
    assert Groups.from_column("region", frame=category) == groups
    assert groups.count(category).groups[1].n == 2


def test_levels_that_are_not_known_yet_say_so_wherever_groups_are_needed():
    open_ = Groups.from_column("region")
    with pytest.raises(GCFCPError, match=r"Levels\(column='region'\) is not a family of groups"):
        gcfcp.summarize([1.0], [[True]], groups=open_, client="a")
    message = r"levels of column 'region' are not known yet: agree .*\.fill\(frame\)"
    with pytest.raises(GCFCPError, match=message):
        open_.membership({"region": ["a"]})
    with pytest.raises(AttributeError):
        open_.nothing  # noqa: B018
    assert not hasattr(open_, "__array__")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("north", "is not a list"),
        ([], "has no values"),
        (["a", 1], r"different types \(int, str\)"),
        (["a", "a"], "'a' of column 'region' is given twice"),
        ([1, 1.0], "given twice"),
        (["a", "a "], "differ only in blanks"),
        ([None], "a missing value is no level"),
        ([math.nan], "a missing value is no level"),
        ([pd.NA], "a missing value is no level"),
        ([pd.NaT], "a missing value is no level"),
        ([math.inf], "neither a text, a number"),
        ([""], "nobody sees it"),
        ([("a",)], "neither a text, a number"),
    ],
)
def test_values_that_cannot_be_levels_are_refused(values, message):
    with pytest.raises(GCFCPError, match=message):
        Groups.from_column("region", values)


def test_a_date_is_no_level_and_the_condition_that_is_shown_works():
    frame = pd.DataFrame({"day": pd.to_datetime(["2024-01-01", "2024-02-01"])})
    for values in ({"frame": frame}, {"values": [date(2024, 1, 1)]}):
        with pytest.raises(GCFCPError, match="is no level of column 'day': write a condition") as e:
            Groups.from_column("day", **values)
        condition = str(e.value).split("such as ")[1]
        assert condition.endswith("-01'")
        assert members(Group("late", condition), frame)[1]


def test_a_frame_that_has_no_levels_to_take_is_refused():
    with pytest.raises(GCFCPError, match="no column 'region'; the data have x"):
        Groups.from_column("region", frame={"x": [1]})
    with pytest.raises(GCFCPError, match="201 different values, and at most 200"):
        Groups.from_column("x", frame={"x": list(range(201))})
    with pytest.raises(GCFCPError, match="both given"):
        Groups.from_column("x", [1], frame={"x": [1]})
    with pytest.raises(GCFCPError, match="has no values"):
        Groups.from_column("x", frame={"x": [None, None]})


def test_groups_are_made_and_counted_with_numpy_alone(tmp_path):
    program = """
import gcfcp
groups = gcfcp.Groups.from_column("region", ["north", "south"])
print((groups & gcfcp.Group("old", "age >= 65")).to_toml())
print(gcfcp.Groups(["all", "rare"]).count({"all": [1, 1], "rare": [0, 1]}).groups[1].n)
try:
    gcfcp.Groups.from_column("region", frame={"region": ["north"]})
except gcfcp.GCFCPError as error:
    print(error)
"""
    lines = run_without(["polars"], program, cwd=tmp_path).stdout.splitlines()
    assert lines[1].startswith('"region north and old" = ')
    assert lines[-2] == "1"
    assert lines[-1].startswith("polars is needed for the membership of a data frame")


# --- how many rows -----------------------------------------------------------------------------


def test_counts_say_who_is_there():
    counts = Groups([OLD, FEMALE, NIGHT, Group("women", "sex = 'f'")]).count(FRAME)
    assert [(g.group, g.n, g.share) for g in counts.groups] == [
        ("old", 3, 0.6),
        ("female", 3, 0.6),
        ("night", 2, 0.4),
        ("women", 0, 0.0),
    ]
    assert counts.overlap[:3, :3].tolist() == [[3, 2, 1], [2, 3, 2], [1, 2, 2]]
    assert counts.uncovered == 1
    (sentence,) = counts.unmatched
    assert sentence == (
        "group 'women' (sex = 'f') has none of the records of the frame: column 'sex' holds "
        "'F' (3), 'M' (2); 'F' differs from 'f' only in capitals or blanks (trim(...) and "
        "lower(...) level them)"
    )
    text = str(counts)
    assert text.startswith("5 records; 1 belong to no group (for this site's own eyes)\n")
    assert "overlaps most with" in text
    assert sentence in text


def test_counts_of_an_empty_frame_have_no_shares():
    assert "nan" not in str(Groups([OLD]).count({"age": np.zeros(0)}))


def test_counts_of_missing_values_are_told_and_not_warned_of():
    counts = Groups([FEMALE, Group("all", "TRUE")]).count({"sex": ["F", None, None]})
    assert [g.missing for g in counts.groups] == [2, 0]
    assert "female: a missing value leaves it open for 2 records" in str(counts)


def test_counts_of_names_and_sites():
    groups = Groups(["all", "rare"], sites=["a", "b"])
    counts = groups.count({"all": [1, 1], "rare": [0, 0]}, site="b")
    assert [g.n for g in counts.groups] == [2, 0, 0, 2]
    assert counts.unmatched == ("group 'rare' has none of the records",)
    with pytest.raises(GCFCPError, match="give the site of these rows"):
        groups.count({"all": [1], "rare": [0]})


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 30), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_counts_agree_with_numpy(n, size, seed):
    matrix = np.random.default_rng(seed).random((n, size)) < 0.4
    names = [f"g{i}" for i in range(size)]
    counts = Groups(names).count(dict(zip(names, matrix.T, strict=True)))
    assert np.array_equal(counts.overlap, matrix.T.astype(int) @ matrix.astype(int))
    assert [g.n for g in counts.groups] == matrix.sum(axis=0).tolist()
    assert counts.uncovered == (~matrix.any(axis=1)).sum()
    assert counts.n == n
    assert str(counts)
