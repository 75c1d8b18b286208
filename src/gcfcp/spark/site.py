"""The summary of a site whose records are in a Spark data frame.

Each partition is summarised in a task, and the driver joins the summaries. They are `FINER` times
as fine as the result, so that their errors take little of what `delta` allows (see
`gcfcp.summary.joining`). Nothing is hidden in the summaries of partitions: `min_count` and noise
are applied to the site, at the driver. With a grid the counts of all partitions are added.

What a partition sends:

| result                                     | from each partition                              |
|--------------------------------------------|--------------------------------------------------|
| by atom                                    | the same, by atom                                |
| by group with a grid, or with nothing more | the same, by group; residuals if there is a shape |
| by group with `min_count`                  | by atom, because small combinations must be known |
| by group, with a shape made of summaries   | by atom, to see if these very records made it     |

With a grid Spark counts equal rows beforehand where this changes nothing but the cost (see
`grouping`); a partition is then one of the counted rows.

Cost: one pass over the data, or those that `grouping` names. A partition sends at most 4 `delta`
numbers with their counts for each cell, 16 kB at delta = 250. The driver holds the replies of all
partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from gcfcp.checks import Representative
from gcfcp.errors import GCFCPError
from gcfcp.groups import Groups
from gcfcp.spark.frames import Frame, Partition
from gcfcp.spark.grouping import grouped
from gcfcp.spark.tasks import Reply, ask, judge, require_seed, seeded, warn_of_unmatched
from gcfcp.summary import ClientSummary, Making, joined, refuse_empty
from gcfcp.tables import Pass, Scoring, scoring, scoring_for, summarize_part

FINER = 8
"""The summaries of partitions have FINER * delta."""


def summarize(
    df: Any,
    *,
    groups: Groups,
    client: str,
    score: Any = None,
    delta: float = 250,
    representative: Representative = "upper",
    min_count: int = 1,
    model: str | None = None,
    absent: Iterable[str] = (),
    by: str = "atom",
    shape: Any = None,
    holdout: float | None = None,
    seed: int | None = None,
    round: str | None = None,
    date: Any = None,
    grid: Any = None,
    epsilon: float | None = None,
    missing: str = "error",
    name: str = "the data frame",
) -> Any:
    """Summarise the calibration records of one client that are in a Spark data frame.

    - `df`: The records, one row each, with the columns that a table has: `y` and `prediction`,
      `lo` and `hi`, or `proba_<label>`, or ready scores in `score`; and those of the conditions.
    - `groups`, `client`, `delta`, `representative`, `min_count`, `model`, `absent`, `by`, `shape`,
      `round`, `date`, `grid`, `epsilon`: Those of `gcfcp.summarize`.
    - `score`: The name of a score ("residual", "cqr", "thr", "aps", "raps", "column"), or one of
      `gcfcp.scores`. By default the columns decide.
    - `holdout`: The share of the records that goes into a summary of its own; see
      `gcfcp.summarize`. Which records these are depends on `seed` and on the partitions.
    - `seed`: For a randomised score or a holdout, the seed of all generators. The same data frame
      with the same partitions, in the same order of rows, gives the same numbers.
    - `missing`: "error" refuses a data frame in which a value is missing where the score needs one,
      and "drop" leaves out such rows and warns of their number.
    - `name`: What messages call the data frame.

    Returns a `ClientSummary`, or the shape part and the level part with `holdout`. With a grid it
    is that of a file with the same rows, to the last bit; with digests it is so within the
    certified error. A shape that was made from these very records is refused if it was made from
    the summary of the same partitions, without a grid.
    """
    frame = Frame(df, name)
    how = _scoring(frame, score)
    making = Making(
        groups=groups,
        client=client,
        delta=delta,
        representative=representative,
        min_count=min_count,
        score=how.named,
        model=model,
        absent=absent,
        by=by,
        shape=shape,
        round=round,
        date=date,
        grid=grid,
        epsilon=epsilon,
    )
    makings = [making] if holdout is None else [making.for_shape(), making]
    if holdout is not None:
        making.refuse_holdout()
        require_seed(seed, "a holdout is drawn")
    columns = _columns(how, groups)
    work = _work(how, makings, missing, seed, holdout)
    replies = None
    if holdout is None:
        replies = grouped(frame, how, part_of(making), columns, missing)
    if replies is None:
        replies = ask(frame, columns, work)
    rows = judge(replies, frame, groups, missing)
    warn_of_unmatched(frame, groups, rows, making.absent)
    found = _joined(replies, makings, holdout)
    return found[0] if holdout is None else found


def _scoring(frame: Frame, score: Any) -> Scoring:
    """Which columns make the scores."""
    if score is None or isinstance(score, str):
        return scoring(frame, score)
    return scoring_for(frame, score)


def _columns(how: Scoring, groups: Groups) -> tuple[str, ...]:
    """The columns that are sent to Python."""
    outcome = () if how.kind == "column" else ("y",)
    return (*outcome, *how.columns, *groups.columns)


def _work(
    how: Scoring,
    makings: Sequence[Making],
    missing: str,
    seed: int | None,
    holdout: float | None,
) -> Any:
    """What each partition does: it sends the bytes of its summaries, and none for an empty one."""
    parts = [part_of(making) for making in makings]
    randomized = bool(getattr(how.score, "randomized", False))
    if randomized:
        require_seed(seed, f"score {how.score.name!r} is randomised")

    def work(rows: Partition, found: Pass, number: int) -> list[bytes]:
        summaries = summarize_part(
            rows,
            how,
            parts,
            found,
            missing=missing,
            rng=seeded(seed, 0, number) if randomized else None,
            holdout=holdout,
            holdout_rng=None if holdout is None else seeded(seed, 1, number),
        )
        return [b"" if summary is None else summary.to_bytes() for summary in summaries]

    return work


def part_of(making: Making) -> Making:
    """How a partition is summarised; see the module."""
    plain = replace(
        making,
        min_count=1,
        epsilon=None,
        whole=True,
        delta=250 if making.delta is None else FINER * making.delta,
    )
    if making.by == "atom":
        return plain
    sources = () if making.shape is None else making.shape.sources
    if making.grid is None and (making.min_count > 1 or sources):
        return replace(plain, by="atom", shape=None)
    if sources:  # A single partition could not tell whether the shape was made of all of them.
        return replace(plain, shape=replace(making.shape, sources=()))
    return plain


def _joined(
    replies: Sequence[Reply], makings: Sequence[Making], holdout: float | None
) -> tuple[ClientSummary, ...]:
    """The site's summaries, from those of all partitions."""
    parts = [
        [ClientSummary.from_bytes(r.data[i]) for r in replies if r.data and r.data[i]]
        for i in range(len(makings))
    ]
    if holdout is not None:
        refuse_empty(not parts[1], not parts[0], holdout)
    if not parts[-1]:
        raise GCFCPError("there are no scores: a client needs at least one record")
    return tuple(joined(some, making) for some, making in zip(parts, makings, strict=True))
