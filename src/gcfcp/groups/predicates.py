"""What SQL a group may be defined by: a condition that looks at one row only.

Guarantee: a row's groups do not depend on the other rows of its site, on the time or on chance.
polars reads the SQL; nothing is evaluated as code. Only the row-wise functions listed below can be
called, and aggregates, windows and subqueries are refused.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from gcfcp.errors import GCFCPError

if TYPE_CHECKING:
    import polars as pl

MAX_PREDICATE = 4_000  # characters: deeper expressions could exhaust the parser's stack

# What may stand before "(": words of the grammar, and functions whose value at a row depends on
# that row alone. A list of what is allowed, because polars will learn new aggregates.
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
_REFUSED = {"select", "over", "current_date", "current_time", "current_timestamp"}
_REFUSED |= {"localtime", "localtimestamp"}
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
    """Why a condition is not row-wise, or None. This is a matter of its words alone.

    polars' own view of an expression tells an aggregate from a row-wise function only in some
    versions and only at the root, so we decide on the tokens. What gets past here must still be
    parsed by polars.
    """
    if len(predicate) > MAX_PREDICATE:
        return f"condition has {len(predicate)} characters, more than {MAX_PREDICATE}"
    if any(unicodedata.category(character) == "Cs" for character in predicate):
        return "condition cannot be written as UTF-8"
    depth = 0  # of parentheses
    previous = last = ""  # the kind and text of the last token that is not blank
    adjacent = False  # no blank since then
    for token in _TOKEN.finditer(predicate):
        kind, text = token.lastgroup, token.group()
        if kind == "blank":
            adjacent = False
            continue
        if kind == "comment":
            return "condition holds an SQL comment: use a TOML one (#)"
        if kind == "word" and (text.lower() in _REFUSED or "$" in text):
            return f"condition uses {text}: a group must be defined row by row"
        if kind in ("string", "quoted") and previous == "word" and adjacent:
            return f"condition holds {last}{text[0]}: put a blank before the quotation mark"
        if kind == "open" and _is_foreign_call(previous, last):
            return (
                f"condition calls {last}(), which is not one of the row-wise functions: "
                "a group must be defined row by row"
            )
        depth += (text == "(") - (text == ")")
        if depth < 0 or text == ";":
            return f"condition holds a {text} too many: one condition a group"
        previous, last, adjacent = str(kind), text, True
    return "condition has an open parenthesis" if depth else None


def _is_foreign_call(kind: str, text: str) -> bool:
    return kind == "quoted" or (kind == "word" and text.lower() not in _MAY_OPEN)


def parse(name: str, predicate: str) -> pl.Expr:
    import polars as pl

    try:
        # In parentheses, because some versions read as far as they understand and drop the rest.
        return pl.sql_expr(f"({predicate})")
    except pl.exceptions.PolarsError as error:
        raise GCFCPError(
            f"group {name!r}: {predicate!r:.100} cannot be read as a condition: {first_line(error)}"
        ) from None


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
