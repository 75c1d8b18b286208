"""Which values a table holds where a group has none of its records (see `groups.unmatched`).

The sentences quote the data. Whoever runs the command beside the table sees them, and nobody else.
"""

from __future__ import annotations

from collections.abc import Sequence

from gcfcp.groups import Groups, Held, unmatched_sentence
from gcfcp.tables.files import Table


def explain_unmatched(table: Table, groups: Groups, names: Sequence[str]) -> list[str]:
    """One sentence for each of these groups, which have none of the records of the table.

    The columns of their conditions are read once more.
    """
    columns = {name: groups.columns_of(name) for name in names}
    wanted = tuple(dict.fromkeys(column for some in columns.values() for column in some))
    held = {column: Held() for column in wanted}
    for frame in table.batches(wanted, {}) if wanted else ():
        for column in wanted:
            held[column].add(frame[column])
    return [
        unmatched_sentence(name, groups.condition_of(name), {c: held[c] for c in some}, table.name)
        for name, some in columns.items()
    ]
