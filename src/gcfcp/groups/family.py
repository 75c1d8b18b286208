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
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from gcfcp import checks
from gcfcp.arrays import Bools
from gcfcp.errors import GCFCPError, GCFCPWarning
from gcfcp.groups import given, plain
from gcfcp.groups import sites as _sites
from gcfcp.groups.algebra import Group, named_enough
from gcfcp.groups.counting import GroupCounts, counts_of
from gcfcp.groups.definition import checked_names, checked_predicates
from gcfcp.groups.evaluation import evaluate
from gcfcp.groups.frames import rows_of, select, table_of
from gcfcp.groups.levels import Level, Levels, conditions_of, levels_of
from gcfcp.groups.predicates import parse
from gcfcp.groups.unmatched import Held, sentence
from gcfcp.libraries import has, needs

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, init=False)
class Groups:
    """A family of groups: their names and, if there are any, one condition for each.

    `Groups(names)` has names only. The caller then gives the membership matrix itself (`check`), or
    a boolean column for each group (`membership`). `Groups({name: predicate})`,
    `Groups(names, predicates)`, `Groups([group, ...])` with values of `Group`, `Groups.from_column`
    and `Groups.from_toml(path)` also have the conditions that decide which rows belong. The order
    matters: it is the order of the columns of the membership matrix.

    `groups["over_65"]` is one group, which `&`, `|` and `~` combine with others (see `Group`).
    `a + b` has the groups of both families, and `a & b` every combination of a group of a with one
    of b, such as every region with every sex.

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
        names: Iterable[str] | Iterable[Group] | Mapping[str, str],
        predicates: Iterable[str] | None = None,
        *,
        sites: Iterable[str] = (),
    ) -> None:
        if isinstance(names, Mapping):
            predicates = names.values()
        elif isinstance(names, Iterable) and not isinstance(names, str):
            names, predicates = _of_groups(tuple(names), predicates)
        object.__setattr__(self, "sites", _sites.checked(sites))
        object.__setattr__(self, "names", checked_names(names, self.sites))
        checked = checked_predicates(self.others, predicates)
        object.__setattr__(self, "predicates", checked if self.others else None)

    @property
    def others(self) -> tuple[str, ...]:
        """The names of the groups that are not sites."""
        return self.names[: len(self.names) - len(self.sites)]

    @overload
    @classmethod
    def from_column(cls, column: str, values: Iterable[Level]) -> Groups: ...
    @overload
    @classmethod
    def from_column(cls, column: str, values: None = None, *, frame: Any) -> Groups: ...
    @overload
    @classmethod
    def from_column(cls, column: str, values: None = None) -> Levels: ...

    @classmethod
    def from_column(
        cls, column: str, values: Iterable[Level] | None = None, *, frame: Any = None
    ) -> Groups | Levels:
        """One group for each level of a column: `region north`, `region south`.

        The family must be the same at every site, so all sites agree on the levels beforehand. A
        row with another level, or with none, belongs to none of these groups.

        values: The levels: texts, numbers, or true and false. The order is that of the groups.
        frame: In the place of `values`, a frame whose levels are taken, sorted. They become
        public with the family. Give the other sites the family (`to_toml`), and not the call: their
        frames may have other levels.

        With neither of them, the result is `Levels`, to be filled from a frame later.
        """
        if values is not None and frame is not None:
            raise GCFCPError("values and frame are both given: leave one of them out")
        if values is None and frame is None:
            return Levels(column)
        return cls(conditions_of(column, levels_of(column, frame) if values is None else values))

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
        import tomllib  # It is not needed for `import gcfcp`, which should be quick.

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

    def __getitem__(self, name: str) -> Group:
        """The group of this name, which must have a condition."""
        if name not in self.names:
            raise GCFCPError(
                f"there is no group {name!r:.60}; the groups are {checks.listed(self.names)}"
            )
        if self.predicates is None or name not in self.others:
            raise GCFCPError(
                f"group {name!r} has no condition, so it is no value of its own: combine the "
                "columns of the membership matrix instead, or give the groups conditions"
            )
        return Group(name, self.condition_of(name))

    def __iter__(self) -> Iterator[Group]:
        """Each group as a value of its own, so that `Groups([everyone, *regions])` is a family."""
        return iter(self._single())

    def __contains__(self, name: object) -> bool:
        """Whether a group has this name, or is this `Group`."""
        return name in (self._single() if isinstance(name, Group) else self.names)

    def __add__(self, other: object) -> Groups:
        """The groups of both families, and the sites of both.

        A group or a site that stands in both in the same way is taken once.
        """
        if isinstance(other, Group):
            other = Groups([other])
        if not isinstance(other, Groups):
            return NotImplemented
        sites = dict.fromkeys((*self.sites, *other.sites))
        if self.others and other.others and (self.predicates is None) != (other.predicates is None):
            raise GCFCPError(
                "one of the families has conditions and the other has names only: give both of "
                "them conditions, or neither"
            )
        pairs = dict.fromkeys((*self._definitions(), *other._definitions()))
        has_conditions = self.predicates is not None or other.predicates is not None
        predicates = [condition for _, condition in pairs] if has_conditions else None
        return Groups([name for name, _ in pairs], predicates, sites=sites)

    def __and__(self, other: object) -> Groups:
        """Every combination of a group of this family with one of the other.

        With a single `Group` it is every group of this family within that group.
        """
        if not isinstance(other, Groups | Group):
            return NotImplemented
        theirs = [other] if isinstance(other, Group) else other._single()
        return Groups([mine & their for mine in self._single() for their in theirs])

    def __rand__(self, other: object) -> Groups:
        return Groups([other]) & self if isinstance(other, Group) else NotImplemented

    def __or__(self, other: object) -> Groups:
        raise GCFCPError(
            "| joins single groups: write groups['a'] | groups['b'], or a + b for the groups of "
            "two families"
        )

    __ror__ = __or__

    def __invert__(self) -> Groups:
        raise GCFCPError("~ is for a single group: write ~groups['a']")

    def _single(self) -> list[Group]:
        """Each group as a value of its own; an error if one of them has no condition."""
        return [self[name] for name in self.names]

    def _definitions(self) -> list[tuple[str, str]]:
        """The name and the condition of each group that is not a site."""
        return list(zip(self.others, self.conditions, strict=False))

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
        members, missing = self._members(data, site)
        nulls = [f"{name}: {n}" for name, n in zip(self.names, missing, strict=True) if n]
        if nulls:
            warnings.warn(
                f"missing values leave open whether some of {len(members)} rows belong to a group, "
                f"and these rows count as not belonging to it ({', '.join(nulls)})",
                GCFCPWarning,
                stacklevel=2,
            )
        return members

    def _members(self, data: Any, site: Any) -> tuple[Bools, list[int]]:
        """The membership matrix, and for how many rows missing values leave each group open."""
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
        for g, (column, _) in enumerate(columns):
            out[:, g] = column
        return out, [missing for _, missing in columns] + [0] * len(self.sites)

    def count(self, data: Any, site: Any = None) -> GroupCounts:
        """How many rows of a frame belong to each group, and which groups overlap.

        Print it to see a table. A group without rows is named with the values that its columns do
        hold, because `sex = 'female'` matches nobody where the data say `Female`. This quotes the
        data: it is for whoever has them, and no message to another site.

        data, site: As in `membership`.
        """
        members, missing = self._members(data, site)
        empty = [name for name in self.others if not members[:, self.names.index(name)].any()]
        return counts_of(self.names, members, missing, self._unmatched(data, empty))

    def _unmatched(self, data: Any, names: list[str]) -> list[str]:
        """One sentence for each of these groups, which have no rows, with the values there are."""
        if self.predicates is None:
            return [f"group {name!r} has none of the records" for name in names]
        sentences = []
        for name in names:
            held = {column: Held() for column in self.columns_of(name)}
            frame, _ = select(table_of(data), tuple(held))
            for column, values in held.items():
                values.add(frame[column])
            sentences.append(sentence(name, self.condition_of(name), held, "the frame"))
        return sentences

    def check(self, membership: Any, *, label_dependent: bool = False) -> Bools:
        """The caller's membership as a C-contiguous bool matrix (n, G), or an error.

        Anything array-like is accepted. Numbers are accepted if each of them is exactly 0 or 1.

        label_dependent: Whether membership depends on the label, so that its shape is (n, L, G).
        """
        return given.matrix(membership, label_dependent, self.names, (self.names,))

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
        matrix = given.matrix(membership, label_dependent, self.names, (self.others, self.names))
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
            evaluate(frame, name, expr, None if self.predicates is None else condition)
            for name, expr, condition in zip(
                self.others, self._expressions, self.conditions, strict=False
            )
        ]
        return n, [(c.fill_null(False).to_numpy(), c.null_count()) for c in columns]


def _of_groups(
    given: tuple[Any, ...], predicates: Iterable[str] | None
) -> tuple[tuple[Any, ...], Iterable[str] | None]:
    """Names and conditions, from a list of names or of values of `Group`."""
    single = [isinstance(entry, Group) for entry in given]
    if not any(single):
        return given, predicates
    if not all(single) or predicates is not None:
        raise GCFCPError(
            "a list of groups holds names or conditions besides: give values of Group alone, such "
            "as Group('all', 'TRUE')"
        )
    return tuple(named_enough(g).name for g in given), tuple(g.condition for g in given)


_WORD = re.compile(r"\w+")  # What SQL takes for a name where there are no quotes.


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
