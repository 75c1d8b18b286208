"""Tabular classification with demographic groups, across sites that send files.

    python examples/tabular.py

The data are real and come with statsmodels: 6,366 women who answered a survey of the magazine
Redbook in 1974 (Fair 1978, public domain). A model predicts how a woman rates her marriage, from 1
to 5, from her age, years married, children, religion, education and the couple's occupations. The
groups are demographic, and they overlap. The survey has no sites. We use the woman's occupation as
her site, so that the sites really differ. Nobody should use this model for anything. It is here to
show how the method works.

Summaries and the predictor go through files, as they would between real sites. Each site then makes
an audit.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from statsmodels.datasets import fair

import gcfcp

ALPHA = 0.1
GROUPS = gcfcp.Groups(
    {
        "all": "TRUE",
        "under 25": "age < 25",
        "over 35": "age > 35",
        "strongly religious": "religious = 4",
        "graduate school": "educ >= 17",
    }
)
SITES = {"workers": (1, 2), "offices": (3,), "schools and clinics": (4,), "managers": (5, 6)}


def main(folder: Path) -> None:
    """Summarise, calibrate and audit, with the files in `folder`; print each step."""
    records = fair.load_pandas().data.sample(frac=1, random_state=0).reset_index(drop=True)
    ratings = records["rate_marriage"].astype(int).to_numpy() - 1
    features = records.drop(columns=["rate_marriage", "affairs"]).to_numpy()
    membership = GROUPS.membership(records)
    # Part 0 is used to train, part 1 to calibrate, part 2 to test.
    part = np.digitize(np.arange(len(records)), [1000, 4000])
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    model.fit(features[part == 0], ratings[part == 0])
    probabilities = model.predict_proba(features)
    score = gcfcp.scores.APS(randomized=False)
    scores = score.of(probabilities, ratings)
    at = {name: records["occupation"].isin(jobs).to_numpy() for name, jobs in SITES.items()}

    print("At each site: a summary")
    for name, here in at.items():
        mine = here & (part == 1)
        summary = gcfcp.summarize(
            scores[mine], membership[mine], groups=GROUPS, client=name, score=score, min_count=3
        )
        summary.save(folder / f"{name}.gcfcp")
        told = summary.disclosure
        print(
            f"  {name:20} {told.records:5,} records -> {told.bytes:6,} bytes, "
            f"{told.suppressed} records in cells that are too small to show"
        )

    print("\nAt the server: plan, calibrate, one predictor for all")
    summaries = [gcfcp.ClientSummary.load(folder / f"{name}.gcfcp") for name in SITES]
    plan = gcfcp.plan(summaries, ALPHA, "proportional")
    infinite = [atom for atom in plan.atoms if atom.reason]
    print(f"  {len(plan.atoms)} combinations of groups, {len(infinite)} of them infinite")
    calibration = gcfcp.calibrate(summaries, ALPHA, "proportional")
    gcfcp.Predictor(score, calibration).save(folder / "predictor.json")

    print("\nAt each site again: count how many were covered; only counts leave the site")
    predictor = gcfcp.Predictor.load(folder / "predictor.json")
    clients = {}
    for name, here in at.items():
        mine = here & (part == 1)
        clients[name] = (scores[mine], membership[mine])
    one = gcfcp.methods.fedcp(clients, ALPHA, "proportional", groups=GROUPS)
    audits: dict[str, list[gcfcp.Audit]] = {"FedCP": [], "GC-FCP": []}
    for name, here in at.items():
        test = here & (part == 2)
        for method, source in (("FedCP", gcfcp.Predictor(score, one)), ("GC-FCP", predictor)):
            sets = source.predict_set(probabilities[test], membership[test])
            covered = sets[np.arange(len(sets)), ratings[test]]
            audits[method].append(
                gcfcp.audit(
                    covered,
                    membership[test],
                    groups=GROUPS,
                    client=name,
                    set_size=sets.sum(axis=1),
                    alpha=ALPHA,
                )
            )
    shares = {a.client: a.n for a in audits["GC-FCP"]}
    mixture = {name: n / sum(shares.values()) for name, n in shares.items()}
    reports = {m: gcfcp.merge_audits(a, mixture) for m, a in audits.items()}

    print(f"\n{'':24} {'FedCP':>8} {'GC-FCP':>8}  interval          size   verdict")
    for before, now in zip(reports["FedCP"].groups, reports["GC-FCP"].groups, strict=True):
        print(
            f"{now.group:24} {before.coverage:8.3f} {now.coverage:8.3f}  "
            f"[{now.low:.3f}, {now.high:.3f}]   {now.mean_size:.2f}   {now.verdict}"
        )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
