"""The rest of the page: what was promised, what is infinite, who took part, where it comes from."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gcfcp import codec, scores
from gcfcp.audit import AuditReport
from gcfcp.calibration import MEASURED, PAPER, PROVED, Plan
from gcfcp.prediction import Predictor
from gcfcp.report import numbers as num
from gcfcp.report.parts import (
    EVERYTHING,
    Atom,
    Row,
    alpha_of,
    answer_of,
    atoms_of,
    defined,
    every_group,
    fit,
    mixture_words,
    sum_known,
    weight_of,
)
from gcfcp.report.scale import Mark, Scale, Tick, scale_of
from gcfcp.version import LIBRARY


def promises(predictor: Predictor) -> dict[str, Any]:
    alpha = alpha_of(predictor)
    promise = num.exact_percent(1 - alpha)
    answer = answer_of(predictor)
    given = {str(g.get("group")): g for g in predictor.recorded("guarantee")}
    low, high = num.rounded(alpha, up=False), num.rounded(alpha, up=True)
    text = (
        f"For {every_group(len(predictor.groups))}: of new records of the group, at least "
        f"{promise} have their true answer in the prediction {answer}. Records come from the "
        "clients in a stated mixture: "
        f"{mixture_words(predictor.provenance.get('mixture'))}."
    )
    if not given:
        method = predictor.provenance.get("method")
        named = f" ({method})" if isinstance(method, str) else ""
        return {
            "text": text + f" The method{named} recorded no bound for single groups.",
            "rows": [],
        }
    rows: list[Row] = []
    for group, definition in defined(predictor):
        g = given.get(group, {})
        rows.append(
            {
                "group": group,
                "definition": definition,
                "bounds": [
                    {"label": label, "cell": num.Cell.of(g.get(key), form), "status": status}
                    for label, key, form in (
                        ("Certified at least", "certified", low),
                        ("Worst case at least", "lower", low),
                        ("At most", "upper", high),
                    )
                    if (status := str(g.get(f"{key}_status", num.DASH)))
                ],
                "records": num.Cell.of(g.get("records"), num.whole),
                "effective": num.Cell.of(g.get("effective_n"), num.whole),
                "weight": num.Cell.of(g.get("weight"), num.share),
            }
        )
    statuses = {bound["status"] for row in rows for bound in row["bounds"]}
    eta = codec.number(next(iter(given.values())).get("eta"))
    rows, left_out = fit(
        rows,
        lambda row: float(row["records"].value or 0),
        lambda row: 900 + len(row["group"]) + len(row["definition"]),
        "largest groups",
    )
    if eta is not None:
        text += f" The bound from above holds with {num.exact_percent(1 - eta / 2)} confidence."
    return {
        "text": text,
        "rows": rows,
        "left_out": left_out,
        "words": [(status, _STATUS[status]) for status in _STATUS if status in statuses],
    }


_STATUS = {
    PROVED: (
        "A theorem covers exactly what was done here. It assumes only that new records of a client "
        "are drawn as its calibration records were."
    ),
    PAPER: (
        "The bound follows from the proof in the paper behind this method (Wen, Simeone and Xing, "
        "UAI 2026). For several clients that proof leaves a step open, so read it as the authors' "
        "argument and not as a theorem."
    ),
    MEASURED: (
        "No proof covers this combination of overlapping groups and clients. The bound held in "
        "simulations with known truth; whether it holds for your data is what an audit finds out. "
        'The rule "max" is proved for overlapping groups too, with larger sets.'
    ),
}


def infinite(predictor: Predictor, plan: Plan | None) -> dict[str, Any]:
    atoms = atoms_of(predictor)
    infinite = [a for a in atoms if not math.isfinite(a.threshold)]
    answer = answer_of(predictor)
    if not infinite:
        text = (
            f"Nothing: each of the {num.counted(len(atoms), 'combination')} of groups that "
            "occurred in calibration has a finite threshold."
        )
    else:
        text = (
            f"{num.counted(len(infinite), 'combination')} of groups, of {num.whole(len(atoms))}: "
            f"no finite threshold would keep the promise there. Nothing was made up in its place: "
            f"the prediction {answer} "
            + ("is unbounded" if answer == "interval" else EVERYTHING)
            + ", which is true and says nothing."
        )
    by_reason: dict[str, list[Atom]] = {}
    for atom in infinite:
        by_reason.setdefault(atom.reason or "no reason was recorded", []).append(atom)
    items = []
    for reason, members in sorted(by_reason.items(), key=lambda item: -weight_of(item[1])):
        shown = sorted(members, key=lambda a: -(a.weight or 0))[:8]
        extent = num.counted(len(members), "combination") + " of groups"
        records = sum_known([a.count for a in members])
        if records is not None:
            extent += (
                f", {num.counted(records, 'record')}, {num.share(weight_of(members))} of the weight"
            )
        left = len(members) - len(shown)
        items.append(
            {
                "reason": reason[:1].upper() + reason[1:],
                "extent": extent,
                "atoms": [a.groups or ("no group",) for a in shown],
                "more": f"and {num.counted(left, 'more combination')}" if left else "",
            }
        )
    listed = items[:40]
    if len(items) > len(listed):
        text += f" The {len(listed)} reasons of most weight, of {len(items)}, are listed."
    return {
        "text": text,
        "reasons": listed,
        "missing": [] if plan is None else _missing(plan),
        "advice": [] if plan is None else [_sentence(a) for a in plan.advice],
    }


def _missing(plan: Plan) -> list[str]:
    lines = []
    for g in plan.groups:
        if g.finite:
            continue
        if g.missing is None:
            need = f"more records like its {num.whole(g.records)} would not help"
        else:
            need = (
                f"{num.counted(g.missing, 'more record')} beside its {num.whole(g.records)}, if "
                f"all clients grow alike, {g.growth:.3g}-fold"
            )
        lines.append(
            f"{g.group}: {need}; as it is, alpha could be no less than {g.least_alpha:.3g}."
        )
    return lines[:40]


def _sentence(text: str) -> str:
    return text if text.endswith(".") else text + "."


def thresholds(predictor: Predictor) -> dict[str, Any]:
    atoms = atoms_of(predictor)
    counted = predictor.atoms is not None
    finite = [a.threshold for a in atoms if math.isfinite(a.threshold)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    if high == low:
        low, high = min(0.0, low), max(0.0, high) or low + 1
    elif 0 < low < 0.7 * high:
        low = 0.0
    infinite = any(a.threshold == math.inf for a in atoms)
    scale = scale_of(low, high, num.short, right=85 if infinite else 93)
    if infinite:
        scale = Scale(
            scale.low, scale.high, scale.left, scale.right, (*scale.ticks, Tick("95", "∞"))
        )
    zero = scale.at(max(low, min(high, 0.0)))
    rows: list[Row] = []
    for atom in atoms:
        threshold = num.Cell.of(atom.threshold, num.short)
        if math.isfinite(atom.threshold):
            x = scale.at(atom.threshold)
            mark = Mark(0, x, 0, f"threshold {threshold.text}")
            stem: tuple[str, str] | None = (zero, x)
        else:
            mark = Mark(0, "95" if atom.threshold > 0 else "2", 0, "", infinite=True)
            stem = None
        rows.append(
            {
                "groups": atom.groups or ("no group",),
                "marks": [mark],
                "stem": stem,
                "threshold": threshold,
                "count": num.Cell.of(atom.count, num.whole),
                "weight": num.Cell.of(atom.weight, num.share),
            }
        )

    def importance(row: Row) -> tuple[bool, float]:
        return (math.isfinite(float(row["threshold"].value)), -float(row["weight"].value or 0))

    rows.sort(key=importance)
    rows, left_out = fit(
        rows,
        importance,
        lambda row: 1400 + sum(12 + len(name) for name in row["groups"]),
        "lightest combinations",
    )
    sets = answer_of(predictor) == "set"
    below = (
        "An answer is in the prediction set if its score is at most the threshold of the "
        "combination of groups that the record belongs to; a lower threshold means smaller sets. "
        if sets
        else "The interval holds the answers whose score is at most the threshold of the "
        "combination of groups that the record belongs to; a lower one means narrower intervals. "
    )
    return {
        "text": below + _RULES[predictor.threshold_table.rule],
        "scale": scale,
        "rows": rows,
        "left_out": left_out,
        "counted": counted,
    }


_RULES = {
    "simultaneous": "All thresholds were found together, so that every group keeps its promise.",
    "max": "Each is the largest of the thresholds of its groups.",
    "first": "Each is the threshold of the first of its groups.",
    "constant": "There is one threshold for every record, whatever its groups.",
}


def clients(predictor: Predictor) -> dict[str, Any]:
    given = predictor.recorded("clients")
    if not given:
        return {"text": "No clients are recorded.", "rows": [], "notes": []}
    total = sum_known([codec.number(c.get("n")) for c in given]) or 0
    weighted = any(codec.number(c.get("share")) is not None for c in given)
    parts = [(codec.number(c.get("share")), _part(codec.number(c.get("n")), total)) for c in given]
    highest = max([v for pair in parts for v in pair if v is not None], default=1.0) or 1.0
    scale = scale_of(0.0, highest, lambda v: f"{100 * v:.4g}%")
    rows: list[Row] = []
    for client, (share, part) in zip(given, parts, strict=True):
        marks = []
        if part is not None:
            marks.append(Mark(1, scale.at(part), 0, f"{num.share(part)} of the records"))
        if share is not None:
            marks.append(Mark(0, scale.at(share), 0, f"weight {num.share(share)}"))
        rows.append(
            {
                "client": str(client.get("client", num.DASH)),
                "note": _client_note(client),
                "marks": marks,
                "stem": None
                if share is None or part is None
                else (scale.at(share), scale.at(part)),
                "n": num.Cell.of(client.get("n"), num.whole),
                "share": num.Cell.of(share, num.share),
                "bytes": num.Cell.of(client.get("bytes"), num.in_bytes),
                "centroids": num.Cell.of(client.get("centroids"), num.whole),
                "atoms": num.Cell.of(client.get("atoms"), num.whole),
                "suppressed": num.Cell.of(client.get("suppressed"), num.whole),
                "sha256": str(client.get("sha256", num.DASH)),
            }
        )
    rows, left_out = fit(
        rows,
        lambda row: -float(row["n"].value or 0),
        lambda row: 1800 + len(row["client"]) + len(row["note"]),
        "smallest clients",
    )
    return {
        "text": _disclosed(predictor, given),
        "names": ["weight in the mixture", "share of the records"]
        if weighted
        else ["", "share of the records"],
        "scale": scale,
        "rows": rows,
        "left_out": left_out,
        "detailed": any("centroids" in c for c in given),
        "notes": _client_notes(predictor, given),
    }


def _part(n: float | None, total: float) -> float | None:
    return None if n is None or not total else n / total


def _client_note(client: Mapping[str, Any]) -> str:
    members = codec.number(client.get("members"))
    notes = []
    if members is not None and members > 1:
        notes.append(f"for {num.counted(members, 'client')}")
    uncovered = codec.number(client.get("uncovered"))
    if uncovered:
        notes.append(f"{num.counted(uncovered, 'record')} in no group")
    if client.get("unlike"):
        notes.append("unlike the others")
    return ", ".join(notes)


def _disclosed(predictor: Predictor, given: Sequence[Mapping[str, Any]]) -> str:
    sent = sum_known([codec.number(c.get("bytes")) for c in given])
    records = sum_known([codec.number(c.get("n")) for c in given])
    values = sum_known([codec.number(c.get("centroids")) for c in given])
    if sent is None or records is None or values is None:
        return "The method recorded the clients' sizes, and not what they sent."
    return (
        "No feature, label or prediction left a client. What left is one summary each: its number "
        "of records, and for every combination of groups that occurred how many records it has and "
        f"a few score values with their counts. In all, {num.in_bytes(sent)} for "
        f"{num.counted(records, 'record')}: {num.counted(values, 'score value')}."
    )


def _client_notes(predictor: Predictor, given: Sequence[Mapping[str, Any]]) -> list[str]:
    notes = []
    least = [c for c in given if codec.number(c.get("min_count")) == 1]
    if least and predictor.provenance.get("representative") == "upper":
        every = "every client" if len(least) == len(given) else num.counted(len(least), "client")
        notes.append(
            f"For {every} the smallest combination that may be described has 1 record (min_count), "
            "and each score value sent is the exact score of some record. A larger min_count hides "
            "small combinations and rounds."
        )
    suppressed = sum_known([codec.number(c.get("suppressed")) for c in given])
    if suppressed:
        notes.append(
            f"{num.counted(suppressed, 'record')} lie in combinations too small to be described "
            "(min_count). They count as if their score were infinite, which can only raise "
            "thresholds."
        )
    uncovered = sum_known([codec.number(c.get("uncovered")) for c in given])
    if uncovered:
        notes.append(
            f"{num.counted(uncovered, 'record')} belong to no group, and nothing is promised for "
            "such records."
        )
    notes += [_sentence(c["unlike"]) for c in given if isinstance(c.get("unlike"), str)]
    return notes


def words(predictor: Predictor, audit: AuditReport | None) -> list[tuple[str, str]]:
    answer = answer_of(predictor)
    words = [
        (
            "Coverage",
            f"The share of records whose true answer lies in the prediction {answer}. It is "
            "counted group by group, so that a good average cannot hide a group that is let down.",
        ),
        (
            "Certified at least, worst case, at most",
            "Bounds on the coverage of a group. The worst case follows from how strongly "
            "scores may be compressed; the certified bound from the errors that really occurred. "
            "Each has its ground beside it.",
        ),
        (
            "Combination of groups",
            "Groups may overlap. Records that belong to exactly the same groups share one "
            "threshold; such a set of records is called an atom in the files.",
        ),
        (
            "Weight",
            "A share of the mixture of clients for which the promise is made, and not of the "
            "records.",
        ),
    ]
    if audit is not None:
        margin = audit.margin or 0.0
        words.insert(
            1,
            (
                "Kept, broken, too few records",
                "Broken: the whole interval lies below the promise. Kept: the whole interval lies "
                f"above the promise less {100 * margin:.3g} points; no number of records could "
                "rule out a coverage that is a hair below. Too few records: neither can be shown.",
            ),
        )
    return words


def provenance(
    predictor: Predictor, audit: AuditReport | None, date: str, command: str | None
) -> list[dict[str, Any]]:
    given = predictor.provenance
    name, parameters = scores.describe(predictor.score)
    settings = ", ".join(f"{key} = {value}" for key, value in sorted(parameters.items()))
    clients = predictor.recorded("clients")
    libraries = sorted({str(c["library"]) for c in clients if "library" in c})
    deltas = sorted({d for c in clients if (d := codec.number(c.get("delta"))) is not None})
    minimum = sorted({m for c in clients if (m := codec.number(c.get("min_count"))) is not None})
    python = ".".join(map(str, sys.version_info[:3]))
    pairs = [
        ("Date", date, False),
        ("Command", command, True),
        ("Versions", f"{LIBRARY}, Python {python}, NumPy {np.__version__}", False),
        ("Versions at the clients", ", ".join(libraries), False),
        ("Method", given.get("method"), False),
        ("Score", f"{name} ({settings})" if settings else name, False),
        ("alpha", f"{alpha_of(predictor):g}", False),
        ("Mixture", _mixture_text(given.get("mixture")), False),
        ("Rule", predictor.threshold_table.rule, False),
        ("Merge", given.get("merge"), False),
        ("Compression at the clients (delta)", ", ".join(f"{d:g}" for d in deltas), False),
        ("Compression at the server (delta)", given.get("recompression_delta"), False),
        ("Representative of a cluster", given.get("representative"), False),
        (
            "Smallest combination described (min_count)",
            ", ".join(map(num.whole, minimum)),
            False,
        ),
        ("Model", given.get("model"), True),
        ("Groups, fingerprint", predictor.groups.fingerprint, True),
        ("Predictor, SHA-256", predictor.fingerprint, True),
    ]
    if audit is not None:
        pairs += [
            ("Predictor that was audited", audit.predictor, True),
            ("Mixture of the audit", _mixture_text(audit.mixture), False),
            ("Intervals of the audit", f"{audit.interval}, {audit.adjustment}", False),
            ("Confidence of the audit", num.exact_percent(audit.confidence), False),
        ]
    return [
        {"what": what, "value": str(value), "mono": mono} for what, value, mono in pairs if value
    ]


def _mixture_text(mixture: Any) -> str | None:
    if isinstance(mixture, Mapping):
        parts = [f"{k}: {codec.number(w) or 0:.4g}" for k, w in list(mixture.items())[:50]]
        more = f", and {len(mixture) - 50} more" if len(mixture) > 50 else ""
        return ", ".join(parts) + more
    return None if mixture is None else str(mixture)
