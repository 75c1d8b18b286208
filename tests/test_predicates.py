"""A condition may come from a stranger: whatever it says, it takes little memory and little time.

Every attack runs in a process of its own with a limit on memory and on processor time.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gcfcp
from gcfcp import GCFCPError
from gcfcp.groups import costs, predicates

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from fuzz import mutations  # noqa: E402 (the path must be set first)


def nested(call: str, inner: str, times: int) -> str:
    for _ in range(times):
        inner = call.format(inner)
    return inner


ATTACKS = {
    "replace": "length(" + nested("replace({}, 'a', 'aaaaaaaaaa')", "sex", 9) + ") > 1",
    "replace nothing": "length(" + nested("replace({}, '', 'aaaa')", "sex", 12) + ") > 1",
    "replace by a column": "length(" + nested("replace({}, 'a', sex)", "sex", 30) + ") > 1",
    "concat": "length(" + nested("concat({0}, {0})", "sex", 7) + ") > 1",
    "many concat": "length(" + nested("concat({}, sex, sex, sex, sex, sex)", "sex", 20) + ") > 1",
    "concat_ws": f"length(concat_ws('{'a' * 300}', sex, sex, sex, sex, sex, sex, sex, sex)) > 1",
    "||": "length(" + " || ".join(["sex"] * 500) + ") > 1",
    "+": "x > " + "+".join(["x"] * 1900),
    "casts": "length(" + nested("(concat({0}, {0})::varchar || 'a')", "sex", 7) + ") > 1",
    "long text": f"length('{'a' * 3000}' || sex) > 1",
    "between": nested("({} between 1 and 2)", "x", 25),
    "between in a row": "x " + "between 1 and 2 " * 40,
    "between with xor": " xor ".join(["x between 1 and 2"] * 40),
    "in": nested("({} in (1, 2, x))", "x", 25),
    "in in a row": "x " + "in (1, x) " * 40,
    "in with columns": "x in (" + ",".join(["x"] * 1500) + ")",
    "in with sums": "x in (" + ",".join(["1+1"] * 900) + ")",
    "nullif": nested("nullif({}, 1)", "x", 30) + " > 1",
    "case": nested("case {} when 1 then 2 when 3 then 4 end", "x", 25) + " > 1",
    "right": nested("right({}, x)", "sex", 25) + " = 'a'",
    "left": nested("left({}, x)", "sex", 25) + " = 'a'",
    "substr": nested("substr({}, x, x)", "sex", 25) + " = 'a'",
    "extract": nested("extract(epoch from {})", "sex", 25) + " = 1",
    "and": " and ".join(["x>1"] * 450),
    "is null": " or ".join(["x is null"] * 300),
    "parentheses": "(" * 1900 + "x>1" + ")" * 1900,
    "decimal": "cast(x as decimal(999, 5)) > 1",
    "decimal scale": "cast(x as decimal(10, 99)) > 1",
    "decimal zero": "cast(x as numeric(0, 0)) > 1",
    "decimal column": "x::decimal(38, 39) > 1",
    "bytes": "cast(sex as blob) > x",
    "repetitions": "sex rlike '(a{1000}){1000}'",
    "nested repetitions": "regexp_like(sex, '((((a{100}){100}){100}){100})')",
    "pattern by pieces": "sex rlike concat('(a{10', '00}){1000}')",
    "pattern of a column": "sex ~ concat('(', sex)",
    "many patterns": " or ".join(f"sex ~ '\\w{{90}}{i}'" for i in range(100)),
    "repeated repetition": "sex ~ '(\\w\\w\\w)?{60}'||'' or sex ~ '(a|b)*{90}{90}'",
    "parenthesis in brackets": "sex ~ '(a[)]\\w\\w\\w){99}(a[])]\\w\\w){99}'",
    "leading zeros": "sex rlike '(a{000000000001000}){1000}'",
    "open end": "sex rlike '((a{,100}){,100}){,100}'",
    "blanks in a pattern": "sex ~ '(?x)(\\w\\w) # {1}\n {900}'",
    "blanks by a flag": "regexp_like(sex, '(\\w\\w) {900}', 'x')",
}  # fmt: skip

RUN = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (1500 * 2**20,) * 2)
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
import polars as pl
import gcfcp
try:
    groups = gcfcp.Groups.from_toml_text(sys.stdin.read())
    n = 2**16
    frame = pl.DataFrame({"sex": ["banana"] * n, "x": [1] * n, "y": [0.5] * n})
    groups.membership(frame)
except gcfcp.GCFCPError as error:
    print(error)
    sys.exit(3)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs resource limits")
@pytest.mark.parametrize("name", ATTACKS)
def test_no_condition_takes_much_memory_or_time(name: str) -> None:
    """The line names the group. Each of these took gigabytes, minutes or a panic in 0.1.0."""
    predicate = ATTACKS[name]
    found = subprocess.run(
        [sys.executable, "-c", RUN],
        input=f"bad = {json.dumps(predicate)}",
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"POLARS_MAX_THREADS": "2"},
    )
    assert found.returncode == 3, (found.returncode, found.stderr[-500:])
    assert "bad" in found.stdout
    assert len(found.stdout) < 600
    assert "\n" not in found.stdout.strip()
    assert not found.stderr


@pytest.mark.parametrize("name", ATTACKS)
def test_the_same_conditions_are_refused_in_every_file(name: str) -> None:
    """A summary, an audit, a shape and a predictor all read their groups with `from_dict`."""
    values = gcfcp.Groups({"bad": "TRUE"}).to_dict() | {"predicates": [ATTACKS[name]]}
    with pytest.raises(GCFCPError, match="bad"):
        gcfcp.Groups.from_dict(values)


ORDINARY = [
    "TRUE", "age >= 65", "sex = 'F'", "age between 40 and 64 and sex = 'F'", "not b",
    "age < 30 or sex = 'F'", "predicted in (0, 1, 2)", "x not in (-1, -2, 3.5)",
    '"blood pressure" > 140', "case when x > 1 then b else not b end",
    "case sex when 'F' then x > 1 when 'M' then x > 2 else FALSE end",
    "length(trim(lower(replace(sex, '-', '')))) = 1", "left(code, 1) = 'C'",
    "substr(upper(code), 2, 2) in ('50', '51')", "right(code, 2) = '.9'",
    "code rlike '^[A-Z][0-9]{2}(\\.[0-9]{1,2})?$'", "regexp_like(code, '^c5', 'i')",
    "code ~ '^\\w+@(\\w+[.])+\\w{2,3}$'",
    " or ".join(f"code ~ '^C{i}\\.\\d{{1,2}}'" for i in range(99)),
    "code ~ '^[0-9a-f]{4}-([0-9a-f]{4}-){3}[0-9a-f]{4}$'", "code like 'C5%' or code ilike 'd%'",
    "concat(sex, '-', code) = 'F-C50'", "concat_ws('|', sex, code, code) <> ''",
    "sex || code || sex || code = 'a'", "replace(code, '.', ' point ') = 'a'",
    "cast(age as decimal(38, 2)) > 65.5", "cast(x as varchar) = '1'", "age::int % 2 = 0",
    "weight / pow(height / 100, 2) >= 30", "nullif(x, 0) is null", "coalesce(x, age, 0) > 1",
    "extract(year from date(born)) < 1960", "date_part('month', date(born)) in (6, 7, 8)",
    "greatest(x, age) - least(x, age) > 10", "(x between 1 and 2) = (age between 1 and 2)",
    " or ".join(f"x = {i}" for i in range(100)), " + ".join(["x"] * 40) + " > 1",
    "x in (" + ",".join(map(str, range(800))) + ")",
    "age in (" + ",".join(f"{i / 8 - 20}" for i in range(400)) + ", 1e-5, -.5)",
    "code in (" + ",".join(f"'C{i}'" for i in range(500)) + ")",
    " and ".join(f"x between {i} and {i + 1}" for i in range(60)),
]  # fmt: skip


@pytest.mark.parametrize("predicate", ORDINARY, ids=lambda p: p[:40])
def test_ordinary_conditions_keep_working(predicate: str) -> None:
    columns = {"age": [70.0], "sex": ["F"], "x": [1], "b": [True], "code": ["C50.9"]}
    columns |= {"predicted": [1], "blood pressure": [150.0], "weight": [90.0], "height": [170.0]}
    frame = pl.DataFrame(columns | {"born": ["1950-07-01"]})
    matrix = gcfcp.Groups({"g": predicate}).membership(frame)
    assert matrix.shape == (1, 1)


def _tokens(text: str) -> list[tuple[str, str]]:
    found = predicates._TOKEN.finditer(text)
    return [(str(t.lastgroup), t.group()) for t in found if t.lastgroup != "blank"]


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_the_size_is_never_below_the_number_of_columns_that_polars_writes(
    seed: int, deep: bool
) -> None:
    """polars prints the expression with all copies, so that its columns can be counted."""
    chance = random.Random(seed)
    text = mutations.nested_condition(chance) if deep else mutations.condition(chance)
    if predicates.problem_of(text) is not None:
        return
    try:
        expression = predicates.parse("g", text)
    except GCFCPError:
        return
    size = costs._size(costs._nested(_tokens(text)))
    assert str(expression).count('col("') <= size <= costs.MAX_SIZE


INFIX = (
    *(
        "and",
        "or",
        "xor",
        "=",
        "<",
        "<>",
        "+",
        "-",
        "*",
        "/",
        "%",
        "||",
        "&",
        "|",
        "div",
        "~ 'a' =",
    ),
    *("between 1 and", "between x and", "not between 1 and", "in (1, x) =", "not in (x, 2, 3) or"),
    *("in (1, 2) and", "is null =", "is not true <", "is distinct from", "like 'a%' =", "::int +"),
    *("rlike 'a' and", "and not", "or -", "between case when b then", "end and", "<=>", "^@", "//"),
)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(st.lists(st.sampled_from(INFIX), min_size=1, max_size=9))
def test_the_size_is_never_too_small_where_precedence_decides(infix: list[str]) -> None:
    """Without parentheses, it is the precedence of operators that says what polars copies."""
    text = "x " + " x ".join(infix) + " x"
    if predicates.problem_of(text) is not None:
        return
    try:
        expression = predicates.parse("g", text)
    except GCFCPError:
        return
    size = costs._size(costs._nested(_tokens(text)))
    assert str(expression).count('col("') <= size


@st.composite
def patterns(draw: st.DrawFn, depth: int = 4) -> tuple[str, int]:
    """A pattern, and how many characters it has when every repetition is written out."""
    kind = draw(st.sampled_from(["one", "join", "group", "repeat"] if depth else ["one"]))
    if kind == "one":
        classes = [
            r"\w",
            r"\d",
            ".",
            "[a-z]",
            "[]a]",
            "[^])(]",
            "[{3}(]",
            r"[\]\w]",
            "[[:alpha:])]",
        ]
        return draw(st.sampled_from(["a", "]", r"\(", r"\[", *classes])), 1
    text, size = draw(patterns(depth - 1))
    if kind == "join":
        more, other = draw(patterns(depth - 1))
        return text + draw(st.sampled_from(["", "|"])) + more, size + other
    opened = draw(st.sampled_from(["(", "(?:", "(?i:", "(?P<n>"]))
    if kind == "group":
        return f"{opened}{text})", size
    number = draw(st.integers(1, 40))
    sign = draw(st.sampled_from(["", "?", "*", "+", "{1}"]))
    how = draw(st.sampled_from(["{%d}", "{%d,}", "{0,%d}", "{ %d }", "{000000000%d}", "{%d}?"]))
    return f"{opened}{text}){sign}{how % number}", size * number


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(patterns())
def test_the_size_of_a_pattern_is_never_too_small(made: tuple[str, int]) -> None:
    text, size = made
    assert costs._pattern_size(text) >= size


WORST = ["a" * 7, "banana", "", "ab" * 9]


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32))
def test_no_text_is_longer_than_the_bound(seed: int) -> None:
    """Texts of which every character is replaced are among the columns."""
    text = mutations.condition(random.Random(seed), "t", 4)
    try:
        made: list[tuple[int, int]] = []
        times, quoted = costs._growth(costs._nested(_tokens(text)), made)
    except costs.TooCostly:
        return
    frame = pl.DataFrame(
        {"sex": WORST, "age": [1.5] * 4, "x": [2**40] * 4, "b": [True] * 4, "score": [0.1] * 4}
    )
    if times * 20 + quoted > 10**6:
        return
    try:
        values = frame.select(pl.sql_expr(f"({text})").alias("t")).to_series()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return
    longest = values.cast(pl.String).str.len_chars().max() or 0
    assert longest <= times * 400 + quoted  # A number takes fewer than 400 characters.


def test_a_panic_of_polars_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A panic does not derive from Exception."""
    panic = pl.exceptions.PanicException
    groups = gcfcp.Groups({"old": "age >= 65"})
    frame = pl.DataFrame({"age": [1]})

    def fall(*_: object) -> None:
        raise panic("index out of bounds\nsecond line")

    with monkeypatch.context() as patch:
        patch.setattr(pl.DataFrame, "select", fall)
        with pytest.raises(GCFCPError, match=r"group 'old': .*age >= 65.*out of bounds"):
            groups.membership({"age": [1]})
    with monkeypatch.context() as patch:
        patch.setattr(pl, "sql_expr", fall)
        with pytest.raises(GCFCPError, match=r"group 'old': .* cannot be read"):
            gcfcp.Groups({"old": "age >= 65"}).membership(frame)
