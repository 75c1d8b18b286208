"""Groups decide which rows belong; atoms and lookups agree with np.unique and np.packbits."""

import hashlib
import math
import subprocess
import sys
import threading
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gcfcp import checks
from gcfcp.errors import GCFCPError, GCFCPWarning
from gcfcp.groups import AtomLookup, Groups, find_atoms, frames, pack
from without import run_without

TOML = """
[groups]
all = "TRUE"
over_65 = "age >= 65"
female = "sex = 'F'"
predicted_low = "predicted in (0, 1, 2)"
"""
COLUMNS = {
    "age": [30, 70, 65, 12],
    "sex": ["F", "M", "F", "M"],
    "predicted": [0, 5, 2, 7],
    "unused": [object] * 4,
}
EXPECTED = np.array([[1, 0, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]], dtype=bool)
PREDICATES = Groups.from_toml_text(TOML)
NAMES = Groups(["all", "female"])


# --- the definition ---------------------------------------------------------------------------


def test_names_keep_their_order():
    groups = Groups(["b", "a"])
    assert groups.names == ("b", "a")
    assert groups.predicates is None
    assert groups.columns == ("b", "a")
    assert len(groups) == 2


def test_toml_keeps_the_order_of_the_file(tmp_path):
    path = tmp_path / "groups.toml"
    path.write_text(TOML)
    groups = Groups.from_toml(path)
    assert groups == PREDICATES
    assert groups.names == ("all", "over_65", "female", "predicted_low")
    assert groups.columns == ("age", "sex", "predicted")


def test_plain_keys_and_the_table_define_the_same_family():
    assert Groups.from_toml_text(TOML.replace("[groups]", "")) == PREDICATES


def test_a_file_with_a_byte_order_mark_is_read(tmp_path):
    path = tmp_path / "groups.toml"
    path.write_bytes(b"\xef\xbb\xbf" + TOML.encode())
    assert Groups.from_toml(path) == PREDICATES


def test_fingerprint_is_fixed_for_all_time():
    # The digits come from: printf '{"names":["all","female"],"predicates":null}' | sha256sum
    assert Groups(["all", "female"]).fingerprint == (
        "8f9a20b45fb2c72be22535ae80d1653215d348e3151df1e688ec477772690b42"
    )


def test_fingerprint_tells_definitions_apart():
    families = [
        Groups(["a", "b"]),
        Groups(["b", "a"]),
        Groups(["a"]),
        Groups({"a": "TRUE", "b": "TRUE"}),
        Groups({"a": "TRUE", "b": "x > 1"}),
        Groups(["a", "b"]).with_all(),
    ]
    assert len({family.fingerprint for family in families}) == len(families)
    assert Groups({"a": " x > 1\n"}).fingerprint == Groups({"a": "x > 1"}).fingerprint


names = st.text(st.characters(blacklist_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1).filter(
    lambda s: checks.group_name_problem(s) is None
)
literals = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"))


def _look_different(named) -> bool:
    return len({checks.look(name) for name in named}) == len(named)


@given(st.dictionaries(names, literals, min_size=1, max_size=4).filter(_look_different))
@settings(derandomize=True, deadline=None)
def test_toml_round_trip_gives_the_same_fingerprint(family):
    sql = {name: "x = '" + text.replace("'", "''") + "'" for name, text in family.items()}
    for groups in (Groups(sql), Groups(sql.keys())):
        again = Groups.from_toml_text(groups.to_toml())
        assert again == groups
        assert again.fingerprint == groups.fingerprint


def test_with_all_comes_first_and_holds_everyone():
    groups = Groups({"old": "age > 60"}).with_all()
    assert groups.names == ("all", "old")
    assert groups.membership({"age": [1, 70]}).tolist() == [[True, False], [True, True]]
    assert Groups(["old"]).with_all("everyone").names == ("everyone", "old")
    with pytest.raises(GCFCPError, match="'old' is given twice"):
        groups.with_all("old")


@pytest.mark.parametrize(
    ("given_names", "message"),
    [
        ([], "at least one"),
        ({}, "at least one"),
        ("all", "list of names"),
        (3, "list of names"),
        (["a", "b", "a"], "'a' is given twice"),
        ([""], "is empty"),
        (["  "], "is empty"),
        ([7], "of type int"),
        ([None], "of type NoneType"),
        (["a\nb"], "control character"),
        (["a\x00"], "control character"),
        (["a\u2028b"], "control character"),
        (["a\udc80"], "UTF-8"),
        (["x" * 201], "201 characters"),
    ],
)
def test_names_that_cannot_be_used(given_names, message):
    with pytest.raises(GCFCPError, match=message) as caught:
        Groups(given_names)
    assert "\n" not in str(caught.value)
    str(caught.value).encode()  # The message itself can be printed.


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = ", "not valid TOML"),
        ('a = "x > 1"\na = "x > 2"', "not valid TOML"),
        ("a = 3", "'a': 3 is of type int"),
        ("[a]\nb = 'x > 1'", "of type dict"),
        ("", "at least one"),
        ("[groups]", "at least one"),
        ("b = 'x > 1'\n[groups]\na = 'x > 1'", "b stands beside"),
        ("names = []", "at least one"),
        ("names = [1]", "of type int"),
        ("a = 'x +'", "'a'.*cannot be read as a condition"),
        ("a = ''", "cannot be read as a condition"),
        ("a = 'x > 1 y'", "cannot be read as a condition"),
        ("a = 'x > 1; drop table y'", "one ; too many"),
        ("a = 'x > 1, y > 2'", "cannot be read as a condition"),
        ("a = 'x > 1) or (y > 2'", "too many"),
        ("a = '(x > 1'", "open parenthesis"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, text, message):
    path = tmp_path / "g.toml"
    path.write_text(text)
    with pytest.raises(GCFCPError, match=message) as caught:
        Groups.from_toml(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(GCFCPError, match=r"cannot read.*absent\.toml: No such file"):
        Groups.from_toml(tmp_path / "absent.toml")
    with pytest.raises(GCFCPError, match="cannot read"):
        Groups.from_toml(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"a = \"x = '\xe9'\"")
    with pytest.raises(GCFCPError, match=r"not UTF-8 \(see byte 10\)"):
        Groups.from_toml(tmp_path / "latin.toml")


@pytest.mark.parametrize(
    "sql",
    [
        "age > avg(age)",
        "age > AVG (age)",
        'age > "avg"(age)',
        "age > `avg`(age)",
        "age > avg/**/(age)",
        "age > 1 /* ' */ and age > avg(age) /* ' */",
        "age > 1 -- '\n and age > avg(age) -- '",
        "sex = E'\\' or age > avg(age) or sex = E'\\'",
        "sex = $$'$$ or age > avg(age) or sex = $$'$$",
        "count(*) > 3",
        "first(age) > 3",
        "sum(age) over () > 3",
        "row_number() over (order by age) > 1",
        "age > max(age) over (partition by sex)",
        "age > (select max(age) from t)",
        "age in (SELECT 1)",
        "exists (select 1)",
        "unnest(age)",
        "columns('a.*') > 1",
        "age > all(age)",
        "now() > '2020'",
        "date '2020-01-01' < current_date",
        "random() > 0.5",
        "x = 1 or " * 1000 + "x = 2",
        "x = '\udc80'",
    ],
)
def test_conditions_that_are_not_row_by_row_are_refused(sql):
    with pytest.raises(GCFCPError, match=r"^group 'g': condition") as caught:
        Groups({"g": sql})
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("TRUE", [1, 1, 1, 1]),
        ("1 = 2", [0, 0, 0, 0]),
        ("age BETWEEN 13 AND 69 AND NOT (sex = 'M')", [1, 0, 1, 0]),
        ("mod(age, 2) = 0 or abs(age - 66) <= (1)", [1, 1, 1, 1]),
        ("case when age > 60 then sex = 'F' else false end", [0, 0, 1, 0]),
        ("upper(sex) || 'x' like 'F%'", [1, 0, 1, 0]),
        ("sex ~ '^F$'", [1, 0, 1, 0]),
        ("cast(age as varchar) = '70'", [0, 1, 0, 0]),
        ('"age" > 60', [0, 1, 1, 0]),
        ("sex in ('avg(age)', 'select', '--', 'M')", [0, 1, 0, 1]),
        ("coalesce(nullif(age, 70), 0) = 0", [0, 1, 0, 0]),
        ("extract(year from born) < 1990", [0, 0, 1, 1]),
        ("born >= date '1990-01-01'", [1, 1, 0, 0]),
    ],
)
def test_conditions_of_every_day(sql, expected):
    born = pd.to_datetime(["1990-01-01", "1999-12-31", "1989-12-31", "1950-06-01"])
    frame = pl.DataFrame({**COLUMNS, "unused": 0, "born": born.to_numpy()})
    assert Groups({"g": sql}).membership(frame)[:, 0].tolist() == [bool(e) for e in expected]


# --- membership of data -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "build",
    [
        dict,
        pd.DataFrame,
        lambda c: pd.DataFrame(c, index=[3, 3, 1, 0]),
        pl.DataFrame,
        lambda c: pa.table({k: v for k, v in c.items() if k != "unused"}),
        lambda c: {k: np.array(v) for k, v in c.items()},
        lambda c: {k: pd.Series(v, index=[5, 6, 7, 8]) for k, v in c.items()},
        lambda c: {k: pl.Series(v) for k, v in c.items() if k != "unused"},
        lambda c: {k: tuple(v) for k, v in c.items()},
    ],
    ids=["dict", "pandas", "pandas-index", "polars", "arrow", "numpy", "series", "plseries", "tup"],
)
def test_membership_of_any_frame(build):
    membership = PREDICATES.membership(build(COLUMNS))
    assert membership.dtype == bool
    assert membership.flags.c_contiguous
    np.testing.assert_array_equal(membership, EXPECTED)


@pytest.mark.parametrize("build", [dict, pd.DataFrame, pl.DataFrame, pa.table])
def test_names_only_groups_read_one_column_each(build):
    frame = build({"female": [True, False], "all": [1, 1], "other": ["x", "y"]})
    assert NAMES.membership(frame).tolist() == [[True, True], [True, False]]


@pytest.mark.parametrize("build", [dict, pd.DataFrame, pl.DataFrame, pa.table])
def test_conditions_without_columns_still_know_the_rows(build):
    groups = Groups({"all": "TRUE", "none": "FALSE"})
    assert groups.columns == ()
    assert groups.membership(build({"x": [1, 2, 3]})).tolist() == [[True, False]] * 3
    assert groups.membership(build({"x": []})).shape == (0, 2)


def test_no_rows():
    frame = pl.DataFrame(COLUMNS).head(0)
    assert PREDICATES.membership(frame).shape == (0, 4)


@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame({"age": [70, None, 1], "sex": ["F", "F", None]}),
        pl.DataFrame({"age": [70.0, float("nan"), 1], "sex": ["F", "F", None]}),
        pd.DataFrame({"age": [70, np.nan, 1], "sex": ["F", "F", None]}),
        pa.table({"age": [70.0, float("nan"), 1], "sex": ["F", "F", None]}),
        {"age": np.array([70, np.nan, 1]), "sex": ["F", "F", None]},
        {"age": [70, None, 1], "sex": np.array(["F", "F", None], dtype=object)},
    ],
    ids=["polars", "polars-nan", "pandas", "arrow-nan", "numpy-nan", "object"],
)
def test_missing_values_are_no_members_and_are_reported_once(frame):
    groups = Groups({"old": "age >= 65", "female": "sex = 'F'", "aged": "age IS NOT NULL"})
    with pytest.warns(GCFCPWarning, match=r"of 3 rows.*\(old: 1, female: 1\)") as caught:
        membership = groups.membership(frame)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert membership.astype(int).tolist() == [[1, 1, 1], [0, 1, 0], [0, 0, 1]]


def test_missing_values_in_columns_of_names_only_groups():
    with pytest.warns(GCFCPWarning, match=r"\(all: 1, female: 2\)"):
        out = NAMES.membership({"all": [1, None, 0], "female": [None, True, None]})
    assert out.tolist() == [[True, False], [False, True], [False, False]]


def test_a_full_frame_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PREDICATES.membership(COLUMNS)


@pytest.mark.parametrize(
    ("groups", "data", "message"),
    [
        (PREDICATES, {"age": [1]}, "group 'female' needs column 'sex'; the data have age"),
        (PREDICATES, pd.DataFrame({"AGE": [1]}), "'over_65' needs column 'age'.*have AGE"),
        (PREDICATES, pa.table({"x": [1]}), "'over_65' needs column 'age'.*have x"),
        (PREDICATES, {}, "'over_65' needs column 'age'; the data have no columns"),
        (NAMES, {"all": [1]}, "group 'female' needs column 'female'; the data have all"),
        (Groups({"g": "age + 1"}), {"age": [1]}, "group 'g': its condition is Int64, not Bool"),
        (Groups({"g": "NULL"}), {"age": [1]}, "group 'g': its condition is Null"),
        (
            Groups({"g": "age = 'x'"}),
            {"age": [1]},
            "fit column 'age', which holds numbers: compare it with numbers without quotes",
        ),
        (
            Groups({"g": "n > 5"}),
            {"n": ["1", "2"]},
            "holds numbers that are stored as text: compare",
        ),
        (
            Groups({"g": "day > '2026'"}),
            {"day": np.array(["2026-11-17"], "M8[D]")},
            "which holds dates or times: compare it with one such as DATE '2026-11-17'",
        ),
        (
            Groups({"g": "n = age"}),
            {"n": ["a"], "age": [1]},
            "column 'n', which holds the text 'a' and column 'age', which holds numbers: .*, and",
        ),
        (
            Groups({"g": "upper(1) = 'A'"}),
            {"age": [1]},
            "compares what cannot be compared: correct it",
        ),
        (NAMES, {"all": [1], "female": ["yes"]}, "group 'female': its column is String"),
        (NAMES, {"all": [1], "female": [2]}, "group 'female': value 2 is neither"),
        (NAMES, {"all": [1], "female": 1}, r"column 'female' has shape \(\)"),
        (NAMES, {"all": [1, 0], "female": [1]}, "cannot read the columns"),
        (PREDICATES, pl.LazyFrame(COLUMNS), r"call \.collect\(\) first"),
        (PREDICATES, np.zeros((2, 4)), "not ndarray; a matrix is read by Groups.check"),
        (PREDICATES, None, "not NoneType"),
        (Groups({"all": "TRUE"}), {}, "no columns"),
    ],
)
def test_data_that_cannot_be_used(groups, data, message):
    with pytest.raises(GCFCPError, match=message) as caught:
        groups.membership(data)
    assert "\n" not in str(caught.value)


def test_a_wide_frame_does_not_flood_the_message():
    with pytest.raises(GCFCPError, match=r"\(1000 in all\)") as caught:
        PREDICATES.membership({f"c{i}": [0] for i in range(1000)})
    assert len(str(caught.value)) < 300


# --- a membership matrix of the caller's ------------------------------------------------------


@pytest.mark.parametrize(
    "matrix",
    [
        [[True, False], [True, True]],
        [[1, 0], [1, 1]],
        np.array([[1.0, 0.0], [1.0, 1.0]]),
        np.array([[1, 1], [0, 1]], dtype=np.uint8).T,
        np.array([[True, 0], [1.0, np.True_]], dtype=object),
        pd.DataFrame({"all": [True, True], "female": [False, True]}),
        pl.DataFrame({"all": [1, 1], "female": [False, True]}),
        pa.table({"x": [True, True], "y": [False, True]}),
    ],
)
def test_check_takes_anything_that_is_zero_or_one(matrix):
    checked = NAMES.check(matrix)
    assert checked.dtype == bool
    assert checked.flags.c_contiguous
    assert checked.tolist() == [[True, False], [True, True]]


def test_check_leaves_a_good_matrix_as_it_is():
    matrix = np.ones((3, 2), dtype=bool)
    assert NAMES.check(matrix) is matrix
    assert NAMES.check(np.ones((0, 2))).shape == (0, 2)


def test_check_of_label_dependent_membership():
    cube = np.ones((3, 5, 2), dtype=int)
    assert NAMES.check(cube, label_dependent=True).shape == (3, 5, 2)
    cube[1, 4, 0] = 3
    with pytest.raises(GCFCPError, match=r"membership\[1, 4, 0\] = 3 \(group 'all'\)"):
        NAMES.check(cube, label_dependent=True)
    with pytest.raises(GCFCPError, match=r"shape \(3, 2\), expected \(n, L, G\)"):
        NAMES.check(np.ones((3, 2)), label_dependent=True)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([[1, 0, 1]], r"3 columns for 2 groups \(all, female\)"),
        ([1, 0], r"shape \(2,\), expected \(n, G\)"),
        (None, r"shape \(\)"),
        ([[1, 0], [1]], "not a matrix"),
        ([[1, 0], [1, 2]], r"membership\[1, 1\] = 2 \(group 'female'\)"),
        ([[1, 0.5]], r"membership\[0, 1\] = 0\.5"),
        ([[1, float("nan")]], r"membership\[0, 1\] = nan"),
        ([[1, None]], r"membership\[0, 1\] = None"),
        ([["1", "0"]], r"membership\[0, 0\] = 1 .*neither"),
        (pd.DataFrame({"all": [True, pd.NA], "female": [True, False]}), r"\[1, 0\] = <NA>"),
        (pl.DataFrame({"all": [True], "female": [None]}), r"\[0, 1\]"),
        (pd.DataFrame({"female": [True], "all": [True]}), "female, all but the groups are all, f"),
    ],
)
def test_matrices_that_cannot_be_used(matrix, message):
    with pytest.raises(GCFCPError, match=message):
        NAMES.check(matrix)


# --- packing, atoms, lookup -------------------------------------------------------------------


def random_matrix(n, G, patterns=None, seed=0):
    rng = np.random.default_rng([seed, n, G])
    rows = rng.random((patterns or n, G)) < rng.random(G)
    return rows if patterns is None else rows[rng.integers(0, patterns, n)]


matrices = hnp.arrays(np.bool_, st.tuples(st.integers(0, 40), st.integers(1, 70)))


@given(matrices, st.booleans())
@settings(derandomize=True, deadline=None)
def test_pack_is_packbits(matrix, fortran):
    given_matrix = np.asfortranarray(matrix) if fortran else matrix
    packed = pack(given_matrix)
    assert packed.dtype == np.uint8
    np.testing.assert_array_equal(packed, np.packbits(matrix, axis=1))


@pytest.mark.parametrize("G", [1, 7, 8, 9, 16, 24, 65, 1000])
def test_pack_is_packbits_for_many_rows_and_strides(G):
    matrix = random_matrix(20_000, G)
    for view in (matrix, matrix[::3], matrix[:, ::-1]):
        np.testing.assert_array_equal(pack(view), np.packbits(view, axis=1))


def assert_atoms_of(matrix):
    atoms = find_atoms(matrix)
    rows, index, counts = np.unique(matrix, axis=0, return_inverse=True, return_counts=True)
    np.testing.assert_array_equal(atoms.membership, rows)
    np.testing.assert_array_equal(atoms.index, index.ravel())
    np.testing.assert_array_equal(atoms.counts, counts)
    assert atoms.counts.dtype == np.int64
    assert atoms.uncovered == int((~matrix.any(axis=1)).sum())
    assert len(atoms) == len(rows)


@given(matrices)
@settings(derandomize=True, deadline=None)
def test_atoms_are_the_sorted_distinct_rows(matrix):
    if len(matrix) == 0:
        assert find_atoms(matrix).membership.shape == matrix.shape
    else:
        assert_atoms_of(matrix)


@pytest.mark.few(14)
@pytest.mark.parametrize("G", [1, 3, 8, 9, 16, 17, 32, 33, 100, 1000])
@pytest.mark.parametrize("patterns", [1, 7, 300, None])
def test_atoms_of_many_rows(G, patterns):
    assert_atoms_of(random_matrix(3_000, G, patterns))


@pytest.mark.slow
def test_atoms_across_blocks():
    matrix = random_matrix(200_000, 20, patterns=900)
    matrix[-1] = ~matrix[0]  # Only the last block has this atom.
    assert_atoms_of(matrix)


@pytest.mark.parametrize(("a", "dtype"), [(1, np.uint8), (256, np.uint8), (257, np.uint16)])
def test_atom_index_takes_the_smallest_type(a, dtype):
    bits = np.unpackbits(np.arange(a, dtype=">u2").view(np.uint8)).reshape(a, 16).astype(bool)
    assert find_atoms(np.repeat(bits, 2, axis=0)).index.dtype == dtype


def test_rows_in_no_group_keep_an_atom_and_are_counted():
    atoms = find_atoms(np.array([[1, 0], [0, 0], [0, 1], [0, 0]], dtype=bool))
    assert atoms.uncovered == 2
    assert atoms.membership.astype(int).tolist() == [[0, 0], [0, 1], [1, 0]]
    assert atoms.index.tolist() == [2, 0, 1, 0]
    assert atoms.counts.tolist() == [2, 1, 1]


def test_atoms_cannot_be_written_to_and_leave_the_matrix_alone():
    matrix = random_matrix(10, 3)
    atoms = find_atoms(matrix)
    for array in (atoms.membership, atoms.index, atoms.counts):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    matrix[:] = False


@given(matrices, st.randoms(use_true_random=False))
@settings(derandomize=True, deadline=None)
def test_lookup_finds_what_is_there(matrix, random):
    rows = np.unique(matrix, axis=0) if len(matrix) else matrix
    kept = [row for row in rows if random.random() < 0.6]
    random.shuffle(kept)
    table = np.array(kept, dtype=bool).reshape(-1, matrix.shape[1])
    places = {row.tobytes(): place for place, row in enumerate(table)}
    expected = [places.get(row.tobytes(), -1) for row in matrix]
    assert AtomLookup(table).find(matrix).tolist() == expected


@pytest.mark.parametrize("G", [1, 8, 10, 16, 17, 64, 500])
def test_lookup_inverts_atoms_for_many_rows(G):
    matrix = random_matrix(150_000 if G <= 64 else 5_000, G, patterns=60)
    atoms = find_atoms(matrix)
    np.testing.assert_array_equal(AtomLookup(atoms.membership).find(matrix), atoms.index)
    assert (AtomLookup(atoms.membership[:0]).find(matrix) == -1).all()


def test_lookup_does_not_follow_changes_of_its_argument():
    table = np.array([[True, False]])
    lookup = AtomLookup(table)
    table[:] = False
    assert lookup.find(np.array([[True, False]])).tolist() == [0]
    assert lookup.membership.tolist() == [[True, False]]


def test_lookup_serves_many_threads():
    matrix = random_matrix(5_000, 40, patterns=30)
    lookup = AtomLookup(find_atoms(matrix).membership)
    expected, results = lookup.find(matrix), []
    threads = [
        threading.Thread(target=lambda: results.append(lookup.find(matrix))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    assert all((result == expected).all() for result in results)


@pytest.mark.parametrize("function", [pack, find_atoms, AtomLookup])
@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.zeros((2, 2)), "float64, not a bool matrix"),
        ([[True]], "list, not a bool matrix"),
        (np.zeros(3, dtype=bool), r"shape \(3,\)"),
        (np.zeros((3, 0), dtype=bool), r"shape \(3, 0\)"),
    ],
)
def test_atoms_need_a_bool_matrix(function, matrix, message):
    with pytest.raises(GCFCPError, match=message):
        function(matrix)


def test_lookup_refuses_repeated_atoms_and_other_widths():
    with pytest.raises(GCFCPError, match="2 atoms, but only 1 distinct"):
        AtomLookup(np.zeros((2, 3), dtype=bool))
    with pytest.raises(GCFCPError, match="2 columns, but the table of atoms has 3"):
        AtomLookup(np.zeros((1, 3), dtype=bool)).find(np.zeros((1, 2), dtype=bool))


def test_importing_groups_loads_numpy_only():
    code = (
        "import sys; from gcfcp.groups import Groups; Groups({'a': 'x > 1'}).fingerprint; "
        "assert not {'polars', 'pandas', 'pyarrow', 'scipy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("predicates", [["x > 0"], ["x > 0", "x > 1", "x > 2"]])
def test_each_group_needs_its_own_condition(predicates):
    with pytest.raises(GCFCPError, match=f"{len(predicates)} conditions for 2 groups"):
        Groups(["low", "high"], predicates)


def test_a_family_cannot_be_changed():
    """Its fingerprint stands in files: a family that changed would belie them."""
    family = Groups(["low", "high"])
    with pytest.raises(AttributeError):
        family.names = ("low",)
    assert family.names == ("low", "high")


# --- plain columns: arrays and lists, without polars ----------------------------------------------

BOOLEANS = st.lists(st.booleans(), min_size=3, max_size=3)
MAYBE = st.lists(st.sampled_from([True, False, None]), min_size=3, max_size=3)
NUMBERS = st.lists(st.sampled_from([0, 1, 1, 2, -1]), min_size=3, max_size=3)
SOME_NUMBERS = st.lists(st.sampled_from([0, 1, None]), min_size=3, max_size=3)
FLOATS = st.lists(
    st.sampled_from([0.0, 1.0, -0.0, math.nan, 0.5, math.inf]), min_size=3, max_size=3
)
WORDS = st.lists(st.sampled_from(["yes", "no", None]), min_size=3, max_size=3)
TYPES = [np.bool_, np.int8, np.uint64, np.float32, np.float64]
PLAIN = st.one_of(
    BOOLEANS,
    BOOLEANS.map(tuple),
    MAYBE,
    NUMBERS,
    SOME_NUMBERS,
    FLOATS,
    FLOATS.map(np.array),
    WORDS,
    *(BOOLEANS.map(lambda column, to=kind: np.array(column, dtype=to)) for kind in TYPES),
)


def found(groups, data):
    """The membership with its warnings, or the error."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            result = groups.membership(data).tolist()
        except GCFCPError as error:
            result = str(error)
    return result, [str(warning.message) for warning in said]


@settings(max_examples=300, deadline=None)
@given(PLAIN, PLAIN)
def test_plain_columns_are_read_as_a_frame_of_them_is(a, b):
    groups = Groups(["a", "b"])
    assert found(groups, {"a": a, "b": b, "other": None}) == found(
        groups, pl.DataFrame({"a": a, "b": b})
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "group 'a' needs column 'a'; the data have no columns"),
        ({"a": [True]}, "group 'b' needs column 'b'; the data have a"),
        ({"a": [True], "b": [True, False]}, "'b' has 2 rows, 'a' has 1"),
        ({"a": True, "b": [True]}, r"column 'a' has shape \(\), expected one value for each row"),
        ({"a": np.ones((2, 2)), "b": [0, 1]}, r"column 'a' has shape \(2, 2\)"),
        ({"a": [[1], [0, 1]], "b": [0, 1]}, "cannot read the columns"),
        ({"a": [b"x"], "b": [0]}, "group 'a': its column is Binary, not Boolean"),
        ({"a": [1j], "b": [0]}, "group 'a': its column is Object, not Boolean"),
        ({"a": np.array(["2020"], "M8[Y]"), "b": [0]}, "its column is Datetime, not Boolean"),
        ([1], "membership needs a data frame or a mapping of columns, not list"),
    ],
)
def test_plain_columns_that_cannot_be_read(data, message):
    with pytest.raises(GCFCPError, match=message):
        Groups(["a", "b"]).membership(data)


def test_plain_columns_of_mixed_kinds():
    groups = Groups(["a"])
    assert groups.membership({"a": [True, 0, 1.0]}).tolist() == [[True], [False], [True]]
    assert groups.membership({"a": []}).shape == (0, 1)
    assert groups.membership({"a": range(2)}).tolist() == [[False], [True]]
    some = {"a": np.array([True, None, math.nan], dtype=object)}
    with pytest.warns(GCFCPWarning, match=r"some of 3 rows.* \(a: 2\)"):
        membership = groups.membership(some)
    assert membership.tolist() == [[True], [False], [False]]


def test_without_polars_a_groups_file_is_read_by_its_words(tmp_path):
    (tmp_path / "good.toml").write_text('a = "x >"\nb = "TRUE"\n')  # polars cannot read the first
    (tmp_path / "bad.toml").write_text('a = "mean(x) > 1"\n')
    program = """
import gcfcp
groups = gcfcp.Groups.from_toml("good.toml")
print(groups.fingerprint, gcfcp.Groups(["a"]).columns)
for attempt in (lambda: gcfcp.Groups.from_toml("bad.toml"), lambda: groups.membership({"x": [1]})):
    try:
        attempt()
    except gcfcp.GCFCPError as error:
        print(error)
"""
    lines = run_without(["polars"], program, cwd=tmp_path).stdout.splitlines()
    assert lines[0] == f"{Groups({'a': 'x >', 'b': 'TRUE'}).fingerprint} ('a',)"
    assert lines[1].startswith("bad.toml: group 'a': condition calls mean()")
    assert lines[2].startswith("polars is needed for the conditions of groups and is not installed")
    with pytest.raises(GCFCPError, match="cannot be read as a condition"):
        Groups.from_toml(tmp_path / "good.toml")


def test_the_table_of_a_lookup_cannot_be_written_and_is_not_shown():
    lookup = AtomLookup(np.eye(3, dtype=bool))
    assert not lookup._table.flags.writeable
    assert "_table" not in repr(lookup)
    assert "_places" not in repr(lookup)


def test_whatever_a_reader_of_columns_raises_is_one_line():
    def broken(_):
        raise ValueError("first line\nsecond line")

    with pytest.raises(GCFCPError, match=r"cannot read the columns: first line$"):
        frames._read(broken, None)


@pytest.mark.parametrize("number", [-1, 2, 0.5, -0.5])
def test_a_number_other_than_0_and_1_is_no_membership(number):
    with pytest.raises(GCFCPError, match="neither true/false nor 0/1"):
        Groups(["a", "b"]).check([[1, 0], [0, number]])


# --- every site as a group --------------------------------------------------------------------

SITES = Groups({"all": "TRUE", "over_65": "age >= 65"}, sites=["a", "b"])


def test_sites_are_the_last_groups():
    assert SITES.names == ("all", "over_65", "site a", "site b")
    assert SITES.predicates == ("TRUE", "age >= 65")
    assert SITES.conditions == ("TRUE", "age >= 65", "", "")
    assert SITES.sites == ("a", "b")
    assert SITES.columns == ("age",)
    assert Groups(["all"], sites=("b", "a")).columns == ("all",)
    assert SITES.names_of(np.array([1, 0, 0, 1], dtype=bool)) == ("all", "site b")
    assert PREDICATES.sites == ()
    assert PREDICATES.conditions == PREDICATES.predicates
    assert NAMES.conditions == ("", "")


def test_sites_are_part_of_the_definition():
    alike = Groups({"all": "TRUE", "over_65": "age >= 65"}, sites=["b", "a"])
    named = Groups(["all", "site a"])
    assert len({g.fingerprint for g in (SITES, alike, named, Groups(["all"], sites=["a"]))}) == 4
    text = '{"names":["all","site a"],"predicates":null,"sites":["a"]}'
    assert Groups(["all"], sites=["a"]).fingerprint == hashlib.sha256(text.encode()).hexdigest()


def test_a_family_without_sites_is_written_as_before():
    assert NAMES.to_toml() == 'names = ["all", "female"]\n'
    assert list(NAMES.to_dict()) == ["names", "predicates", "fingerprint"]
    assert Groups(["all", "female"], sites=[]) == NAMES


clients = st.text("abc ä'\"", min_size=1, max_size=4).filter(str.strip)


@given(
    st.lists(names.filter(lambda name: len(name) <= 200), max_size=3, unique=True),
    st.lists(clients, max_size=3, unique=True),
    st.booleans(),
)
@settings(derandomize=True, deadline=None)
def test_sites_survive_every_round_trip(others, sites, conditions):
    if not others and not sites:
        return
    assume(_look_different(others) and _look_different(sites))
    groups = Groups(dict.fromkeys(others, "x > 1") if conditions else others, sites=sites)
    for again in (
        Groups.from_toml_text(groups.to_toml()),
        Groups.from_dict(groups.to_dict()),
        Groups.from_dict(groups.to_dict("groups"), "groups"),
    ):
        assert again == groups
        assert again.fingerprint == groups.fingerprint


@pytest.mark.parametrize(
    "text",
    [
        'sites = ["a", "b"]\n[groups]\nall = "TRUE"\nover_65 = "age >= 65"\n',
        '[groups]\nall = "TRUE"\nover_65 = "age >= 65"\nsites = ["a", "b"]\n',
        'all = "TRUE"\nsites = ["a", "b"]\nover_65 = "age >= 65"\n',
    ],
)
def test_a_file_lists_its_sites(text):
    assert Groups.from_toml_text(text) == SITES


def test_a_file_may_list_names_or_nothing_beside_its_sites():
    named = Groups.from_toml_text('sites = ["a"]\nnames = ["all"]\n')
    assert named == Groups(["all"], sites=["a"])
    alone = Groups.from_toml_text('sites = ["a", "b"]\n')
    assert alone == Groups([], sites=["a", "b"]) == Groups({}, sites=["a", "b"])
    assert alone.predicates is None


def test_a_group_may_be_called_sites():
    text = 'sites = ["a"]\n[groups]\nsites = "x > 1"\n'
    assert Groups.from_toml_text(text).names == ("sites", "site a")
    assert Groups.from_toml_text('sites = "x > 1"\n').names == ("sites",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('sites = ["a"]\n[groups]\nsites = ["b"]\n', "both in .groups. and beside it: keep one"),
        ('sites = ["a"]\nmore = 1\n[groups]\nall = "TRUE"\n', "^text: more stands beside"),
        ("sites = [1]\n", "site=1 is not a name"),
        ('sites = ["a", "a"]\n', "site 'a' is given twice: list each site once"),
        ('sites = ["a"]\n"site a" = "TRUE"\n', "'site a' is called like the group of a site"),
        ('sites = ["' + 196 * "a" + '"]\n', "has 201 characters, and at most 200 are allowed"),
        ("sites = []\n", "needs at least one group"),
    ],
)
def test_sites_that_cannot_be_used(text, message):
    with pytest.raises(GCFCPError, match=message):
        Groups.from_toml_text(text, source="text")


@pytest.mark.parametrize("sites", ["a", 1, None])
def test_sites_must_be_a_list(sites):
    with pytest.raises(GCFCPError, match="is not a list of clients: give one such as"):
        Groups(["all"], sites=sites)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sites": ["b", "a"]}, "do not end with the groups of their sites"),
        ({"sites": ["a", "b", "c", "d", "e"]}, "2 conditions for 0 groups"),
        ({"sites": "ab"}, "are not a list"),
        ({"sites": []}, "2 conditions for 4 groups"),
        ({"names": ["all", "old", "site a", "site b"]}, "fingerprint does not match"),
    ],
)
def test_written_sites_must_fit_the_names(change, message):
    with pytest.raises(GCFCPError, match=message):
        Groups.from_dict(SITES.to_dict() | change)


def test_with_all_keeps_the_sites():
    groups = Groups({"over_65": "age >= 65"}, sites=["a", "b"]).with_all()
    assert groups == SITES
    assert Groups([], sites=["a"]).with_all().names == ("all", "site a")


@pytest.mark.parametrize(
    ("site", "own"),
    [
        ("b", [1, 1, 1, 1]),
        (["a", "b", "b", "a"], [0, 1, 1, 0]),
        (np.array(["a", "b", "b", "a"]), [0, 1, 1, 0]),
        (pd.Series(["a", "b", "b", "a"], dtype="category"), [0, 1, 1, 0]),
        (pl.Series(["a", "b", "b", "a"]), [0, 1, 1, 0]),
    ],
)
def test_every_row_belongs_to_its_own_site(site, own):
    matrix = SITES.membership(COLUMNS, site)
    assert np.array_equal(matrix[:, :2], EXPECTED[:, :2])
    assert np.array_equal(matrix[:, 2:], np.eye(2, dtype=bool)[own])
    assert np.array_equal(SITES.complete(EXPECTED[:, :2], site), matrix)
    assert np.array_equal(SITES.complete(matrix, site), matrix)


@pytest.mark.parametrize("data", [{"x": [1, 2, 3]}, pd.DataFrame({"x": [1, 2, 3]})])
def test_a_family_of_sites_alone(data):
    alone = Groups([], sites=["a", "b"])
    assert np.array_equal(alone.membership(data, "b"), [[0, 1]] * 3)
    assert np.array_equal(alone.complete(np.empty((3, 0)), "b"), [[0, 1]] * 3)
    with pytest.raises(GCFCPError, match="number of rows is unknown"):
        alone.membership({}, "a")


def test_sites_of_columns_without_polars(tmp_path):
    program = (
        "from gcfcp.groups import Groups; "
        "print(Groups(['x'], sites=['a']).membership({'x': [0, 1]}, 'a').tolist())"
    )
    found = run_without(["polars"], program, cwd=tmp_path)
    assert found.stdout == "[[False, True], [True, True]]\n", found.stderr


@pytest.mark.parametrize(
    ("site", "message"),
    [
        (None, r"for each of the sites a, b: give the site of these rows \(site=..., or --site"),
        ("c", "site='c' is not one of the sites a, b: give one of them, or add it"),
        (["a", "b", "c", "a"], r"row 3: site='c' is not one of the sites a, b"),
        (["a", None, "b", "a"], r"row 2: site=None is not one"),
        ([["a"], {}, "b", "a"], r"row 1: site=\['a'\] is not one"),
        (["a", "b"], r"site has shape \(2,\) for 4 rows: give one name for all rows, or one for"),
        (1, r"site has shape \(\) for 4 rows"),
        (np.ma.array(["a"] * 4, mask=[0, 1, 0, 0]), "1 of 4 values of site are masked"),
    ],
)
def test_sites_of_rows_that_cannot_be_used(site, message):
    for attempt in (SITES.membership, lambda _, site: SITES.complete(EXPECTED[:, :2], site)):
        with pytest.raises(GCFCPError, match=message) as caught:
            attempt(COLUMNS, site)
        assert "\n" not in str(caught.value)


def test_many_sites_do_not_flood_the_message():
    many = Groups([], sites=[f"s{i}" for i in range(1000)])
    with pytest.raises(GCFCPError, match=r"s19, \.\.\. \(1000 in all\): give one") as caught:
        many.membership({"x": [1]}, "t")
    assert len(str(caught.value)) < 250


def test_a_family_without_sites_takes_no_site():
    message = "site='a' is given, but the groups have no sites: leave it out"
    with pytest.raises(GCFCPError, match=message):
        PREDICATES.membership(COLUMNS, site="a")
    with pytest.raises(GCFCPError, match=message):
        NAMES.complete([[1, 0]], "a")


@given(
    hnp.arrays(bool, hnp.array_shapes(min_dims=2, max_dims=3, min_side=1, max_side=4)),
    st.integers(1, 3),
    st.data(),
)
@settings(deadline=None)
def test_completing_a_matrix_adds_the_sites_and_nothing_else(matrix, S, data):
    labels = matrix.ndim == 3
    groups = Groups([f"g{g}" for g in range(matrix.shape[-1])], sites=[f"s{i}" for i in range(S)])
    own = data.draw(st.lists(st.integers(0, S - 1), min_size=len(matrix), max_size=len(matrix)))
    site = [f"s{i}" for i in own]
    full = groups.complete(matrix, site, label_dependent=labels)
    assert full.dtype == bool
    assert full.flags.c_contiguous
    assert np.array_equal(full[..., :-S], matrix)
    assert (full[..., -S:].sum(axis=-1) == 1).all()
    assert (own == full[..., -S:].argmax(axis=-1).T).all()
    assert np.array_equal(groups.complete(full, site, label_dependent=labels), full)
    at = data.draw(st.tuples(*(st.integers(0, k - 1) for k in full[..., -S:].shape)))
    full[..., -S:][at] ^= True
    with pytest.raises(
        GCFCPError, match=f"membership row {at[0] + 1} belongs to .*, but its site is"
    ):
        groups.complete(full, site, label_dependent=labels)


def test_the_first_contradiction_is_named():
    matrix = SITES.membership(COLUMNS, ["a", "b", "b", "a"])
    message = "row 2 belongs to site b, but its site is 'a': correct the row, or leave out the"
    with pytest.raises(GCFCPError, match=message):
        SITES.complete(matrix, "a")
    matrix[0, 2:] = False
    with pytest.raises(GCFCPError, match="row 1 belongs to no site, but its site is 'a'"):
        SITES.complete(matrix, "a")


def test_a_matrix_to_complete_has_one_column_for_each_group_or_each_other_group():
    with pytest.raises(GCFCPError, match=r"3 columns for 4 groups .*, or leave out those"):
        SITES.complete(np.ones((2, 3)), "a")
    with pytest.raises(GCFCPError, match="columns over_65, all but the groups are all, over_65:"):
        SITES.complete(pd.DataFrame({"over_65": [1], "all": [1]}), "a")
    with pytest.raises(GCFCPError, match=r"\(group 'over_65'\) is neither true/false nor 0/1"):
        SITES.complete([[1, 2]], "a")
    with pytest.raises(GCFCPError, match="2 columns for 4 groups"):
        SITES.check([[1, 1]])


# --- Names that look alike -----------------------------------------------------------------------

INVISIBLE = [
    *("\u202e", "\u202a", "\u2066", "\u2069", "\u200e", "\u200f", "\u061c"),  # direction
    *("\u200b", "\u200c", "\u200d", "\u2060", "\ufeff", "\u00ad", "\u180e"),  # no width
    *("\u034f", "\u3164", "\u115f", "\uffa0", "\u2800", "\ufe00", "\U000e0041", "\U000e0100"),
]


@pytest.mark.parametrize("character", INVISIBLE, ids=lambda c: f"U+{ord(c):04X}")
def test_invisible_characters_in_names_are_refused_and_named(character):
    said = f"U\\+{ord(character):04X} .*: write it without"
    with pytest.raises(GCFCPError, match=said):
        Groups(["over_65", f"over{character}_65"])
    with pytest.raises(GCFCPError, match=f"client=.* is not a name: .*{said}"):
        checks.name("client", f"north{character}")
    with pytest.raises(GCFCPError, match=said):
        Groups.from_dict({"names": [f"a{character}"], "predicates": None, "fingerprint": "0" * 64})


@pytest.mark.parametrize(
    "pair",
    [
        ("caf\u00e9", "cafe\u0301"),  # composed and not
        ("over 65", "over\u00a065"),
        ("over 65", "over  65"),
        ("over 65", "over 65 "),
        ("fine", "\ufb01ne"),  # a ligature
        ("A", "\uff21"),  # a wide letter
        ("\u2764", "\u2764\ufe0f"),  # two forms of an emoji
        ("\u00c5", "\u212b"),  # a letter and a unit
    ],
)
def test_two_names_that_look_the_same_are_refused(pair):
    with pytest.raises(GCFCPError, match=r"look the same.*rename one"):
        Groups(pair)
    for name in pair:
        assert Groups([name]).names == (name,)


def test_names_of_all_scripts_are_accepted():
    named = [
        "A",
        "a",
        "café",
        "да",
        "北京",
        "الله",
        "हिन्दी",
        "\U0001f600",
        "\u2764\ufe0f",
        "x² > 1",
    ]
    assert Groups(named).names == tuple(named)


def test_a_site_cannot_look_like_a_group():
    with pytest.raises(GCFCPError, match="look the same"):
        Groups(["site\u00a0a"], sites=["a"])
