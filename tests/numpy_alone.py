"""The whole of the core, by `python tests/numpy_alone.py` in an empty directory.

It runs where nothing but NumPy and gcfcp is installed, so it imports nothing else.
"""

import sys

before = set(sys.modules)
import numpy as np  # noqa: E402

import gcfcp  # noqa: E402


def check_what_is_loaded():
    """Modules without a file are Python's own, or made by NumPy itself."""
    new = [name for name in set(sys.modules) - before if getattr(sys.modules[name], "__file__", "")]
    foreign = {name.partition(".")[0] for name in new} - set(sys.stdlib_module_names)
    assert foreign == {"gcfcp", "numpy"}, foreign


check_what_is_loaded()

CONDITIONS = {"everyone": "TRUE", "over_65": "age >= 65"}


def site(name, groups, score, n=400):
    rng = np.random.default_rng(len(name))
    over_65 = rng.random(n) < 0.3
    prediction = rng.normal(size=n)
    y = prediction + (1 + over_65) * rng.normal(size=n)
    membership = groups.check(np.column_stack([np.ones(n), over_65]))
    summary = gcfcp.summarize(
        score.of(prediction, y), membership, groups=groups, client=name, score=score
    )
    return summary, prediction, y, membership


def saved_and_loaded(value, path, kind):
    value.save(path)
    return kind.load(path)


# Groups: names, conditions, files.
named = gcfcp.Groups(["everyone", "over_65"])
columns = {"everyone": np.ones(3, dtype=bool), "over_65": [0, 1, 1]}
assert named.membership(columns).tolist() == [[True, False], [True, True], [True, True]]
groups = gcfcp.Groups(CONDITIONS)
for family in (named, groups):
    with open("groups.toml", "w", encoding="utf-8") as file:
        file.write(family.to_toml())
    assert gcfcp.Groups.from_toml("groups.toml").fingerprint == family.fingerprint

# Sites: summaries, to bytes and back.
score = gcfcp.scores.AbsoluteResidual()
sites = [site(name, groups, score) for name in ("a", "bb", "ccc")]
summaries = [saved_and_loaded(s[0], f"{s[0].client}.gcfcp", gcfcp.ClientSummary) for s in sites]
for summary, (sent, *_) in zip(summaries, sites, strict=True):
    assert summary == sent == gcfcp.ClientSummary.from_bytes(sent.to_bytes())

# Server: plan, merge, calibrate.
assert gcfcp.plan(summaries, alpha=0.1).finite
region = gcfcp.merge(summaries[:2], "region")
assert region.n == 800
calibration = gcfcp.calibrate([region, summaries[2]], alpha=0.1, aggregates=["region"])
predictor = gcfcp.Predictor(score, calibration)
predictor = saved_and_loaded(predictor, "predictor.json", gcfcp.Predictor)

# Anywhere: intervals, audits of one client and of several.
audits = []
for summary, prediction, y, membership in sites:
    ends = predictor.predict_interval(prediction, membership)
    covered = (ends[:, 0] <= y) & (y <= ends[:, 1])
    audit = gcfcp.audit(
        covered,
        membership,
        groups=groups,
        client=summary.client,
        set_size=ends[:, 1] - ends[:, 0],
        alpha=0.1,
    )
    audits.append(saved_and_loaded(audit, f"{summary.client}.audit", gcfcp.Audit))
for some in (audits[:1], audits):
    report = gcfcp.merge_audits(some)
    assert report.kept
    assert all(0.8 < g.low < g.coverage < g.high < 1 for g in report.groups)

# Labels: sets.
rng = np.random.default_rng(0)
probabilities = rng.dirichlet(np.ones(4), 300)
labels = np.array([rng.choice(4, p=p) for p in probabilities])
membership = named.check(np.column_stack([np.ones(300), rng.random(300) < 0.5]))
thr = gcfcp.scores.THR()
summary = gcfcp.summarize(
    thr.of(probabilities, labels), membership, groups=named, client="a", score=thr
)
classifier = gcfcp.Predictor(thr, gcfcp.calibrate([summary], 0.2))
classifier = saved_and_loaded(classifier, "classifier.json", gcfcp.Predictor)
sets = classifier.predict_set(probabilities, membership)
assert sets[np.arange(300), labels].mean() >= 0.8

# What needs more says so in one line.
message = ""
try:
    groups.membership({"age": [40, 80]})
except gcfcp.GCFCPError as error:
    message = str(error)
assert "install gcfcp with its extra cli" in message, message
assert "\n" not in message

check_what_is_loaded()
print("numpy alone")
