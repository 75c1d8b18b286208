"""Groups of rows, and the atoms that they cut the rows into.

A family of G groups is public: every client uses the same one, and its fingerprint travels with
every summary. `Groups` names the family, and says if it can who belongs to it; a membership matrix
(bool, n rows x G groups) says who does. Groups may overlap. The rows that belong to exactly the
same groups form an atom, the finest cell that the family can tell apart: a threshold is a number
per atom.

| code               | paper                                                          |
|--------------------|----------------------------------------------------------------|
| `Groups`           | the family of groups                                           |
| membership row     | Phi(x) in {0, 1}^G, the indicator of the groups of x           |
| `Atoms.membership` | the distinct values of Phi, sorted                             |
| `Atoms.index`      | which of these values each row has                             |

A groups file is TOML, a name and a row-wise SQL condition a line; the file's order is the groups'
order, and column names with blanks or capitals of their own are written "in double quotes":

    [groups]                    # this line may be left out
    all = "TRUE"
    over_65 = "age >= 65"
    female = "sex = 'F'"
    predicted_low = "predicted in (0, 1, 2)"

or, for groups without conditions, the one line `names = ["all", "female"]`.

Guarantee: a condition looks at one row only, so a row's groups do not depend on the other rows of
its site, on the time or on chance. polars reads the SQL; nothing is evaluated as code. Only the
row-wise functions listed below can be called, and aggregates, windows and subqueries are refused.

Cost: atoms are found from packed bits, 16 groups at a time, without sorting rows: 10,000,000 rows x
16 groups take about 0.1 s and 5 bytes a row beyond the matrix.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gcfcp.errors import GCFCPError, GCFCPWarning

if TYPE_CHECKING:
    import polars as pl

__all__ = ["AtomLookup", "Atoms", "Groups", "find_atoms", "pack"]

MAX_NAME = 200  # characters
MAX_PREDICATE = 4_000  # characters: deeper expressions could exhaust the parser's stack
_BLOCK = 1 << 16  # rows, or bytes of a buffer, that stay in the cache


@dataclass(frozen=True, init=False)
class Groups:
    """A family of groups: names, and one condition over columns for each if there are any.

    `Groups(names)` has names only, and the caller brings the membership matrix (`check`) or one
    boolean column a group (`membership`). `Groups(names, predicates)`, `Groups({name: predicate})`
    and `Groups.from_toml(path)` also say who belongs. The order matters: it is the order of the
    matrix's columns.
    """

    names: tuple[str, ...]
    predicates: tuple[str, ...] | None

    def __init__(
        self,
        names: Iterable[str] | Mapping[str, str],
        predicates: Iterable[str] | None = None,
    ) -> None:
        if isinstance(names, Mapping):
            predicates = names.values()
        object.__setattr__(self, "names", _checked_names(names))
        object.__setattr__(self, "predicates", _checked_predicates(self.names, predicates))

    @classmethod
    def from_toml(cls, path: str | PathLike[str]) -> Groups:
        """Read a groups file, and check that polars understands every condition in it."""
        try:
            text = Path(path).read_bytes().decode("utf-8-sig")
        except OSError as error:
            raise GCFCPError(f"cannot read groups file {path}: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise GCFCPError(f"groups file {path} is not UTF-8: byte {error.start}") from None
        return cls.from_toml_text(text, source=str(path))

    @classmethod
    def from_toml_text(cls, text: str, source: str = "groups text") -> Groups:
        """The same from the text itself; `source` names it in errors."""
        try:
            groups = cls._from_table(tomllib.loads(text))
            groups._expressions()
        except tomllib.TOMLDecodeError as error:
            raise GCFCPError(f"{source}: not valid TOML: {error!s:.200}") from None
        except RecursionError:
            raise GCFCPError(f"{source}: not a groups file: it is nested too deeply") from None
        except GCFCPError as error:
            raise GCFCPError(f"{source}: {error}") from None
        return groups

    @classmethod
    def _from_table(cls, table: dict[str, Any]) -> Groups:
        if list(table) == ["names"] and isinstance(table["names"], list):
            return cls(table["names"])
        if isinstance(table.get("groups"), dict):
            if len(table) > 1:
                others = ", ".join(key for key in table if key != "groups")
                raise GCFCPError(f"{others} stands beside [groups]: move it into that table")
            table = table["groups"]
        return cls(table)

    def to_toml(self) -> str:
        """The groups file of this family; reading it gives the same fingerprint."""
        if self.predicates is None:
            return f"names = [{', '.join(map(_toml_string, self.names))}]\n"
        lines = (
            f"{_toml_string(name)} = {_toml_string(predicate)}\n"
            for name, predicate in zip(self.names, self.predicates, strict=True)
        )
        return "[groups]\n" + "".join(lines)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) of the canonical JSON of names and conditions, in their order."""
        definition = {"names": self.names, "predicates": self.predicates}
        text = json.dumps(definition, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns that `membership` reads, each once, in the order of first use."""
        if self.predicates is None:
            return self.names
        roots = (root for expr in self._expressions() for root in expr.meta.root_names())
        return tuple(dict.fromkeys(roots))

    def with_all(self, name: str = "all") -> Groups:
        """The family with one more group, first in order, to which every row belongs.

        Where groups have conditions, its condition is TRUE. Where they have names only, the caller
        brings it like any other group: a column of ones in the matrix or the data.
        """
        predicates = None if self.predicates is None else ("TRUE", *self.predicates)
        return Groups((name, *self.names), predicates)

    def membership(self, data: Any) -> NDArray[np.bool_]:
        """Who belongs to what: bool (n, G), from a data frame or a mapping of columns.

        `data`: pandas, polars, pyarrow, anything that speaks the Arrow stream protocol, or a dict
        of columns. Groups without conditions are read from one boolean (or 0/1) column a name.
        A condition that comes out null, because a value is missing (null, or NaN in any floating
        column), makes the row no member, and one warning says how many per group.
        """
        table = _table(data)
        self._check_columns([str(c) for c in getattr(table, "columns", table)])
        frame, n = _select(table, self.columns)
        frame = frame.fill_nan(None)  # polars puts NaN above every number: age >= 65 would hold
        out = np.empty((n, len(self)), dtype=np.bool_)
        nulls: dict[str, int] = {}
        for g, (name, expr) in enumerate(zip(self.names, self._expressions(), strict=True)):
            column = self._evaluate(frame, name, expr)
            if column.null_count():
                nulls[name] = column.null_count()
                column = column.fill_null(False)
            out[:, g] = column.to_numpy()
        if nulls:
            counts = ", ".join(f"{name}: {count}" for name, count in nulls.items())
            warnings.warn(
                f"missing values decide membership for some of {n} rows, which count as "
                f"not members ({counts})",
                GCFCPWarning,
                stacklevel=2,
            )
        return out

    def check(self, membership: Any, *, label_dependent: bool = False) -> NDArray[np.bool_]:
        """The caller's matrix as C-contiguous bool (n, G), or (n, L, G) if `label_dependent`.

        Anything array-like is taken; numbers are taken if every one of them is exactly 0 or 1.
        """
        self._check_order(membership)
        try:
            array = np.asarray(membership)
        except (ValueError, TypeError) as error:
            raise GCFCPError(f"membership is not a matrix: {error}") from None
        shape = "(n, L, G)" if label_dependent else "(n, G)"
        if array.ndim != (3 if label_dependent else 2):
            raise GCFCPError(f"membership has shape {array.shape}, expected {shape}")
        if array.shape[-1] != len(self):
            raise GCFCPError(
                f"membership has {array.shape[-1]} columns for {len(self)} groups "
                f"({_listed(self.names)})"
            )
        if array.dtype != np.bool_:
            self._check_binary(array)
        return np.ascontiguousarray(array, dtype=np.bool_)

    def _check_order(self, membership: Any) -> None:
        """A frame that knows its column names must have them in the order of the groups."""
        columns = [str(column) for column in getattr(membership, "columns", ())]
        if sorted(columns) == sorted(self.names) and columns != list(self.names):
            raise GCFCPError(
                f"membership has columns {_listed(columns)} but the groups are "
                f"{_listed(self.names)}: put them in this order"
            )

    def _check_binary(self, array: NDArray[Any]) -> None:
        if array.dtype == object:
            numbers = (bool, int, float, np.bool_, np.number)
            flat = [isinstance(v, numbers) and v in (0, 1) for v in array.ravel()]
            good = np.array(flat, dtype=np.bool_).reshape(array.shape)
        elif np.issubdtype(array.dtype, np.number):
            good = (array == 0) | (array == 1)
        else:
            good = np.zeros(array.shape, dtype=np.bool_)
        if not good.all():
            at = np.unravel_index(int(good.argmin()), good.shape)
            raise GCFCPError(
                f"membership[{', '.join(str(int(i)) for i in at)}] = {array[at]!s:.40} "
                f"(group {self.names[int(at[-1])]!r}) is neither true/false nor 0/1"
            )

    def _expressions(self) -> list[pl.Expr]:
        import polars as pl

        if self.predicates is None:
            return [pl.col(name) for name in self.names]
        parsed = zip(self.names, self.predicates, strict=True)
        return [_parse(name, predicate) for name, predicate in parsed]

    def _check_columns(self, present: list[str]) -> None:
        for name, expr in zip(self.names, self._expressions(), strict=True):
            for column in expr.meta.root_names():
                if column not in present:
                    raise GCFCPError(
                        f"group {name!r} needs column {column!r}; "
                        f"the data have {_listed(present) or 'no columns'}"
                    )

    def _evaluate(self, frame: pl.DataFrame, name: str, expr: pl.Expr) -> pl.Series:
        import polars as pl

        try:
            # A constant such as TRUE yields one value, which NumPy spreads over the rows.
            column = frame.select(expr.alias("member")).to_series()
        except pl.exceptions.PolarsError as error:
            raise GCFCPError(f"group {name!r}: {_first_line(error)}") from None
        if column.dtype == pl.Boolean:
            return column
        if self.predicates is None and column.dtype.is_numeric():
            bad = column.filter((column != 0) & (column != 1))
            if bad.is_empty():
                return column.cast(pl.Boolean)
            raise GCFCPError(f"group {name!r}: value {bad[0]} is neither true/false nor 0/1")
        what = "its column" if self.predicates is None else "its condition"
        raise GCFCPError(f"group {name!r}: {what} is {column.dtype}, not Boolean")


def _checked_names(names: Any) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise GCFCPError(f"groups must be a list of names, not {names!r:.80}")
    checked = tuple(names)
    if not checked:
        raise GCFCPError("a family of groups needs at least one group")
    for position, name in enumerate(checked):
        if problem := _name_problem(name):
            raise GCFCPError(f"group name {position} ({ascii(name)[:60]}) {problem}")
    if len(set(checked)) < len(checked):
        twice = next(name for name, count in Counter(checked).items() if count > 1)
        raise GCFCPError(f"group name {twice!r} is given twice: names must differ")
    return tuple(str(name) for name in checked)


def _name_problem(name: Any) -> str | None:
    if not isinstance(name, str):
        return f"is of type {type(name).__name__}, not a string"
    if not name.strip():
        return "is empty"
    if len(name) > MAX_NAME:
        return f"has {len(name)} characters, more than {MAX_NAME}"
    categories = {unicodedata.category(character) for character in name}
    if "Cs" in categories:
        return "cannot be written as UTF-8"
    if categories & {"Cc", "Zl", "Zp"}:
        return "holds a control character"
    return None


def _checked_predicates(
    names: tuple[str, ...], predicates: Iterable[Any] | None
) -> tuple[str, ...] | None:
    if predicates is None:
        return None
    checked = (predicates,) if isinstance(predicates, str) else tuple(predicates)
    if len(checked) != len(names):
        raise GCFCPError(f"{len(checked)} conditions for {len(names)} groups: give one for each")
    for name, predicate in zip(names, checked, strict=True):
        if not isinstance(predicate, str):
            raise GCFCPError(
                f"group {name!r}: {predicate!r:.60} is of type {type(predicate).__name__}, "
                f'not a string such as "age >= 65"'
            )
        if problem := _predicate_problem(predicate):
            raise GCFCPError(f"group {name!r}: {problem}")
    return tuple(predicate.strip() for predicate in checked)


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


def _predicate_problem(predicate: str) -> str | None:
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


def _parse(name: str, predicate: str) -> pl.Expr:
    import polars as pl

    try:
        # In parentheses, because some versions read as far as they understand and drop the rest.
        return pl.sql_expr(f"({predicate})")
    except pl.exceptions.PolarsError as error:
        raise GCFCPError(
            f"group {name!r}: {predicate!r:.100} cannot be read as a condition: "
            f"{_first_line(error)}"
        ) from None


def _table(data: Any) -> Any:
    """`data` as something whose columns are known: a mapping, a pandas or a polars frame."""
    import polars as pl

    if isinstance(data, pl.LazyFrame):
        raise GCFCPError("membership of a LazyFrame is not known yet: call .collect() first")
    if isinstance(data, Mapping | pl.DataFrame) or _is_pandas(data, "DataFrame"):
        return data
    if hasattr(data, "__arrow_c_stream__"):
        return _read(pl.DataFrame, data)
    raise GCFCPError(
        f"membership needs a data frame or a mapping of columns, not {type(data).__name__}; "
        "a matrix is read by Groups.check"
    )


def _select(table: Any, columns: tuple[str, ...]) -> tuple[pl.DataFrame, int]:
    """The named columns as a polars frame, and the number of rows (also if no column is named)."""
    import polars as pl

    names = list(columns)
    if isinstance(table, pl.DataFrame):
        return table.select(names), table.height
    if not isinstance(table, Mapping):
        return (_read(pl.from_pandas, table[names]) if names else pl.DataFrame()), len(table)
    if not table:
        raise GCFCPError("the data have no columns")
    frame = _read(pl.DataFrame, {name: _column(name, table[name]) for name in names})
    return frame, frame.height if names else len(next(iter(table.values())))


def _column(name: str, values: Any) -> Any:
    import polars as pl

    if _is_pandas(values, "Series"):
        return _read(pl.from_pandas, values)
    if isinstance(values, pl.Series | list | tuple):
        return values
    array = np.asarray(values)
    if array.ndim != 1:
        raise GCFCPError(f"column {name!r} has shape {array.shape}, expected one value a row")
    return array


def _read(reader: Callable[[Any], pl.DataFrame], data: Any) -> pl.DataFrame:
    import polars as pl

    try:
        return reader(data)
    except (pl.exceptions.PolarsError, TypeError, ValueError, ImportError) as error:
        raise GCFCPError(f"cannot read the columns: {_first_line(error)}") from None


def _is_pandas(data: Any, kind: str) -> bool:
    """Known by its class's name, so that pandas is never imported for someone who has none."""
    classes = type(data).__mro__
    return any(c.__name__ == kind and c.__module__.split(".")[0] == "pandas" for c in classes)


def _toml_string(text: str) -> str:
    # JSON's escapes are TOML's, but for DEL, which TOML wants escaped and JSON leaves alone.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


def _listed(names: Iterable[str], limit: int = 20) -> str:
    listed = list(names)
    more = f", ... ({len(listed)} in all)" if len(listed) > limit else ""
    return ", ".join(listed[:limit]) + more


def pack(membership: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """The matrix with 8 groups a byte: np.packbits(membership, axis=1), bit for bit, but faster."""
    _require_matrix(membership)
    return _pack(membership, -(-membership.shape[1] // 8))


def _pack(membership: NDArray[np.bool_], width: int) -> NDArray[np.uint8]:
    """Packed rows of `width` bytes, filled with zeros on the right.

    np.packbits is vectorised along one long axis only, so rows that are whole bytes are packed as
    if they were one row; others are widened to whole bytes first, a block at a time.
    """
    n, G = membership.shape
    if 8 * width == G and membership.flags.c_contiguous:
        return np.packbits(membership.reshape(-1)).reshape(n, width)
    packed = np.empty((n, width), dtype=np.uint8)
    rows = max(1, _BLOCK // (8 * width))
    wide = np.zeros((rows, 8 * width), dtype=np.bool_)
    for start in range(0, n, rows):
        block = membership[start : start + rows]
        wide[: len(block), :G] = block
        flat = np.packbits(wide[: len(block)].reshape(-1))
        packed[start : start + rows] = flat.reshape(-1, width)
    return packed


def _chunks(membership: NDArray[np.bool_]) -> NDArray[Any]:
    """Packed rows as numbers of 16 bits (8 for up to 8 groups) that sort like the rows.

    Big-endian, so that the first group is the most significant bit; every use converts the numbers
    to indices anyway, and swaps bytes on the way at no cost.
    """
    G = membership.shape[1]
    return _pack(membership, 1) if G <= 8 else _pack(membership, 2 * -(-G // 16)).view(">u2")


@dataclass(frozen=True, eq=False)
class Atoms:
    """The distinct rows of a membership matrix; `membership[index]` is the matrix again.

    Rows that belong to no group keep an atom of their own, always the first (`uncovered` counts
    them), so that nothing is lost on the way to whoever decides about them. Arrays are read-only.
    """

    membership: NDArray[np.bool_]
    """(a, G): one row an atom, in lexicographic order (that of `pack`)."""
    index: NDArray[np.unsignedinteger]
    """(n,): the atom of each row, in the smallest unsigned type that holds it."""
    counts: NDArray[np.int64]
    """(a,): the number of rows of each atom, never 0."""

    def __post_init__(self) -> None:
        for array in (self.membership, self.index, self.counts):
            array.flags.writeable = False

    def __len__(self) -> int:
        return len(self.membership)

    @property
    def uncovered(self) -> int:
        """The number of rows that belong to no group."""
        return int(self.counts[~self.membership.any(axis=1)].sum())


def find_atoms(membership: NDArray[np.bool_]) -> Atoms:
    """The atoms of a bool matrix (n, G), in time that is linear in its size.

    Rows are ranked by their first 16 groups, then ties by the next 16, and so on. A rank is looked
    up in a table of all values that occur, so nothing is sorted unless that table would be larger
    than the data (many groups and hardly two rows alike).
    """
    _require_matrix(membership)
    n = len(membership)
    ids: NDArray[Any] = np.zeros(n, dtype=np.uint8)
    counts = np.full(min(n, 1), n, dtype=np.int64)
    chunks = _chunks(membership)
    for c in range(chunks.shape[1]):
        if len(counts) == n:
            break  # every row is an atom: further groups cannot change their order
        chunk_ids, chunk_counts = _rank(chunks[:, c], 256**chunks.itemsize)
        if len(counts) == 1:
            ids, counts = chunk_ids, chunk_counts
        elif len(chunk_counts) > 1:
            ids, counts = _refine(ids, len(counts), chunk_ids, len(chunk_counts))
    return Atoms(membership[_any_row_of_each(ids, len(counts))], ids, counts)


def _refine(
    ids: NDArray[Any], a: int, chunk_ids: NDArray[Any], b: int
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    pairs = ids.astype(np.int64)
    pairs *= b
    pairs += chunk_ids
    if a * b <= max(4 * len(ids), _BLOCK):
        return _rank(pairs, a * b)
    values, ranks, counts = np.unique(pairs, return_inverse=True, return_counts=True)
    return ranks.astype(_index_type(len(values))), counts.astype(np.int64, copy=False)


def _rank(values: NDArray[Any], size: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Each value's rank among the distinct values (all below `size`), and how often each occurs.

    In blocks, because NumPy converts indices to 64 bits and the conversion should stay in cache.
    """
    n, step = len(values), max(_BLOCK, size)
    counts = np.zeros(size, dtype=np.int64)
    for start in range(0, n, step):
        counts += np.bincount(values[start : start + step], minlength=size)
    present = counts > 0
    counts = counts[present]
    ranks = (np.cumsum(present) - 1).astype(_index_type(len(counts)))
    out = np.empty(n, dtype=ranks.dtype)
    for start in range(0, n, _BLOCK):
        block = slice(start, start + _BLOCK)
        np.take(ranks, values[block], out=out[block], mode="clip")  # "raise" would buffer
    return out, counts


def _index_type(size: int) -> np.dtype[Any]:
    return np.min_scalar_type(max(size - 1, 0))


def _any_row_of_each(ids: NDArray[Any], a: int) -> NDArray[np.intp]:
    """A row for each id; it does not matter which, and most often the first block has them all."""
    rows = np.full(a, -1, dtype=np.intp)
    for start in range(0, len(ids), _BLOCK):
        block = ids[start : start + _BLOCK]
        rows[block] = np.arange(start, start + len(block))
        if rows.min() >= 0:
            break
    return rows


@dataclass(frozen=True, eq=False)
class AtomLookup:
    """Finds each row's place in a table of atoms; immutable, so threads may share it.

    `AtomLookup(membership)` takes the distinct rows (a, G) of the table, in any order. Up to 16
    groups a query is one look into a table of 2^16 entries; beyond, one dictionary access per
    distinct row of the query.
    """

    membership: NDArray[np.bool_]
    _table: NDArray[np.int32] | None = field(init=False, repr=False)
    _places: dict[bytes, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _require_matrix(self.membership)
        rows = self.membership.copy()
        rows.flags.writeable = False
        keys = _chunks(rows)
        places = {key.tobytes(): place for place, key in enumerate(keys)}
        if len(places) < len(rows):
            raise GCFCPError(f"{len(rows)} atoms, but only {len(places)} distinct: list each once")
        table = None
        if keys.shape[1] == 1:
            table = np.full(256**keys.itemsize, -1, dtype=np.int32)
            table[keys[:, 0]] = np.arange(len(rows))
            table.flags.writeable = False
        object.__setattr__(self, "membership", rows)
        object.__setattr__(self, "_table", table)
        object.__setattr__(self, "_places", places)

    def find(self, membership: NDArray[np.bool_]) -> NDArray[np.int32]:
        """The place of each row (n, G) in the table, or -1 where it is not there."""
        _require_matrix(membership)
        if membership.shape[1] != self.membership.shape[1]:
            raise GCFCPError(
                f"membership has {membership.shape[1]} columns, "
                f"the table of atoms {self.membership.shape[1]}"
            )
        if self._table is None:
            atoms = find_atoms(membership)
            keys = _chunks(atoms.membership)
            found = [self._places.get(key.tobytes(), -1) for key in keys]
            return np.take(np.array(found, dtype=np.int32), atoms.index)
        keys = _chunks(membership)[:, 0]
        places = np.empty(len(keys), dtype=np.int32)
        for start in range(0, len(keys), _BLOCK):
            block = slice(start, start + _BLOCK)
            np.take(self._table, keys[block], out=places[block], mode="clip")
        return places


def _require_matrix(membership: NDArray[np.bool_]) -> None:
    if not isinstance(membership, np.ndarray) or membership.dtype != np.bool_:
        kind = getattr(membership, "dtype", type(membership).__name__)
        raise GCFCPError(f"membership is {kind}, not a bool matrix: use Groups.check")
    if membership.ndim != 2 or membership.shape[1] == 0:
        raise GCFCPError(f"membership has shape {membership.shape}, expected (n, G) with G >= 1")
