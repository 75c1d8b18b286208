"""Write the seed corpus anew: python -m fuzz.seeds. It holds small inputs, good and bad ones."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

import gcfcp
from fuzz import targets
from gcfcp import secure
from gcfcp.noise import Noise
from gcfcp.summary import Making, counts_of, places_of, summary_from_counts

CORPUS = Path(__file__).resolve().parent / "corpus"


def _rows(n: int = 12, infinite: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Scores (n,) and memberships (n, 3); with `infinite`, the last score is +inf."""
    rng = np.random.default_rng(0)
    scores = np.round(rng.random(n), 3)
    if infinite:
        scores[-1] = np.inf
    return scores, np.column_stack([np.ones(n, bool), rng.random(n) < 0.5, np.arange(n) < 2])


def summaries() -> dict[str, gcfcp.ClientSummary]:
    """One summary for each option that changes what a summary holds."""
    plain = gcfcp.Groups(["all", "f", "old"])
    told = gcfcp.Groups({"all": "TRUE", "f": "sex = 'F'", "old": "age >= 65"})
    made = {
        "upper": gcfcp.summarize(*_rows(), groups=plain, client="a", score=gcfcp.scores.THR()),
        "mean": gcfcp.summarize(*_rows(), groups=plain, client="a", delta=4, representative="mean"),
        "predicates": gcfcp.summarize(*_rows(4), groups=told, client="b", model="m"),
        "suppressed": gcfcp.summarize(*_rows(40), groups=plain, client="c", min_count=5),
        "infinite": gcfcp.summarize(*_rows(12, True), groups=plain, client="d", score="own"),
        "raps": gcfcp.summarize(*_rows(5), groups=plain, client="e", score=gcfcp.scores.RAPS()),
    }
    sites = gcfcp.Groups(["all", "f", "old"], sites=["a", "b"])
    made |= {
        "sites": gcfcp.summarize(*_rows(8), groups=sites, client="b", score="own"),
        "absent": gcfcp.summarize(
            [0.5, 0.25], [[1, 0, 0]] * 2, groups=plain, client="a", absent=["f", "old"]
        ),
    }
    shape = gcfcp.Shape(told, (0.25, -0.5, 1.0), ("0123456789abcdef",))
    made |= {
        "by-group": gcfcp.summarize(*_rows(30), groups=told, client="g", by="group", score="own"),
        "shaped": gcfcp.summarize(
            *_rows(40), groups=told, client="g", by="group", shape=shape, min_count=3, score="own"
        ),
    }
    round_ = {"round": "2026Q4", "date": "2026-11-17", "score": "own"}
    made |= {
        "round": gcfcp.summarize(*_rows(6), groups=plain, client="r", **round_),
        "round-by-group": gcfcp.summarize(
            *_rows(30), groups=told, client="r", by="group", min_count=3, **round_
        ),
        "round-sites": gcfcp.summarize(
            *_rows(6), groups=sites, client="a", round="2026Q4", score="own"
        ),
        "date": gcfcp.summarize(*_rows(4), groups=plain, client="r", date="2026-11-17"),
    }
    parts = [
        gcfcp.summarize(*_rows(6), groups=plain, client=name, score="own") for name in ("x", "y")
    ]
    grid = gcfcp.Grid.uniform(0, 1, 8)
    on_grid = [
        gcfcp.summarize(*_rows(9, True), groups=plain, client=name, score="own", grid=grid)
        for name in ("x", "y")
    ]
    made |= {
        "grid": on_grid[0],
        "grid-by-group": gcfcp.summarize(
            *_rows(9), groups=told, client="g", by="group", shape=shape, grid=gcfcp.Grid([0.5, 1.5])
        ),
        "grid-logarithmic": gcfcp.summarize(
            *_rows(40), groups=plain, client="c", min_count=5, grid=gcfcp.Grid.logarithmic(0.1)
        ),
    }
    blind = Making(plain, "region", score="own", grid=grid)
    noise = Noise.of(1.0, 1)
    noisy = Making(told, "n", score="own", grid=gcfcp.Grid([0.5, 1.5]))
    places = places_of(told, noisy.grid, "atom")
    counts = np.concatenate([[9], (7 * np.arange(1, places) % 11) - 3])
    made["noise"] = summary_from_counts(counts, noisy, noise=noise)
    return made | {
        "aggregate": gcfcp.merge(parts, "region", 4),
        "sum": gcfcp.add(on_grid, "region"),
        "sum-blind": summary_from_counts(sum(map(counts_of, on_grid)), blind, ["x", "y"]),
    }


def predictors() -> dict[str, str]:
    """The text of one predictor for each of the summaries."""
    made = {}
    for name, summary in summaries().items():
        score = gcfcp.scores.THR() if summary.score == "thr" else summary.score
        rule = "max" if name in ("mean", "noise") else None
        calibration = gcfcp.calibrate([summary], 0.3, rule=rule, aggregates=["region"])
        made[name] = gcfcp.Predictor(score, calibration).to_json(coreset=True)
        made[f"{name}-public"] = gcfcp.Predictor(score, calibration).to_json()
    return made


GRIDS = {
    "edges": gcfcp.Grid([-0.5, 0.25, 1.0]),
    "uniform": gcfcp.Grid.uniform(0, 1, 8),
    "logarithmic": gcfcp.Grid.logarithmic(0.1, 0.01, 10, negative=True),
}
"""One grid for each way to write one."""


def shapes() -> dict[str, str]:
    """Shapes: one by hand, and one that was fitted."""
    made = summaries()
    fitted = gcfcp.fit_shape([made["upper"]], 0.3)
    return {"by-hand": made["shaped"].shape.to_json(), "fitted": fitted.to_json()}


def audits() -> dict[str, gcfcp.Audit]:
    """Audits: with counts only, with sizes, a min_count, a share, a round, or full sets."""
    scores, membership = _rows(20)
    groups = gcfcp.Groups(["all", "f", "old"])
    size = np.where(scores < 0.5, 1, 2)
    return {
        "plain": gcfcp.audit(scores < 0.9, membership, groups=groups, client="a"),
        "sizes": gcfcp.audit(
            scores < 0.5, membership, groups=groups, client="a", set_size=10 * scores, alpha=0.1
        ),
        "suppressed": gcfcp.audit(
            scores < 0.9, membership, groups=groups, client="a", min_count=4, predictor="p"
        ),
        "share": gcfcp.audit(scores < 0.9, membership, groups=groups, client="a", share=0.25),
        "round": gcfcp.audit(
            scores < 0.9, membership, groups=groups, client="a", round="r", date="2026-11-17"
        ),
        "sets": gcfcp.audit(
            scores < 0.9, membership, groups=groups, client="a", set_size=size,
            labels=2, thresholds=np.where(scores < 0.2, np.inf, 0.5), everything=[0, 0, 1],
        ),
        "everything": gcfcp.audit(
            scores < 0.9, membership, groups=groups, client="a", min_count=4, everything=[0, 1, 0]
        ),
    }  # fmt: skip


def messages() -> dict[str, bytes]:
    """One message of a secure sum of each kind, and beginnings of sums with noise and signatures.

    Keys are new each time: of `delivery` and `roster` the sealed parts are refused elsewhere.
    """
    flags = targets.CANONICAL | targets.FINGERPRINT
    found = {name: targets.content(m["a"], flags) for name, m in targets._sums()["sent"].items()}
    noisy = secure.begin(b"fuzz", 4, signed=True, round="1" * 32, noisy=3, needed=2)
    return found | {"begin-noisy": targets.content(noisy.to_bytes(), flags)}


GROUPS = {
    "names": 'names = ["age", "b", "x"]\n',
    "table": '[groups]\nall = "TRUE"\nold = "age >= 65"\nf = "sex = \'F\'"\n',
    "sites": 'sites = ["a", "b"]\n[groups]\nall = "TRUE"\nold = "age >= 65"\n',
    "words": (
        "a = \"age between 1 and 65 or sex in ('F', 'M')\"\n"
        'b = "case when x > 1 then b else not b end"\n'
        'c = "length(substr(sex, 1, 1)) = 1 and abs(age) < 1e3"\n'
        "d = \"sex like '%F%' and coalesce(x, 0) % 2 = 0\"\n"
        'e = "cast(x as varchar) is not null"\n'
    ),
    "calls": (
        "a = \"length(replace(concat(sex, '-'), 'a', 'bb')) > 1 or sex rlike '^[A-Z]{1,3}$'\"\n"
        'b = "case x when 1 then b when 2 then not b end and nullif(x, 1) between 0 and 3"\n'
        "c = \"right(left(sex, x), 1) || substr(sex, 1, 2) in ('F', sex)\"\n"
        "d = \"cast(x as decimal(20, 2)) > 65.5 and date_part('year', date('2020-01-01')) > x\"\n"
    ),
    "grows": 'a = "length(' + "replace(" * 9 + "sex" + ", 'a', 'aaaaaaaaaa')" * 9 + ') > 1"\n',
    "copies": 'a = "' + "(" * 20 + "x" + " between 1 and 2)" * 20 + '"\n',
    "deep": "a = " + "[" * 3000 + "\n",
    "nested": 'a = "' + "(" * 900 + "age > 1" + ")" * 900 + '"\n',
}
TABLES = {
    "residual": "y,prediction,age,sex\n1,1.5,70,F\n2,1.5,20,M\n-3,nan,65,\n",
    "cqr": "y,lo,hi,age,sex\n1,0,2,70,F\n2,3,1,20,M\n",
    "thr": "y,proba_0,proba_1,age,sex\n0,0.5,0.5,70,F\n1,1,0,NA,M\n1.0,0.25,0.75,1,F\n",
    "words": 'y,proba_cat,"proba_a,b",age,sex\ncat,0.5,0.5,70,F\n"a,b",1,0,20,M\n',
    "column": "score,age,sex\n0.5,70,F\ninf,20,M\n-1e308,1,F\n",
    "empty": "",
    "head": "score,age,sex\n",
}


def inputs() -> dict[str, dict[str, bytes]]:
    """All seeds: for each target, the bytes of each seed by its name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gcfcp.GCFCPWarning)
        summary = {k: s.to_bytes() for k, s in summaries().items()}
        audit = {k: a.to_bytes() for k, a in audits().items()}
        predictor = {k: p.encode() for k, p in predictors().items()}
        shape = shapes()
    return {
        "raw": {
            "summary": summary["upper"],
            "audit": audit["plain"],
            "predictor": predictor["upper"],
            "empty": b"",
            "deep": b"[" * 100_000,
        },
        "summary": {k: targets.content(v) for k, v in summary.items()},
        "audit": {k: targets.content(v) for k, v in audit.items()},
        "predictor": predictor,
        "shape": {k: s.encode() for k, s in shape.items()},
        "grid": {k: g.to_json().encode() for k, g in GRIDS.items()},
        "groups": {k: v.encode() for k, v in GROUPS.items()},
        "table": {k: v.encode() for k, v in TABLES.items()},
        "sums": messages(),
    }


if __name__ == "__main__":
    for target, named in inputs().items():
        (CORPUS / target).mkdir(parents=True, exist_ok=True)
        for name, data in named.items():
            (CORPUS / target / name).write_bytes(data)
