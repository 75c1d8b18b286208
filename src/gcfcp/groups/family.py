"""The public family of groups: names, conditions, a fingerprint, and the file that holds them.

A groups file is TOML in UTF-8. Each line gives the name of a group and a condition in SQL, which
decides from the columns of a row whether the row belongs to the group. The order of the lines is
the order of the groups:

    [groups]                    # this line may be left out
    all = "TRUE"
    over_65 = "age >= 65"
    female = "sex = 'F'"
    predicted_low = "predicted in (0, 1, 2)"
    high = '"blood pressure" > 140'

Nothing else may stand beside the table `[groups]`. A name has 1 to 200 characters, not all of them
blank and none of them a control character or a line separator. A condition has at most 4,000
characters; blanks at its ends are removed. The name of a column is written in double quotes if it
begins with a digit, is a word of SQL such as order, or has other characters than letters, digits
and underscores.

A family without conditions is the one line `names = ["all", "female"]`. Whoever uses it says in
another way which rows belong to which group.

The fingerprint of a family is the SHA-256, in hexadecimal digits, of a JSON text in UTF-8. For the
family of the last paragraph the text is `{"names":["all","female"],"predicates":null}`; a family
with conditions has the list of them instead of null. There are no blanks between tokens, and
characters beyond ASCII are not escaped.

Guarantee: A condition looks at one row only, so the groups of a row do not depend on the other rows
of its site, on the time or on chance (see `predicates`).

| code           | paper                                                |
|----------------|------------------------------------------------------|
| `Groups`       | the family of groups                                 |
| membership row | Phi(x) in {0, 1}^G, the indicator of the groups of x |
"""

from __future__ import annotations

import hashlib
import json
import tomllib
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gcfcp import checks
from gcfcp.arrays import Bools
from gcfcp.errors import GCFCPError, GCFCPWarning
from gcfcp.groups import plain
from gcfcp.groups.frames import select, table_of
from gcfcp.groups.predicates import first_line, parse, problem_of
from gcfcp.libraries import has, needs

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, init=False)
class Groups:
    """A family of groups: their names and, if there are any, one condition for each.

    `Groups(names)` has names only. The caller then gives the membership matrix itself (`check`), or
    a boolean column for each group (`membership`). `Groups({name: predicate})`,
    `Groups(names, predicates)` and `Groups.from_toml(path)` also have the conditions that decide
    which rows belong. The order matters: it is the order of the columns of the membership matrix.
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
        """Read a groups file, and check every condition in it.

        Where polars is installed, it must understand every condition. Elsewhere the conditions'
        words are checked alone, and polars reads them when `membership` is first asked for.
        """
        try:
            text = Path(path).read_bytes().decode("utf-8-sig")
        except OSError as error:
            raise GCFCPError(f"cannot read groups file {path}: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise GCFCPError(
                f"groups file {path} is not UTF-8 (see byte {error.start}): save it as UTF-8"
            ) from None
        except ValueError as error:  # A path may hold a null character.
            raise GCFCPError(f"cannot read groups file {path!r:.200}: {error}") from None
        return cls.from_toml_text(text, source=str(path))

    @classmethod
    def from_toml_text(cls, text: str, source: str = "groups text") -> Groups:
        """Read the text of a groups file. `source` is what error messages call it."""
        try:
            groups = cls._from_table(tomllib.loads(text))
            if has("polars"):
                groups._expressions  # noqa: B018 (polars reads every condition here)
        except tomllib.TOMLDecodeError as error:
            raise GCFCPError(f"{source} is not valid TOML: {error!s:.200}") from None
        except RecursionError:
            raise GCFCPError(f"{source} is not a groups file: it is nested too deeply") from None
        except GCFCPError as error:
            raise GCFCPError(f"{source}: {error}") from None
        return groups

    @classmethod
    def _from_table(cls, table: dict[str, Any]) -> Groups:
        """The family that a TOML table describes."""
        if list(table) == ["names"] and isinstance(table["names"], list):
            return cls(table["names"])
        if isinstance(table.get("groups"), dict):
            if len(table) > 1:
                others = ", ".join(key for key in table if key != "groups")
                raise GCFCPError(f"{others} stands beside [groups]: move it into that table")
            table = table["groups"]
        return cls(table)

    def to_toml(self) -> str:
        """The text of a groups file for this family. Reading it gives the same fingerprint."""
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
        """The SHA-256 of names and conditions in hexadecimal digits, as the module describes it."""
        definition = {"names": self.names, "predicates": self.predicates}
        text = json.dumps(definition, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def to_dict(self, names: str = "names") -> dict[str, Any]:
        """Names, conditions and fingerprint as plain values for a file.

        names: The key under which the names stand. It is "groups" where other values stand beside
        them.
        """
        predicates = None if self.predicates is None else list(self.predicates)
        return {
            names: list(self.names),
            "predicates": predicates,
            "fingerprint": self.fingerprint,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], names: str = "names") -> Groups:
        """The family that `to_dict` wrote, or an error if the fingerprint does not match it."""
        if not isinstance(values[names], list):
            raise GCFCPError("the groups' names are not a list")
        groups = cls(values[names], values["predicates"])
        if groups.fingerprint != values["fingerprint"]:
            raise GCFCPError("the groups' fingerprint does not match their definition")
        return groups

    def names_of(self, row: Bools) -> tuple[str, ...]:
        """The names of the groups that a membership row (G,) belongs to."""
        return tuple(name for name, member in zip(self.names, row, strict=True) if member)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns that `membership` reads, each of them once, in the order of first use.

        polars finds the columns of conditions and must be installed for that.
        """
        if self.predicates is None:
            return self.names
        roots = (root for expr in self._expressions for root in expr.meta.root_names())
        return tuple(dict.fromkeys(roots))

    def with_all(self, name: str = "all") -> Groups:
        """The family with one more group, the first in order, to which every row belongs.

        If the groups have conditions, that of the new group is TRUE. If they have names only, the
        caller gives its members like those of any other group: as a column of ones in the matrix or
        the data.
        """
        predicates = None if self.predicates is None else ("TRUE", *self.predicates)
        return Groups((name, *self.names), predicates)

    def membership(self, data: Any) -> Bools:
        """Which rows belong to which groups: a bool matrix (n, G), from a data frame.

        data: A frame of pandas, polars or pyarrow, any object with the Arrow stream protocol, or a
        dict of columns. For groups without conditions it needs one column for each group, named
        like the group and holding booleans or 0 and 1.

        Where a value is missing (null, or NaN in a floating column), a condition may come out as
        null. The row then does not belong to the group, and one warning says for how many rows of
        each group this is so.

        Groups without conditions need NumPy alone to read a dict of arrays or lists. Conditions and
        data frames need polars.
        """
        table = table_of(data)
        self._check_columns([str(c) for c in getattr(table, "columns", table)])
        if self.predicates is None and plain.is_plain(table, self.names):
            n, columns = plain.read(table, self.names)
        else:
            n, columns = self._evaluated(table)
        out = np.empty((n, len(self)), dtype=np.bool_)
        nulls: dict[str, int] = {}
        for g, (name, (column, missing)) in enumerate(zip(self.names, columns, strict=True)):
            out[:, g] = column
            if missing:
                nulls[name] = missing
        if nulls:
            counts = ", ".join(f"{name}: {count}" for name, count in nulls.items())
            warnings.warn(
                f"missing values leave open whether some of {n} rows belong to a group, and these "
                f"rows count as not belonging to it ({counts})",
                GCFCPWarning,
                stacklevel=2,
            )
        return out

    def check(self, membership: Any, *, label_dependent: bool = False) -> Bools:
        """The caller's membership as a C-contiguous bool matrix (n, G), or an error.

        Anything array-like is accepted. Numbers are accepted if each of them is exactly 0 or 1.

        label_dependent: Whether membership depends on the label, so that its shape is (n, L, G).
        """
        self._check_order(membership)
        try:
            array = np.asarray(checks.unmasked("membership", membership))
        except GCFCPError:
            raise
        except (ValueError, TypeError) as error:
            raise GCFCPError(f"membership is not a matrix: {error}") from None
        shape = "(n, L, G)" if label_dependent else "(n, G)"
        if array.ndim != (3 if label_dependent else 2):
            raise GCFCPError(f"membership has shape {array.shape}, expected {shape}")
        if array.shape[-1] != len(self):
            raise GCFCPError(
                f"membership has {array.shape[-1]} columns for {len(self)} groups "
                f"({_listed(self.names)}): give one column for each group"
            )
        if array.dtype != np.bool_:
            self._check_binary(array)
        return np.ascontiguousarray(array, dtype=np.bool_)

    def _check_order(self, membership: Any) -> None:
        """Raise an error if a frame has the groups as columns, but in another order."""
        columns = [str(column) for column in getattr(membership, "columns", ())]
        if sorted(columns) == sorted(self.names) and columns != list(self.names):
            raise GCFCPError(
                f"membership has columns {_listed(columns)} but the groups are "
                f"{_listed(self.names)}: put the columns in the order of the groups"
            )

    def _check_binary(self, array: NDArray[Any]) -> None:
        """Raise an error that names the first entry that is not 0, 1, true or false."""
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

    @cached_property
    def _expressions(self) -> list[pl.Expr]:
        """The expression of each group: its condition, or its column if there are no conditions."""
        needs("polars", "the conditions of groups", "cli")
        import polars as pl

        if self.predicates is None:
            return [pl.col(name) for name in self.names]
        parsed = zip(self.names, self.predicates, strict=True)
        return [parse(name, predicate) for name, predicate in parsed]

    def _check_columns(self, present: list[str]) -> None:
        """Raise an error if a group needs a column that is not among those present."""
        if self.predicates is None:
            roots = [[name] for name in self.names]
        else:
            roots = [expr.meta.root_names() for expr in self._expressions]
        for name, columns in zip(self.names, roots, strict=True):
            for column in columns:
                if column not in present:
                    raise GCFCPError(
                        f"group {name!r} needs column {column!r}; "
                        f"the data have {_listed(present) or 'no columns'}"
                    )

    def _evaluated(self, table: Any) -> tuple[int, list[tuple[Bools, int]]]:
        """The number of rows and, for each group, who belongs and how many values are missing."""
        frame, n = select(table, self.columns)
        # polars ranks NaN above every number, so that age >= 65 would hold.
        frame = frame.fill_nan(None)
        columns = [
            self._evaluate(frame, name, expr)
            for name, expr in zip(self.names, self._expressions, strict=True)
        ]
        return n, [(c.fill_null(False).to_numpy(), c.null_count()) for c in columns]

    def _evaluate(self, frame: pl.DataFrame, name: str, expr: pl.Expr) -> pl.Series:
        """The membership of one group as a Boolean column, in which null means a missing value."""
        import polars as pl

        try:
            # A constant such as TRUE gives one value, which NumPy later repeats for all rows.
            column = frame.select(expr.alias("member")).to_series()
        except pl.exceptions.PolarsError as error:
            raise GCFCPError(f"group {name!r}: {first_line(error)}") from None
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
    """The names as a tuple, or an error that says which one cannot be used."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise GCFCPError(f"groups must be a list of names, not {names!r:.80}")
    checked = tuple(names)
    if not checked:
        raise GCFCPError("a family of groups needs at least one group")
    for position, name in enumerate(checked):
        if problem := checks.group_name_problem(name):
            raise GCFCPError(f"group name {position} ({ascii(name)[:60]}) {problem}")
    if len(set(checked)) < len(checked):
        twice = next(name for name, count in Counter(checked).items() if count > 1)
        raise GCFCPError(f"group name {twice!r} is given twice: names must differ")
    return tuple(str(name) for name in checked)


def _checked_predicates(
    names: tuple[str, ...], predicates: Iterable[Any] | None
) -> tuple[str, ...] | None:
    """The conditions without blanks at their ends, or an error that says which cannot be used."""
    if predicates is None:
        return None
    checked = (predicates,) if isinstance(predicates, str) else tuple(predicates)
    if len(checked) != len(names):
        raise GCFCPError(
            f"there are {len(checked)} conditions for {len(names)} groups: give one for each group"
        )
    for name, predicate in zip(names, checked, strict=True):
        if not isinstance(predicate, str):
            raise GCFCPError(
                f"group {name!r}: {predicate!r:.60} is of type {type(predicate).__name__}, "
                f'not a string such as "age >= 65"'
            )
        if problem := problem_of(predicate):
            raise GCFCPError(f"group {name!r}: {problem}")
    return tuple(predicate.strip() for predicate in checked)


def _toml_string(text: str) -> str:
    """The text as a TOML string in double quotes."""
    # TOML understands every escape of JSON. It also wants DEL escaped, which JSON does not do.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _listed(names: Iterable[str], limit: int = 20) -> str:
    """The first `limit` names with commas between them, and how many there are if not all."""
    listed = list(names)
    more = f", ... ({len(listed)} in all)" if len(listed) > limit else ""
    return ", ".join(listed[:limit]) + more
