"""The sections of the page below the audit: promises, thresholds, clients, words, provenance."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gcfcp import codec, scores
from gcfcp.audit import AuditReport
from gcfcp.calibration import EVERYTHING_GIVEN, MEASURED, PAPER, PROVED, Plan, twin_texts
from gcfcp.prediction import Predictor
from gcfcp.report import numbers as num
from gcfcp.report.parts import (
    EVERYTHING,
    Atom,
    Cells,
    Row,
    alpha_of,
    answer_of,
    atoms_of,
    cells_of,
    defined,
    every_group,
    fit,
    mixture_words,
    sum_known,
    weight_of,
)
from gcfcp.report.scale import Mark, Scale, Tick, scale_of
from gcfcp.shape import Shape
from gcfcp.version import LIBRARY

# --- what was promised ----------------------------------------------------------------------------


def promises(predictor: Predictor) -> dict[str, Any]:
    """The section about the promises: a text and, if bounds are known, one row for each group."""
    given = {str(g.get("group")): g for g in predictor.recorded("guarantee")}
    text = _promise_text(predictor)
    if not given:
        method = predictor.provenance.get("method")
        named = f" ({method})" if isinstance(method, str) else ""
        return {
            "text": text + f" The method{named} recorded no bounds for single groups.",
            "noise": "",
            "rows": [],
        }
    rows = [
        _promise_row(group, definition, given.get(group, {}), alpha_of(predictor))
        for group, definition in defined(predictor)
    ]
    counted = any(row["records"].value for row in rows)
    if not counted:
        text += (
            " How many records a group has is not told: the predictor was saved without counts, "
            "because the counts of each client could be computed from them."
        )
    statuses = {bound["status"] for row in rows for bound in row["bounds"]}
    eta = codec.number(next(iter(given.values())).get("eta"))
    rows, left_out = fit(
        rows,
        lambda row: float(row["records"].value or 0),
        lambda row: 900 + len(row["group"]) + len(row["definition"]),
        "the groups with the most records",
    )
    if eta is not None:
        confidence = num.exact_percent(1 - eta / 2)
        text += f' The bounds in the column "At most" hold with {confidence} confidence.'
    return {
        "text": text,
        "noise": _noise_text(list(given.values())),
        "rows": rows,
        "counted": counted,
        "noisy": any(row["noise"].value for row in rows),
        "left_out": left_out,
        "words": [
            (GROUNDS.get(status, status), STATUS[status]) for status in STATUS if status in statuses
        ],
    }


def _promise_text(predictor: Predictor) -> str:
    """The promise in words."""
    return (
        f"For {every_group(len(predictor.groups))}, the prediction {answer_of(predictor)} is "
        "promised to contain the true answer for at least "
        f"{num.exact_percent(1 - alpha_of(predictor))} of the new records. New records are assumed "
        "to come from the clients in a fixed mixture: "
        f"{mixture_words(predictor)}. {_kind_of_promise(predictor)}"
    )


def _kind_of_promise(predictor: Predictor) -> str:
    """Whether the promise is about the average or about this predictor, and what it cost."""
    confidence = codec.number(predictor.provenance.get("confidence"))
    if confidence is None:
        return (
            "The promise holds on average over calibrations: over all that could have happened "
            f"with other records of the same clients.{_charged(predictor)}"
        )
    return (
        f"The promise is about this very predictor: with {num.exact_percent(confidence)} "
        "confidence it holds for all groups at once."
    )


def _charged(predictor: Predictor) -> str:
    """What the promise cost: how much the record to come weighed in the fit; "" if not known."""
    given = predictor.provenance.get("correction")
    if not isinstance(given, Mapping):
        return ""
    most, papers = codec.number(given.get("records")), codec.number(given.get("paper"))
    least = codec.number(given.get("least_records"))
    if most is None or least is None or papers is None:
        return ""
    size = f"{most:.3g}" if least > 0.995 * most else f"{least:.3g} to {most:.3g}"
    compared = f"; one record for each client would be {papers:.3g}"
    if given.get("kind") == "paper":
        compared = ", one for each client, as the paper does it"
    return (
        " A threshold must leave room for the record to come. Here that record weighs as much as "
        f"{size} of the calibration records{compared}."
    )


def _promise_row(group: str, definition: str, given: Mapping[str, Any], alpha: float) -> Row:
    """The bounds on the coverage of one group, each with how well it is founded."""
    low, high = num.rounded(alpha, up=False), num.rounded(alpha, up=True)
    bounds = (
        ("Promised at least", "certified", low),
        ("Worst case at least", "lower", low),
        ("At most", "upper", high),
    )
    return {
        "group": group,
        "definition": definition,
        "bounds": [
            {
                "label": label,
                "cell": num.Cell.of(given.get(key), form),
                "status": status,
                "ground": GROUNDS.get(status, status),
            }
            for label, key, form in bounds
            if (status := str(given.get(f"{key}_status", num.DASH)))
        ],
        "records": num.Cell.of(given.get("records"), num.whole),
        "effective": num.Cell.of(given.get("effective_n"), num.whole),
        "weight": num.Cell.of(given.get("weight"), num.share),
        "noise": num.Cell.of(given.get("privacy"), _points),
    }


def _noise_text(given: Sequence[Mapping[str, Any]]) -> str:
    """What noise protects and what it took, in words; "" if no client has added any."""
    losses = [e for g in given if (e := codec.number(g.get("epsilon"))) is not None]
    if not losses:
        return ""
    told = any(codec.number(g.get("privacy")) is not None for g in given)
    points = (
        ', by as many percentage points as "Taken by noise" says'
        if told
        else "; by how much is not told, because some clients have added no noise"
    )
    return (
        "Clients have added noise to their counts, so that one record more or less at a client "
        "changes the probability of what it tells by at most the factor e^"
        f"{max(losses):g} (epsilon {max(losses):g}). The promise holds in spite of the noise: "
        f"more coverage is aimed at than is promised{points}. This makes predictions larger."
    )


def _points(value: float) -> str:
    """A part of the coverage in percentage points; all of it if nothing else is left."""
    return "all" if value >= 1 else f"{100 * value:.1f}"


GROUNDS = {
    PAPER: "argued in the paper, not proved",
    MEASURED: "measured, not proved",
    EVERYTHING_GIVEN: "only by giving everything",
}
"""What stands below a bound, where it is not the status itself."""

STATUS = {
    EVERYTHING_GIVEN: (
        "No threshold of the group is finite, because no site has enough records of it, or any. "
        "Every prediction holds everything, so that it is never wrong and says nothing."
    ),
    PROVED: (
        "A mathematical theorem covers exactly what was done here. It assumes that the new records "
        "of a client arise in the same way as its calibration records did and independently of "
        "each other, that they come from the clients in the mixture that was stated, that groups, "
        "score, model, alpha and mixture were fixed beforehand, and that the clients report "
        "honestly."
    ),
    PAPER: (
        "The bound follows from the proof in the paper behind this method (Wen, Simeone and Xing, "
        "UAI 2026). For several clients that proof leaves a step open, so read it as the authors' "
        "argument and not as a theorem."
    ),
    MEASURED: (
        "The theorem for overlapping groups does not cover summaries that are compressed or that "
        "withhold records. The bound held in simulations in which the truth was known. Whether it "
        'holds for your data is what an audit finds out. With the rule "max" and upper '
        "representatives the bound is proved for compressed summaries too, but the predictions may "
        "be larger."
    ),
}


# --- thresholds that are not finite ---------------------------------------------------------------

_LISTED = 40  # The most reasons, and the most groups that lack records, that are listed.


def infinite(predictor: Predictor, plan: Plan | None) -> dict[str, Any]:
    """The section about thresholds that are not finite: why, and what would help.

    plan: What `plan` said of the same summaries. Without it, the section does not say how many
    records are missing.
    """
    atoms = atoms_of(predictor)
    infinite = [a for a in atoms if not math.isfinite(a.threshold)]
    cells = cells_of(predictor)
    counted = any(a.count is not None for a in atoms)
    text = _infinite_text(len(infinite), len(atoms), answer_of(predictor), cells, counted)
    by_reason: dict[str, list[Atom]] = {}
    for atom in infinite:
        by_reason.setdefault(atom.reason or "no reason was recorded", []).append(atom)
    items = [
        _reason_item(reason, members, cells)
        for reason, members in sorted(by_reason.items(), key=lambda item: -weight_of(item[1]))
    ]
    listed = items[:_LISTED]
    if len(items) > len(listed):
        text += (
            f" Of {len(items)} reasons, the {len(listed)} that concern the most weight are listed."
        )
    return {
        "text": text,
        "reasons": listed,
        "missing": [] if plan is None else _missing(plan),
        "advice": [] if plan is None else [_sentence(a) for a in plan.advice],
    }


def _infinite_text(infinite: int, atoms: int, answer: str, cells: Cells, counted: bool) -> str:
    """For how many combinations of groups, or groups, no threshold is finite, and what it means.

    counted: Whether the combinations are those that occurred in calibration.
    """
    if not infinite:
        if cells.word == "group":
            return f"Nowhere: each of the {cells.counted(atoms)} has a finite threshold."
        occurred = " that occurred in calibration" if counted else " listed below"
        return f"Nowhere: each of the {cells.counted(atoms)}{occurred} has a finite threshold."
    state = "is unbounded" if answer == "interval" else EVERYTHING
    return (
        f"For {num.whole(infinite)} of {cells.counted(atoms)}, no finite "
        "threshold would keep the promise. No number was made up in its place: the prediction "
        f"{answer} {state} there. Such a prediction is never wrong, but it says nothing."
    )


def _reason_item(reason: str, members: Sequence[Atom], cells: Cells) -> dict[str, Any]:
    """One reason, the combinations that it concerns, and how many records and weight they have."""
    shown = sorted(members, key=lambda a: -(a.weight or 0))[:8]
    extent = cells.counted(len(members))
    records = sum_known([a.count for a in members])
    if records is not None and (cells.word != "group" or len(members) == 1):
        extent += (
            f", {num.counted(records, 'record')}, {num.share(weight_of(members))} of the weight"
        )
    left = len(members) - len(shown)
    return {
        "reason": reason[:1].upper() + reason[1:],
        "extent": extent,
        "atoms": [a.groups or ("no group",) for a in shown],
        "more": f"and {num.counted(left, f'more {cells.word}')}" if left else "",
    }


def _missing(plan: Plan) -> list[str]:
    """For each group that has too few records, how many it lacks."""
    lines = []
    for g in plan.groups:
        if g.finite:
            continue
        has = f"{g.group}: this group has {num.counted(g.records, 'record')}"
        if g.missing is None:
            need = f"{has}, and more records of the same kind would not help."
        else:
            need = (
                f"{has} and needs {num.whole(g.missing)} more, if all clients grow by the same "
                f"factor ({g.growth:.3g})."
            )
        lines.append(
            f"{need} With the records that it has, the share that may be missed (alpha) can be no "
            f"smaller than {g.least_alpha:.3g}."
        )
    return lines[:_LISTED]


def _sentence(text: str) -> str:
    """The text with a full stop at its end."""
    return text if text.endswith(".") else text + "."


# --- thresholds -----------------------------------------------------------------------------------


def thresholds(predictor: Predictor) -> dict[str, Any]:
    """The section about thresholds: one row for each combination of groups, infinite ones first."""
    atoms = atoms_of(predictor)
    scale = threshold_scale([a.threshold for a in atoms])

    def importance(row: Row) -> tuple[bool, float]:
        return (math.isfinite(float(row["threshold"].value)), -float(row["weight"].value or 0))

    rows = sorted((_threshold_row(atom, scale) for atom in atoms), key=importance)
    rows, left_out = fit(
        rows,
        importance,
        lambda row: 1400 + sum(12 + len(name) for name in row["groups"]),
        f"the {cells_of(predictor).word}s{cells_of(predictor).tail} with the least weight",
    )
    return {
        "text": f"{_THRESHOLD[answer_of(predictor)]} {_rule_text(predictor)}",
        "cells": cells_of(predictor),
        "heading": HEADINGS[predictor.by],
        "number": "Threshold" if _shape(predictor) is None or predictor.by == "atom" else "Level",
        "scale": scale,
        "rows": rows,
        "left_out": left_out,
        "counted": any(a.count is not None for a in atoms),
    }


_INFINITY = "95"  # The place of +inf on the axis, in percent. Finite thresholds end at 85.
_MINUS_INFINITY = "2"  # The place of -inf, which the template recognises.


def threshold_scale(thresholds: Sequence[float]) -> Scale:
    """An axis for the finite thresholds, with a tick for +inf if some threshold is infinite.

    It starts at 0 if the lowest threshold is positive and below 70% of the highest, and at the
    lowest threshold otherwise.
    """
    finite = [t for t in thresholds if math.isfinite(t)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    if high == low:
        low, high = min(0.0, low), max(0.0, high) or low + 1
    elif 0 < low < 0.7 * high:
        low = 0.0
    infinite = any(t == math.inf for t in thresholds)
    scale = scale_of(low, high, num.short, right=85 if infinite else 93)
    return replace(scale, ticks=(*scale.ticks, Tick(_INFINITY, "∞"))) if infinite else scale


def _threshold_row(atom: Atom, scale: Scale) -> Row:
    """One combination of groups: its threshold as a number and as a mark with a stem from 0."""
    threshold = num.Cell.of(atom.threshold, num.short)
    stem: tuple[str, str] | None = None
    if math.isfinite(atom.threshold):
        x = scale.at(atom.threshold)
        mark = Mark(0, x, 0, f"threshold {threshold.text}")
        stem = (scale.at(max(scale.low, min(scale.high, 0.0))), x)
    else:
        place = _INFINITY if atom.threshold > 0 else _MINUS_INFINITY
        mark = Mark(0, place, 0, "", infinite=True)
    return {
        "groups": atom.groups or ("no group",),
        "marks": [mark],
        "stem": stem,
        "threshold": threshold,
        "count": num.Cell.of(atom.count, num.whole),
        "weight": num.Cell.of(atom.weight, num.share),
    }


_THRESHOLD = {
    "set": (
        "Every possible answer has a score, which says how badly the answer fits the model's "
        "prediction. The prediction set holds the answers whose score is at most the threshold for "
        "the record's combination of groups, so a lower threshold means smaller sets."
    ),
    "interval": (
        "Every possible answer has a score, which says how badly the answer fits the model's "
        "prediction. The prediction interval holds the answers whose score is at most the "
        "threshold for the record's combination of groups, so a lower threshold means narrower "
        "intervals."
    ),
}

_RULES = {
    "simultaneous": (
        "All thresholds were computed together, with the promise to every group in view."
    ),
    "max": "The threshold for a combination is the largest of the thresholds of its groups.",
    "first": "The threshold for a combination is the threshold of the first of its groups.",
    "constant": "There is one threshold for all records, whatever their groups are.",
}


def _shape(predictor: Predictor) -> Shape | None:
    """The shape that was subtracted from the scores, if there is one."""
    found: Shape | None = getattr(predictor.threshold_table.source, "shape", None)
    return found


HEADINGS = {"atom": "Groups of a record", "group": "Group"}


def _rule_text(predictor: Predictor) -> str:
    """How a record gets its threshold."""
    table, shape = predictor.threshold_table, _shape(predictor)
    if shape is None:
        text = _RULES[table.rule]
        if predictor.by == "group":
            text = "A record gets the largest of the thresholds of its groups, which stand below."
        return text
    parts = [f"{n} {c:+.4g}" for n, c in zip(shape.groups.names, shape.coefficients, strict=True)]
    shown = ", ".join(parts[:12]) + (f", and {len(parts) - 12} more" if len(parts) > 12 else "")
    where = ", which stand below" if predictor.by == "group" else ""
    return (
        "A shape, which was fixed before the calibrating records were seen, gives each record the "
        f"sum of the numbers of its groups ({shown}). Each group has a level, and the threshold of "
        f"a record is this sum plus the largest level of its groups{where}."
    )


# --- a site that takes no part --------------------------------------------------------------------


def unseen(plan: Plan | None, promise: float) -> dict[str, Any] | None:
    """The section about sites that take no part: what happens at a site that was left out.

    plan: What `plan` said of the same summaries; None, and a plan of very many sites, give none.
    promise: The coverage that is promised, 1 - alpha.
    """
    if plan is None or not plan.unseen_site:
        return None
    sites = list(dict.fromkeys(u.client for u in plan.unseen_site))
    rows = []
    for site in sites:
        own = [u for u in plan.unseen_site if u.client == site]
        worst = min(own, key=lambda u: u.coverage)
        whole = max(own, key=lambda u: u.records)
        rows.append(
            {
                "site": site,
                "records": num.Cell.of(whole.records, num.whole),
                "largest": whole.group,
                "coverage": num.Cell.of(whole.coverage, num.share),
                "lowest": num.Cell.of(worst.coverage, num.share),
                "group": f"{worst.group} ({num.counted(worst.records, 'record')})",
                "below": worst.coverage < promise,
            }
        )
    rows, left_out = fit(
        rows,
        lambda row: -float(row["records"].value or 0),
        lambda row: 600 + len(row["site"]) + len(row["group"]) + len(row["largest"]),
        "the sites with the fewest records",
    )
    return {"rows": rows, "left_out": left_out}


# --- clients --------------------------------------------------------------------------------------


def clients(predictor: Predictor, plan: Plan | None = None) -> dict[str, Any]:
    """The section about the clients: what each of them weighs, and what it sent.

    plan: What `plan` said of the same summaries. It tells who has the largest share of a group,
    which a predictor's file does not.
    """
    given = predictor.recorded("clients")
    if not given:
        return {"text": "No clients are recorded.", "rows": [], "notes": []}
    total = sum_known([codec.number(c.get("n")) for c in given]) or 0
    weighted = any(codec.number(c.get("share")) is not None for c in given)
    parts = [(codec.number(c.get("share")), _part(codec.number(c.get("n")), total)) for c in given]
    highest = max([v for pair in parts for v in pair if v is not None], default=1.0) or 1.0
    scale = scale_of(0.0, highest, lambda v: f"{100 * v:.4g}%")
    rows, left_out = fit(
        [_client_row(c, *pair, scale) for c, pair in zip(given, parts, strict=True)],
        lambda row: -float(row["n"].value or 0),
        lambda row: 1800 + len(row["client"]) + len(row["note"]),
        "the clients with the fewest records",
    )
    return {
        "text": _disclosed(predictor, given),
        "cells": f"{cells_of(predictor).word.capitalize()}s",
        "withheld": "Groups withheld" if predictor.by == "group" else "Records withheld",
        "names": ["weight in the mixture" if weighted else "", "share of the records"],
        "scale": scale,
        "rows": rows,
        "left_out": left_out,
        "detailed": any("centroids" in c for c in given),
        "signed": any("sha256" in c for c in given),
        "notes": _client_notes(predictor, given)
        + _share_notes(predictor, plan, len(given))
        + _twin_notes(predictor),
    }


def _part(n: float | None, total: float) -> float | None:
    """A client's share of all records, if it is known."""
    return None if n is None or not total else n / total


def _client_row(
    client: Mapping[str, Any], share: float | None, part: float | None, scale: Scale
) -> Row:
    """One client: its weight in the mixture (`share`) beside its share of the records (`part`)."""
    marks = []
    if part is not None:
        marks.append(Mark(1, scale.at(part), 0, f"{num.share(part)} of the records"))
    if share is not None:
        marks.append(Mark(0, scale.at(share), 0, f"weight {num.share(share)}"))
    return {
        "client": str(client.get("client", num.DASH)),
        "note": _client_note(client),
        "marks": marks,
        "stem": None if share is None or part is None else (scale.at(share), scale.at(part)),
        "n": num.Cell.of(client.get("n"), num.whole),
        "share": num.Cell.of(share, num.share),
        "bytes": num.Cell.of(client.get("bytes"), num.in_bytes),
        "centroids": num.Cell.of(client.get("centroids"), num.whole),
        "atoms": num.Cell.of(client.get("atoms"), num.whole),
        "suppressed": num.Cell.of(
            client.get("hidden_groups") or client.get("suppressed"), num.whole
        ),
        "sha256": str(client.get("sha256", num.DASH)),
    }


def _client_note(client: Mapping[str, Any]) -> str:
    """What stands below a client's name, which is "" for most clients."""
    members = codec.number(client.get("members"))
    notes = []
    if members is not None and members > 1:
        notes.append(f"stands for {num.counted(members, 'client')}")
    uncovered = codec.number(client.get("uncovered"))
    if uncovered:
        notes.append(f"{num.counted(uncovered, 'record')} in no group")
    if client.get("unlike"):
        notes.append("unlike the others")
    return ", ".join(notes)


def _disclosed(predictor: Predictor, given: Sequence[Mapping[str, Any]]) -> str:
    """What left the clients, in words and in numbers."""
    cells, made = cells_of(predictor), predictor.provenance
    records = sum_known([codec.number(c.get("n")) for c in given])
    sent = sum_known([codec.number(c.get("bytes")) for c in given])
    values = sum_known([codec.number(c.get("centroids")) for c in given])
    if any("sha256" in c for c in given):  # Summaries were sent, and a file may tell only sums.
        sent = codec.number(made.get("bytes_sent")) if sent is None else sent
        values = codec.number(made.get("values_sent")) if values is None else values
    if sent is None or records is None or values is None:
        return "The method recorded how many records the clients have, but not what they sent."
    occurred = "" if cells.word == "group" else " that occurred there"
    return (
        "No feature, label or prediction left a client. Each client sent one summary. It says how "
        f"many records the client has and, for every {cells.full}{occurred}, how many records the "
        f"{cells.word} has and a few score values with their counts. All summaries "
        f"together have {num.in_bytes(sent)} and hold {num.counted(values, 'score value')} for "
        f"{num.counted(records, 'record')}."
    )


def _client_notes(predictor: Predictor, given: Sequence[Mapping[str, Any]]) -> list[str]:
    """Remarks below the table of clients: exact scores, records withheld, unlike clients."""
    notes = []
    cells = cells_of(predictor)
    least = [c for c in given if codec.number(c.get("min_count")) == 1]
    if least and predictor.provenance.get("representative") == "upper":
        every = "every client" if len(least) == len(given) else num.counted(len(least), "client")
        notes.append(
            f"At {every}, a {cells.full} may be described even if it has only 1 record "
            "(min_count is 1), and each score value that was sent is the exact score of some "
            f"record. With a larger min_count, small {cells.word}s are withheld and score values "
            "are rounded."
        )
    hidden = sum_known([codec.number(c.get("hidden_groups", 0)) for c in given])
    if hidden:
        notes.append(
            "A group with fewer records than min_count at a client is withheld there: the summary "
            "does not tell how many it has, or whether it has any. As many records as it could "
            "have count as if their score were infinite, which can only raise thresholds."
        )
    larger = [c for c in given if (codec.number(c.get("min_count")) or 1) > 1]
    if larger and not any("suppressed" in c for c in given):
        notes.append(
            f"A {cells.full} with fewer records than min_count at a client is withheld there. Such "
            "records count as if their score were infinite, which can only raise thresholds. How "
            "many were withheld is not told, because the predictor was saved without counts."
        )
    suppressed = sum_known([codec.number(c.get("suppressed")) for c in given])
    if suppressed:
        notes.append(
            f"{num.counted(suppressed, 'record')} are not described, because the combination of "
            "groups has fewer records than min_count, or to hide how many such records there are. "
            "They count as if their score were infinite, which can only raise thresholds."
        )
    uncovered = sum_known([codec.number(c.get("uncovered")) for c in given])
    if uncovered:
        notes.append(
            f"For {num.counted(uncovered, 'record')} in no group nothing is promised, because a "
            "promise is made for groups."
        )
    notes += [_sentence(c["unlike"]) for c in given if isinstance(c.get("unlike"), str)]
    return notes


def _share_notes(predictor: Predictor, plan: Plan | None, clients: int) -> list[str]:
    """Who has the largest share of the weight of each group.

    The plan knows it, and so does a predictor that was not read from a public file. The file may
    come from anyone, so that its entries can be anything.
    """
    if plan is not None:
        given: list[tuple[Any, Any, Any]] = [
            (g.group, g.largest_client, g.largest_share) for g in plan.groups
        ]
    else:
        recorded = predictor.recorded("largest_shares")
        given = [(s.get("group"), s.get("client"), codec.number(s.get("share"))) for s in recorded]
    found = [
        f"{name}: {client} ({num.share(math.ceil(100 * share) / 100)})"
        for name, client, share in given
        if isinstance(name, str) and isinstance(client, str)
        if share is not None and 0 <= share <= 1
    ]
    if not found or clients < 2:
        return []
    shown = ", ".join(found[:_LISTED])
    more = f", and {len(found) - _LISTED} more groups" if len(found) > _LISTED else ""
    return [
        "A client decides how many of its records are in a group, and so how much it weighs "
        "there. The largest share of the weight of each group (rounded up to whole percent), "
        f"records that are withheld included: {shown}{more}."
    ]


def _twin_notes(predictor: Predictor) -> list[str]:
    """Who sent the same as another client."""
    given = predictor.provenance.get("twins")
    named = [
        names
        for names in (given if isinstance(given, list) else [])
        if isinstance(names, list) and names and all(isinstance(k, str) for k in names)
    ]
    return list(map(_sentence, twin_texts(named)))


# --- words and provenance -------------------------------------------------------------------------


def words(predictor: Predictor, audit: AuditReport | None) -> list[tuple[str, str]]:
    """The words of the page, each with what it means."""
    answer = answer_of(predictor)
    words = [
        (
            "Coverage",
            f"The share of records whose true answer lies in the prediction {answer}. It is "
            "counted group by group, so that a good average cannot hide a group that is let down.",
        ),
        (
            "Promised at least, worst case, at most",
            "These are bounds on the coverage of a group. The worst case allows for the largest "
            "error that the clients' compression of their scores could make; what is promised "
            "allows for the error that it really made. The words below each bound say how well it "
            "is founded: proved, argued in the paper, or measured and not proved.",
        ),
        _cell_word(predictor),
        (
            "Effective records",
            "If some clients count more than others, the records of a group tell less than as many "
            "records that all count the same. This is the number of records of equal weight that "
            "would tell as much.",
        ),
        (
            "Weight",
            "How much a group, a combination or a client counts in the mixture of clients for "
            "which the promise is made. It can differ from the share of the records.",
        ),
    ]
    if audit is not None:
        margin = audit.margin or 0.0
        words.insert(
            1,
            (
                "Kept, broken, too few records",
                "Broken means that the whole range of the coverage lies below the promise. Kept "
                "means that the whole range lies above the promise minus a tolerance of "
                f"{100 * margin:.3g} percentage points; without a tolerance, no number of records "
                "could rule out a coverage just below the promise. Too few records means that "
                "neither can be shown. Kept, but only by giving everything, means that at least "
                "the promised share of the predictions held every possible answer.",
            ),
        )
    return words


def _cell_word(predictor: Predictor) -> tuple[str, str]:
    """What is described: combinations of groups, or levels of groups."""
    if predictor.by == "group":
        return (
            "Level",
            "What the scores of a group are compared with after the shape, if there is one, was "
            "subtracted. Groups may overlap, and a record is judged by the largest level of its "
            "groups.",
        )
    return (
        "Combination of groups",
        "Groups may overlap. Records that belong to exactly the same groups share one "
        "threshold. In the files, such a combination is called an atom.",
    )


def provenance(
    predictor: Predictor, audit: AuditReport | None, date: str, command: str | None
) -> list[dict[str, Any]]:
    """What was run on what, as pairs of a name and a value; what is not known is left out."""
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
        ("Share that may be missed (alpha)", f"{alpha_of(predictor):g}", False),
        ("Mixture", _mixture_text(given.get("mixture")), False),
        ("Rule", predictor.threshold_table.rule, False),
        ("Summaries", f"by {predictor.by}", False),
        ("Shape", given.get("shape"), True),
        ("Weight of the record to come", _ground(given.get("correction")), False),
        ("Merge", given.get("merge"), False),
        ("Compression at the clients (delta)", ", ".join(f"{d:g}" for d in deltas), False),
        ("Compression at the server (delta)", given.get("recompression_delta"), False),
        ("Representative of a cluster", given.get("representative"), False),
        (
            f"Smallest {cells_of(predictor).word} described (min_count)",
            ", ".join(map(num.whole, minimum)),
            False,
        ),
        ("Round", given.get("round"), False),
        ("Model", given.get("model"), True),
        ("Fingerprint of the groups", predictor.groups.fingerprint, True),
        ("SHA-256 of the predictor", predictor.fingerprint, True),
    ]
    if audit is not None:
        pairs += [
            ("Fingerprint of the predictor that was audited", audit.predictor, True),
            ("Mixture of the audit", audit.mixture_text, False),
            ("Intervals of the audit", f"{audit.interval}, {audit.adjustment}", False),
            ("Confidence of the audit", num.exact_percent(audit.confidence), False),
        ]
    return [
        {"what": what, "value": str(value), "mono": mono} for what, value, mono in pairs if value
    ]


def _ground(correction: Any) -> str | None:
    """By which theorem the weight of the record to come was found; None if it is not known."""
    theorem = correction.get("theorem") if isinstance(correction, Mapping) else None
    return theorem if isinstance(theorem, str) else None


def _mixture_text(mixture: Any) -> str | None:
    """A mixture by name, or the weights of its first 50 clients; None if there is none."""
    if isinstance(mixture, Mapping):
        parts = [f"{k}: {codec.number(w) or 0:.4g}" for k, w in list(mixture.items())[:50]]
        more = f", and {len(mixture) - 50} more" if len(mixture) > 50 else ""
        return ", ".join(parts) + more
    return None if mixture is None else str(mixture)
