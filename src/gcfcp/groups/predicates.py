"""The SQL that may define a group: a condition that looks at one row only.

Guarantee: The groups of a row do not depend on the other rows of its site, on the time or on
chance. polars reads the SQL, and nothing is evaluated as code. Only the row-wise functions that are
listed below can be called. Aggregates, windows and subqueries are refused. What a condition can
cost is bounded by its tokens (see `costs`), because a stranger's file may hold it.

One exception is known: `date()` of a text. polars takes the format from the first text that it
sees, so that a column that mixes formats is an error in one order of rows and not in another.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from gcfcp.errors import GCFCPError
from gcfcp.groups.costs import TooCostly, refuse_costly

if TYPE_CHECKING:
    import polars as pl

MAX_PREDICATE = 4_000  # A longer condition could be so nested that it exhausts the parser's stack.

# Only these words may stand before "(": words of the grammar, and functions whose value at a row
# depends on that row alone. We list what is allowed, because polars will learn new aggregates.
_GRAMMAR = """
    and or not in between like ilike rlike regexp is case when then else from for as
    decimal numeric varchar char
"""
_ROW_WISE = """
    abs ceil ceiling floor round sign sqrt cbrt exp ln log log2 log10 log1p pow power mod div pi
    sin cos tan asin acos atan atan2 degrees radians
    greatest least coalesce ifnull nullif if cast try_cast
    bit_length char_length character_length octet_length length concat concat_ws
    starts_with ends_with strpos position regexp_like replace reverse left right
    lower upper initcap ltrim rtrim trim substr substring
    date date_part extract strptime
"""
_MAY_OPEN = frozenset((_GRAMMAR + _ROW_WISE).split())
# These words are refused anywhere: subqueries, windows, and constants that change with time.
_REFUSED = {"select", "over", "current_date", "current_time", "current_timestamp"}
_REFUSED |= {"localtime", "localtimestamp"}
# Every character of a condition belongs to one of these tokens.
_TOKEN = re.compile(
    r"""(?P<string>'(?:[^']|'')*')"""
    r"""|(?P<quoted>"(?:[^"]|"")*"|`[^`]*`)"""
    r"""|(?P<comment>--|/\*)"""
    r"""|(?P<word>[\w@\#$]+)"""
    r"""|(?P<open>\()"""
    r"""|(?P<blank>\s+)"""
    r"""|(?P<symbol>.)""",
    re.DOTALL,
)


def problem_of(predicate: str) -> str | None:
    """Why a condition is not row-wise or too costly, as part of a sentence, or None if it is fine.

    Only its tokens are looked at. polars can tell an aggregate from a row-wise function in some
    versions only, and only at the root of an expression. What passes here must still be parsed by
    polars.
    """
    if len(predicate) > MAX_PREDICATE:
        return f"condition has {len(predicate)} characters, and at most {MAX_PREDICATE} are allowed"
    if any(unicodedata.category(character) == "Cs" for character in predicate):
        return "condition cannot be written as UTF-8"
    depth = 0  # This many parentheses are open.
    previous = last = ""  # These are the kind and the text of the last token that is not blank.
    adjacent = False  # Whether no blank has followed that token.
    tokens: list[tuple[str, str]] = []  # The kind and the text of all tokens that are not blank.
    for token in _TOKEN.finditer(predicate):
        kind, text = token.lastgroup, token.group()
        if kind == "blank":
            adjacent = False
            continue
        if kind == "comment":
            return "condition contains an SQL comment: write a TOML comment (#) instead"
        if kind == "word" and (text.lower() in _REFUSED or "$" in text):
            return f"condition uses {text}: a group must be defined row by row"
        if kind == "symbol" and text in "'\"`":
            # Another condition, joined to this one by AND, would close it.
            return f"condition has an open quotation mark {text}: close it"
        if kind in ("string", "quoted") and previous == "word" and adjacent:
            return f"condition contains {last}{text[0]}: put a blank before the quotation mark"
        if kind == "open" and _is_foreign_call(previous, last):
            return (
                f"condition calls {last}(), which is not one of the row-wise functions: "
                "a group must be defined row by row"
            )
        depth += (text == "(") - (text == ")")
        if depth < 0 or text == ";":
            return f"condition has one {text} too many: give one condition for each group"
        previous, last, adjacent = str(kind), text, True
        tokens.append((previous, text))
    if depth:
        return "condition has an open parenthesis: close it"
    try:
        refuse_costly(tokens)
    except TooCostly as error:
        return str(error)
    return None


def _is_foreign_call(kind: str, text: str) -> bool:
    """Whether a "(" after this token would call something that is not row-wise."""
    return kind == "quoted" or (kind == "word" and text.lower() not in _MAY_OPEN)


def parse(name: str, predicate: str) -> pl.Expr:
    """The condition of a group as an expression of polars, or a GCFCPError that names the group."""
    import polars as pl

    try:
        # Without the parentheses, some versions stop where they no longer understand the condition
        # and silently drop the rest.
        return pl.sql_expr(f"({predicate})")
    except (Exception, pl.exceptions.PanicException) as error:
        raise GCFCPError(
            f"group {name!r}: {predicate!r:.100} cannot be read as a condition: {first_line(error)}"
        ) from None


def first_line(error: BaseException) -> str:
    """The first 300 characters of the first line of an error's message, or the error's type."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
