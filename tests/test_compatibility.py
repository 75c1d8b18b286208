"""Files that gcfcp 0.1.0 wrote can still be read, and their thresholds are the same, bit by bit.

`tests/data/0.1.0` holds what that version made: summaries (with and without `min_count`, an
aggregate, one of means), a signature, predictors by each rule, and audits. `expected.json` holds
the numbers that it computed from them. These files are never written again.
"""

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import gcfcp

FILES = Path(__file__).parent / "data" / "0.1.0"
EXPECTED = json.loads((FILES / "expected.json").read_text())
ROWS = np.array(EXPECTED["rows"], dtype=bool)
SUMMARIES = ("north", "south", "region", "mean")
CALIBRATED = ("north", "south", "region")
HOW = {
    "simultaneous": {"mixture": "uniform"},
    "max": {"mixture": "uniform", "rule": "max"},
    "recompressed": {"merge": "recompress"},
}


def thresholds(name):
    return [float(t) for t in EXPECTED["thresholds"][name]]


@pytest.mark.parametrize("name", SUMMARIES)
def test_a_summary_is_read_and_written_as_it_was(name):
    path = FILES / f"{name}.gcfcp"
    summary = gcfcp.ClientSummary.load(path)
    assert summary.client == name
    assert summary.library == "gcfcp 0.1.0"
    assert summary.to_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", ["north", "south"])
def test_an_audit_is_read_and_written_as_it_was(name):
    path = FILES / f"{name}.audit"
    audit = gcfcp.Audit.load(path)
    assert audit.client == name
    assert audit.share is None
    assert audit.to_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", HOW)
def test_old_summaries_give_the_thresholds_that_they_gave(name):
    summaries = [gcfcp.ClientSummary.load(FILES / f"{k}.gcfcp") for k in CALIBRATED]
    how = dict(HOW[name])
    if name == "recompressed":  # That version made the shares proportional to n_k + 1.
        total = sum(s.n + len(s.members) for s in summaries)
        how["mixture"] = {s.client: Fraction(s.n + len(s.members), total) for s in summaries}
    how["aggregates"] = {"region": 2}  # That version believed what an aggregate says.
    calibration = gcfcp.calibrate(summaries, 0.2, correction="paper", **how)
    assert calibration.thresholds(ROWS).tolist() == thresholds(name)


@pytest.mark.parametrize("name", HOW)
def test_an_old_predictor_gives_the_thresholds_that_it_gave(name):
    predictor = gcfcp.Predictor.load(FILES / f"predictor-{name}.json")
    assert predictor.thresholds(ROWS).tolist() == thresholds(name)
    assert all(math.isfinite(t) for t in thresholds(name))


def test_an_old_predictor_without_a_coreset_knows_the_atoms_that_were_seen():
    predictor = gcfcp.Predictor.load(FILES / "predictor-seen-only.json")
    assert predictor.thresholds(ROWS[:4]).tolist() == thresholds("seen-only")
    with pytest.raises(gcfcp.GCFCPError, match="coreset"):
        predictor.thresholds(ROWS[4:5])


def test_old_audits_merge_to_the_numbers_that_they_gave():
    audits = [gcfcp.Audit.load(FILES / f"{k}.audit") for k in ("north", "south")]
    merged = gcfcp.merge_audits(audits, "uniform")  # This was the default of 0.1.0.
    for found, old in zip(merged.groups, EXPECTED["audit"], strict=True):
        assert {key: getattr(found, key) for key in ("group", "covered", "total", "verdict")} == {
            key: old[key] for key in ("group", "covered", "total", "verdict")
        }
        assert [found.low, found.high] == pytest.approx([old["low"], old["high"]], abs=1e-12)


def test_old_audits_do_not_know_the_mixture_so_that_every_record_counts_the_same():
    audits = [gcfcp.Audit.load(FILES / f"{k}.audit") for k in ("north", "south")]
    assert gcfcp.merge_audits(audits) == gcfcp.merge_audits(audits, "proportional")


@pytest.mark.parametrize("name", HOW)
def test_an_old_predictor_knows_what_its_clients_weigh(name):
    predictor = gcfcp.Predictor.load(FILES / f"predictor-{name}.json")
    shares = [predictor.share_of(client) for client in CALIBRATED]
    assert None not in shares
    assert math.fsum(shares) == pytest.approx(1)
    assert predictor.share_of("nobody") is None


def test_an_old_signature_still_holds():
    pytest.importorskip("cryptography")
    from gcfcp.summary import signatures

    known = signatures.load_known(FILES / "known-keys.toml")
    (summary,) = signatures.load_signed([FILES / "north.gcfcp"], known)
    assert summary.client == "north"
