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

Nothing but `sites` may stand beside the table `[groups]`. A name has 1 to 200 characters, not all
of them blank and none of them a control character, a line separator or an invisible character; two
names that look the same (Unicode's NFKC) are refused. A condition has at most 4,000 characters;
blanks at its ends are removed. What it can cost is limited (see `costs`). The name of a column is
written in double quotes if it begins with a digit, is a word of SQL such as order, or has other
characters than letters, digits and underscores.

A family without conditions is the one line `names = ["all", "female"]`. Whoever uses it says in
another way which rows belong to which group.

The line `sites = ["a", "b"]`, a list of the names of clients, adds one group for each of these
sites at the end of the family: `site a` and `site b`. All rows of a site belong to its group. The
line stands above `[groups]`, in this table, beside the conditions where `[groups]` is left out, or
beside `names`; it may also stand alone. A group whose own name is `sites` has a condition, which is
a string and not a list.

The fingerprint of a family is the SHA-256, in hexadecimal digits, of a JSON text in UTF-8. For the
family of the last paragraph the text is `{"names":["all","female"],"predicates":null}`; a family
with conditions has the list of them instead of null. There are no blanks between tokens, and
characters beyond ASCII are not escaped. A family with sites has `"sites":["a","b"]` as a third
entry; its names are those of all groups, and its conditions those of the groups that are not sites.

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
import re
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
from gcfcp.groups import sites as _sites
from gcfcp.groups.frames import rows_of, select, table_of
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

    `Groups(..., sites=["a", "b"])` adds a group for each of these clients, to which exactly the
    rows of this client belong. These groups are the last ones and are called `site a` and `site b`.
    They have no conditions: `membership` and `complete` are told the site of the rows. A family may
    consist of sites alone: `Groups([], sites=["a", "b"])`.
    """

    names: tuple[str, ...]  # The names of all groups, those of the sites at the end.
    predicates: tuple[str, ...] | None  # The conditions of the groups that are not sites.
    sites: tuple[str, ...]  # The names of the clients that have a group of their own.

    def __init__(
        self,
        names: Iterable[str] | Mapping[str, str],
        predicates: Iterable[str] | None = None,
        *,
        sites: Iterable[str] = (),
    ) -> None:
        if isinstance(names, Mapping):
            predicates = names.values()
        object.__setattr__(self, "sites", _sites.checked(sites))
        object.__setattr__(self, "names", _checked_names(names, self.sites))
        checked = _checked_predicates(self.others, predicates)
        object.__setattr__(self, "predicates", checked if self.others else None)

    @property
    def others(self) -> tuple[str, ...]:
        """The names of the groups that are not sites."""
        return self.names[: len(self.names) - len(self.sites)]

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
        table, sites = _without_sites(table)
        if list(table) == ["names"] and isinstance(table["names"], list):
            return cls(table["names"], sites=sites or ())
        if isinstance(table.get("groups"), dict):
            if len(table) > 1:
                others = ", ".join(key for key in table if key != "groups")
                raise GCFCPError(f"{others} stands beside [groups]: move it into that table")
            table, inside = _without_sites(table["groups"])
            if sites is not None and inside is not None:
                raise GCFCPError("sites stands both in [groups] and beside it: keep one of them")
            sites = inside if sites is None else sites
        return cls(table, sites=sites or ())

    def to_toml(self) -> str:
        """The text of a groups file for this family. Reading it gives the same fingerprint."""
        sites = f"sites = {_toml_list(self.sites)}\n" if self.sites else ""
        if self.predicates is None:
            return (f"names = {_toml_list(self.others)}\n" if self.others else "") + sites
        lines = (
            f"{_toml_string(name)} = {_toml_string(predicate)}\n"
            for name, predicate in zip(self.others, self.predicates, strict=True)
        )
        return sites + "[groups]\n" + "".join(lines)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of names, conditions and sites in hexadecimal digits; see the module."""
        definition = {"names": self.names, "predicates": self.predicates}
        if self.sites:
            definition["sites"] = self.sites
        text = json.dumps(definition, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def to_dict(self, names: str = "names") -> dict[str, Any]:
        """Names, conditions, sites and fingerprint as plain values for a file.

        The names are those of all groups, also of the sites. A family without sites has no entry
        `sites`.

        names: The key under which the names stand. It is "groups" where other values stand beside
        them.
        """
        predicates = None if self.predicates is None else list(self.predicates)
        values = {
            names: list(self.names),
            "predicates": predicates,
            "fingerprint": self.fingerprint,
        }
        return values | {"sites": list(self.sites)} if self.sites else values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], names: str = "names") -> Groups:
        """The family that `to_dict` wrote, or an error if the fingerprint does not match it."""
        listed, sites = values[names], values.get("sites", [])
        if not isinstance(listed, list) or not isinstance(sites, list):
            raise GCFCPError("the groups' names or their sites are not a list")
        others = listed[: max(0, len(listed) - len(sites))]
        groups = cls(others, values["predicates"], sites=sites)
        if list(groups.names) != listed:
            raise GCFCPError("the groups' names do not end with the groups of their sites")
        if groups.fingerprint != values["fingerprint"]:
            raise GCFCPError("the groups' fingerprint does not match their definition")
        return groups

    def names_of(self, row: Bools) -> tuple[str, ...]:
        """The names of the groups that a membership row (G,) belongs to."""
        return tuple(name for name, member in zip(self.names, row, strict=True) if member)

    @property
    def conditions(self) -> tuple[str, ...]:
        """The condition of each group, and "" for a group that has none."""
        return (self.predicates or ("",) * len(self.others)) + ("",) * len(self.sites)

    @cached_property
    def everyone(self) -> Bools:
        """Which groups every row belongs to by definition, (G,): those whose condition is TRUE.

        The rows of a site also belong to the group of that site by definition, and to that of no
        other site; this is not counted here.
        """
        return np.array([c.strip().upper() == "TRUE" for c in self.conditions], dtype=np.bool_)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns that `membership` reads, each of them once, in the order of first use.

        polars finds the columns of conditions and must be installed for that.
        """
        if self.predicates is None:
            return self.others
        roots = (root for expr in self._expressions for root in expr.meta.root_names())
        return tuple(dict.fromkeys(roots))

    def with_all(self, name: str = "all") -> Groups:
        """The family with one more group, the first in order, to which every row belongs.

        If the groups have conditions, that of the new group is TRUE. If they have names only, the
        caller gives its members like those of any other group: as a column of ones in the matrix or
        the data.
        """
        predicates = None if self.predicates is None else ("TRUE", *self.predicates)
        return Groups((name, *self.others), predicates, sites=self.sites)

    def membership(self, data: Any, site: Any = None) -> Bools:
        """Which rows belong to which groups: a bool matrix (n, G), from a data frame.

        data: A frame of pandas, polars or pyarrow, any object with the Arrow stream protocol, or a
        dict of columns. For groups without conditions it needs one column for each group, named
        like the group and holding booleans or 0 and 1.
        site: If the family has sites, the name of the site of all rows, or one name for each row.

        Where a value is missing (null, or NaN in a floating column), a condition may come out as
        null. The row then does not belong to the group, and one warning says for how many rows of
        each group this is so.

        Groups without conditions need NumPy alone to read a dict of arrays or lists. Conditions and
        data frames need polars.
        """
        self._check_site(site)
        table = table_of(data)
        self._check_columns([str(c) for c in getattr(table, "columns", table)])
        columns: list[tuple[Bools, int]] = []
        if not self.others:
            n = rows_of(table)
        elif self.predicates is None and plain.is_plain(table, self.others):
            n, columns = plain.read(table, self.others)
        else:
            n, columns = self._evaluated(table)
        out = np.empty((n, len(self)), dtype=np.bool_)
        if self.sites:
            out[:, len(columns) :] = _sites.columns(self.sites, site, n)
        nulls: dict[str, int] = {}
        for g, (name, (column, missing)) in enumerate(zip(self.others, columns, strict=True)):
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
        return self._matrix(membership, label_dependent, (self.names,))

    def complete(self, membership: Any, site: Any, *, label_dependent: bool = False) -> Bools:
        """The caller's membership with the groups of the sites filled in, (n, G), or an error.

        - `membership`: A matrix as in `check`. It has the columns of the groups that are not sites,
          or those of all groups. In the second case it must agree with `site`.
        - `site`: The name of the site of all rows, or one name for each row.
        - `label_dependent`: Whether membership depends on the label, so that its shape is
          (n, L, G). A row then belongs to its site with every label.
        """
        self._check_site(site)
        if not self.sites:
            return self.check(membership, label_dependent=label_dependent)
        matrix = self._matrix(membership, label_dependent, (self.others, self.names))
        others = len(self.others)
        own = _sites.columns(self.sites, site, len(matrix))
        if label_dependent:
            own = np.broadcast_to(own[:, None, :], (*matrix.shape[:2], len(self.sites)))
        if matrix.shape[-1] == others:
            return np.ascontiguousarray(np.concatenate([matrix, own], axis=-1))
        _sites.check(self.sites, matrix[..., others:], own)
        return matrix

    def _check_site(self, site: Any) -> None:
        """Raise an error if a site is needed and not given, or given and not needed."""
        if self.sites and site is None:
            raise GCFCPError(
                f"the groups have one group for each of the sites {checks.listed(self.sites)}: "
                "give the site of these rows (site=..., or --site on the command line)"
            )
        if not self.sites and site is not None:
            raise GCFCPError(
                f"site={site!r:.60} is given, but the groups have no sites: leave it out, or list "
                "the sites in the groups"
            )

    def _matrix(
        self, membership: Any, label_dependent: bool, allowed: tuple[tuple[str, ...], ...]
    ) -> Bools:
        """The caller's membership as a C-contiguous bool array, or an error.

        allowed: The names of the columns that it may have, in one or in several ways.
        """
        self._check_order(membership, allowed)
        try:
            array = np.asarray(checks.unmasked("membership", membership))
        except GCFCPError:
            raise
        except (ValueError, TypeError) as error:
            raise GCFCPError(f"membership is not a matrix: {error}") from None
        shape = "(n, L, G)" if label_dependent else "(n, G)"
        if array.ndim != (3 if label_dependent else 2):
            raise GCFCPError(f"membership has shape {array.shape}, expected {shape}")
        if array.shape[-1] not in map(len, allowed):
            also = ", or leave out those of the sites" if len(allowed) > 1 else ""
            raise GCFCPError(
                f"membership has {array.shape[-1]} columns for {len(self)} groups "
                f"({checks.listed(self.names)}): give one column for each group{also}"
            )
        if array.dtype != np.bool_:
            self._check_binary(array)
        return np.ascontiguousarray(array, dtype=np.bool_)

    def _check_order(self, membership: Any, allowed: tuple[tuple[str, ...], ...]) -> None:
        """Raise an error if a frame has the groups as columns, but in another order."""
        columns = [str(column) for column in getattr(membership, "columns", ())]
        for names in allowed if columns else ():
            if sorted(columns) == sorted(names) and columns != list(names):
                raise GCFCPError(
                    f"membership has columns {checks.listed(columns)} but the groups are "
                    f"{checks.listed(names)}: put the columns in the order of the groups"
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
            return [pl.col(name) for name in self.others]
        parsed = zip(self.others, self.predicates, strict=True)
        return [parse(name, predicate) for name, predicate in parsed]

    def condition_of(self, name: str) -> str:
        """The condition of a group, or the name of its column."""
        return self.conditions[self.names.index(name)] or name

    def columns_of(self, name: str) -> tuple[str, ...]:
        """The columns that decide who belongs to a group that is not a site."""
        if self.predicates is None:
            return (name,)
        roots = self._expressions[self.others.index(name)].meta.root_names()
        return tuple(dict.fromkeys(roots))

    def _check_columns(self, present: list[str]) -> None:
        """Raise an error if a group needs a column that is not among those present."""
        if self.predicates is None:
            roots = [[name] for name in self.others]
        else:
            roots = [expr.meta.root_names() for expr in self._expressions]
        for name, columns in zip(self.others, roots, strict=True):
            for column in columns:
                if column not in present:
                    raise GCFCPError(
                        f"group {name!r} needs column {column!r}; "
                        f"the data have {checks.listed(present) or 'no columns'}"
                        f"{self.quoting_hint(column, present)}"
                    )

    def quoting_hint(self, column: str, present: Iterable[str]) -> str:
        """A hint if a condition names a column that has to stand in quotes; "" otherwise.

        In `education-num >= 13`, SQL subtracts num from education.
        """
        for condition in self.predicates or ():
            for name in present:
                words = _WORD.findall(name)
                bare = name in condition and f'"{name}"' not in condition
                if column in words and len(words) > 1 and bare:
                    return f"; write \"{name}\" in double quotes: '{_quoted(condition, name)}'"
        return ""

    def _evaluated(self, table: Any) -> tuple[int, list[tuple[Bools, int]]]:
        """The number of rows and, for each group, who belongs and how many values are missing."""
        frame, n = select(table, self.columns)
        # polars ranks NaN above every number, so that age >= 65 would hold.
        frame = frame.fill_nan(None)
        columns = [
            self._evaluate(frame, name, expr)
            for name, expr in zip(self.others, self._expressions, strict=True)
        ]
        return n, [(c.fill_null(False).to_numpy(), c.null_count()) for c in columns]

    def _evaluate(self, frame: pl.DataFrame, name: str, expr: pl.Expr) -> pl.Series:
        """The membership of one group as a Boolean column, in which null means a missing value."""
        import polars as pl

        try:
            # A constant such as TRUE gives one value, which NumPy later repeats for all rows.
            column = frame.select(expr.alias("member")).to_series()
        except pl.exceptions.PolarsError as error:
            texts = _texts(frame, expr)
            raise GCFCPError(f"group {name!r}: {first_line(error)}{texts}") from None
        except (Exception, pl.exceptions.PanicException) as error:
            # A panic of polars derives from BaseException, and is a defect of polars. polars has
            # then printed lines of its own.
            raise GCFCPError(
                f"group {name!r}: polars cannot evaluate {self.condition_of(name)!r:.100} "
                f"({first_line(error)}): write the condition in another way"
            ) from None
        if column.dtype == pl.Boolean:
            return column
        if self.predicates is None and column.dtype.is_numeric():
            bad = column.filter((column != 0) & (column != 1))
            if bad.is_empty():
                return column.cast(pl.Boolean)
            raise GCFCPError(f"group {name!r}: value {bad[0]} is neither true/false nor 0/1")
        what = "its column" if self.predicates is None else "its condition"
        raise GCFCPError(f"group {name!r}: {what} is {column.dtype}, not Boolean")


def _checked_names(names: Any, of_sites: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The names and those of the sites' groups, or an error that says which cannot be used."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise GCFCPError(f"groups must be a list of names, not {names!r:.80}")
    others = tuple(names)
    checked = others + tuple(_sites.group_of(site) for site in of_sites)
    if not checked:
        raise GCFCPError("a family of groups needs at least one group")
    for position, name in enumerate(checked):
        if problem := checks.group_name_problem(name):
            raise GCFCPError(f"group name {position} ({ascii(name)[:60]}) {problem}")
    if len(set(checked)) < len(checked):
        twice = next(name for name, count in Counter(checked).items() if count > 1)
        if others.count(twice) == 1:
            raise GCFCPError(f"group {twice!r} is called like the group of a site: rename it")
        raise GCFCPError(f"group name {twice!r} is given twice: names must differ")
    first: dict[str, str] = {}
    for name in checked:
        other = first.setdefault(checks.look(name), name)
        if other != name:
            raise GCFCPError(
                f"group names {other!a:.60} and {name!a:.60} look the same, because they "
                "differ only in how Unicode writes them: rename one of them"
            )
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


_WORD = re.compile(r"\w+")  # What SQL takes for a name where there are no quotes.


def _texts(frame: pl.DataFrame, expr: pl.Expr) -> str:
    """Which columns of a condition hold texts, with the first that is no number; "" if none do."""
    import polars as pl

    found = []
    for column in dict.fromkeys(expr.meta.root_names()):
        values = frame[column]
        if values.dtype == pl.String:
            odd = values.filter(values.cast(pl.Float64, strict=False).is_null()).drop_nulls()
            found += [f"column {column!r} holds the text {odd[0]!r:.60}"] if len(odd) else []
    return f"; {' and '.join(found)}" if found else ""


def _quoted(condition: str, name: str) -> str:
    """The condition with this column in double quotes."""
    return condition.replace(name, f'"{name}"')


def _toml_string(text: str) -> str:
    """The text as a TOML string in double quotes."""
    # TOML understands every escape of JSON. It also wants DEL escaped, which JSON does not do.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_list(texts: Iterable[str]) -> str:
    """The texts as a TOML list of strings."""
    return f"[{', '.join(map(_toml_string, texts))}]"


def _without_sites(table: dict[str, Any]) -> tuple[dict[str, Any], list[Any] | None]:
    """A TOML table without its list of sites, and this list, which is None if there is none."""
    if not isinstance(table.get("sites"), list):
        return table, None
    return {key: value for key, value in table.items() if key != "sites"}, table["sites"]
