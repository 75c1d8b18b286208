"""The text of the report is complete and escaped, and nothing looks better than it is."""

from __future__ import annotations

import hashlib
import math
import re
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import gcfcp
import samples
from gcfcp.audit import AuditReport, audit, merge_audits
from gcfcp.report import findings, numbers, render, sections
from gcfcp.report.scale import step_of
from gcfcp.thresholds import ByGroup

VOID = {"meta", "link", "input", "circle", "path", "line", "use", "br"}


class Reader(HTMLParser):
    """The text, the tags and the attributes of a page, whose tags must be well nested."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in ("style", "script"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.texts))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def whole(sample: samples.Sample, **options: object) -> str:
    return render(
        sample.predictor,
        sample.audit,
        sample.baselines,
        sample.plan,
        "gcfcp report predictor.json",
        date="2026-01-02",
        **options,
    )


@pytest.fixture(scope="module")
def small() -> Reader:
    return Reader(whole(samples.small()))


def test_the_page_says_what_was_promised_and_found(small: Reader) -> None:
    sample = samples.small()
    assert (
        "Kept within 5 percentage points: for each of the 4 groups, the prediction interval "
        "contained the true answer for at least 85% of the records, with 95% confidence; 90% were "
        "promised."
    ) in small.text
    assert "Of 4 groups: kept for 4." in small.text
    assert "promised 90%" in small.text
    for group in sample.audit.groups:
        assert group.group in small.text
        assert f"{100 * group.coverage:.1f}%" in small.text
        assert f"{group.total:,}" in small.text
    for name, found in sample.baselines.items():
        broken = sum(g.verdict == "broken" for g in found.groups)
        assert broken
        assert f"With {name} instead, the promise would have been broken for" in small.text
    for record in sample.predictor.records or ():
        assert f"{record.threshold:.4g}" in small.text
    for client in sample.predictor.provenance["clients"]:
        assert client["client"] in small.text
        assert f"{client['n']:,}" in small.text
        assert client["sha256"] in [cell.get("title") for cell in small.all("td")]
    assert "No feature, label or prediction left a client" in small.text
    assert "Nowhere: each of the 8 combinations" in small.text
    for status in {g["certified_status"] for g in sample.predictor.provenance["guarantee"]}:
        assert sections.GROUNDS.get(status, status).capitalize() in small.text
        assert sections.STATUS[status] in small.text
    assert "Certified" not in small.text  # A measured bound is not certified.
    assert "measured, not proved" in small.text


def test_provenance_is_complete(small: Reader) -> None:
    predictor = samples.small().predictor
    for text in (
        "2026-01-02",
        "gcfcp report predictor.json",
        gcfcp.version.LIBRARY,
        f"NumPy {np.__version__}",
        "residual",
        "proportional",
        "simultaneous",
        "theorem 2 (all groups together)",
        predictor.groups.fingerprint,
        "Bonferroni over 4 groups",
    ):
        assert text in small.text, text


def test_the_verdict_names_its_mixture() -> None:
    names, groups = ["a", "b"], gcfcp.Groups(["a", "b"])
    membership = np.eye(2, dtype=bool)[np.arange(4000) % 2]
    audits = [
        audit(np.ones(4000), membership, groups=groups, client=client, share=share)
        for client, share in (("one", 0.25), ("two", 0.5))
    ]
    predictor = predictor_of(names)
    text = "one 0.3333, two 0.6667) without the sites that were not audited, whose weight is 0.25"
    other = "; the promise was made for another mixture (one 0.3333, two 0.6667)"
    for mixture, words in (
        (None, f"the predictor's mixture ({text}"),
        ("uniform", f"every site counts the same{other}"),
        ({"one": 0.25, "two": 0.75}, f"weights that were given (one 0.25, two 0.75){other}"),
    ):
        found = merge_audits(audits, mixture, alpha=0.1)
        same = merge_audits(audits, found.shares, alpha=0.1)
        page = render(predictor, found, {"same": same}, date="today")
        verdict = Reader(page.split('aria-label="Verdict">')[1].split("</section>")[0]).text
        assert f"Mixture of the clients in the audit: {words}." in verdict
        assert "With same" not in verdict
        assert f"Mixture of the audit {words}" in Reader(page).text
        warned = "Under another mixture than the promise." in verdict
        assert warned == (mixture is not None)
    other = merge_audits(audits, {"one": 0.125, "two": 0.875}, alpha=0.1)
    text = Reader(render(predictor, found, {"FedCP": other}, date="today")).text
    words = "With FedCP, it is another one: weights that were given (one 0.125, two 0.875); the"
    assert words in text


def test_one_file_and_no_network() -> None:
    page = whole(samples.large())
    assert len(page.encode()) < 2_000_000
    reader = Reader(page)
    addresses = [
        value
        for _, attributes in reader.tags
        for key, value in attributes.items()
        if key in ("src", "href", "srcset", "action", "data", "xlink:href") and value
    ]
    assert addresses
    assert all(a.startswith("#") or a == "data:," for a in addresses)
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|https?://", page)
    policy = next(m["content"] for m in reader.all("meta") if "http-equiv" in m)
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    # The policy would block inline styles and handlers without a word.
    assert not [a for _, a in reader.tags if any(k == "style" or k.startswith("on") for k in a)]


def test_tables_are_accessible(small: Reader) -> None:
    assert all("scope" in head for head in small.all("th"))
    labels = {label["for"] for label in small.all("label")}
    assert labels == {i["id"] for i in small.all("input")}
    ids = [a["id"] for _, a in small.tags if "id" in a]
    assert len(ids) == len(set(ids))
    pointed = {a["aria-labelledby"] for _, a in small.tags if "aria-labelledby" in a}
    assert pointed <= set(ids)
    uses = {a["href"] for a in small.all("use")}
    assert {use.lstrip("#") for use in uses if use} <= set(ids)
    assert next(a for a in small.all("html"))["lang"] == "en"


def test_the_same_arguments_give_the_same_page() -> None:
    sample = samples.small()
    assert whole(sample) == whole(sample)
    when = datetime(2026, 3, 4, 5, 6, tzinfo=UTC)
    assert "2026-03-04 05:06 UTC" in render(sample.predictor, date=when)
    assert str(datetime.now(UTC).year) in render(sample.predictor)


def test_a_report_from_the_file_alone_is_the_same(tmp_path: Path) -> None:
    sample = samples.small()
    sample.predictor.save(tmp_path / "predictor.json")
    digest = hashlib.sha256((tmp_path / "predictor.json").read_bytes()).hexdigest()
    assert digest in whole(sample)
    sample.predictor.save(tmp_path / "with.json", coreset=True)
    loaded = gcfcp.Predictor.load(tmp_path / "with.json")
    page = whole(replace(sample, predictor=loaded))
    assert whole(sample) == page.replace(loaded.fingerprint, digest)


@pytest.mark.few(1)
@pytest.mark.filterwarnings("ignore::gcfcp.GCFCPWarning")
@pytest.mark.parametrize("make", [samples.small, samples.large], ids=["small", "large"])
def test_a_report_from_a_file_without_counts_shows_none(make) -> None:
    """Columns of counts are dropped, and what else the page says stays."""
    sample = make()
    loaded = gcfcp.Predictor.from_json(sample.predictor.to_json())
    assert all(a.count is None for a in loaded.atoms or ())
    page = Reader(whole(replace(sample, predictor=loaded)))
    assert "The predictor was saved without counts" in page.text.replace(" the pred", " The pred")
    for table in ("Effective records</th>", "Values disclosed</th>", "combinations disclosed</th>"):
        assert table not in whole(replace(sample, predictor=loaded))
        assert table.replace("combinations", "Combinations") in whole(sample)
    assert "hold " in page.text  # The sums of what was sent are told.
    assert "score values" in page.text
    for client in loaded.recorded("clients"):
        assert client["client"] in page.text
        assert client["sha256"][:8] in page.text


@pytest.mark.filterwarnings("ignore::gcfcp.GCFCPWarning")
def test_a_report_of_withheld_records_does_not_count_them_without_the_coreset() -> None:
    rng = np.random.default_rng(0)
    groups = gcfcp.Groups(["all", "rare"])
    membership = np.column_stack([np.ones(300, bool), np.arange(300) < 3])
    told = gcfcp.summarize(
        rng.random(300), membership, groups=groups, client="a", min_count=10, score="own"
    )
    predictor = gcfcp.Predictor("own", gcfcp.calibrate([told], 0.1))
    before = Reader(render(predictor, date="today")).text
    assert "9 records are not described" in before
    loaded = gcfcp.Predictor.from_json(predictor.to_json())
    after = Reader(render(loaded, date="today")).text
    assert "records are not described" not in after
    assert "How many were withheld is not told" in after


def test_without_an_audit_the_page_promises_and_does_not_judge() -> None:
    text = Reader(render(samples.small().predictor, date="today")).text
    assert "Promised, not yet audited" in text
    assert "No audit was given" in text
    assert "Kept:" not in text


def test_what_is_infinite_is_listed_with_its_reason() -> None:
    sample = samples.large()
    text = Reader(whole(sample)).text
    infinite = [r for r in sample.predictor.records or () if r.reason is not None]
    assert infinite
    for record in infinite:
        reason = record.reason or ""
        assert reason[:1].upper() + reason[1:] in text
    assert f"For {len(infinite)} of {len(sample.predictor.records or ())} combinations" in text
    missing = [g for g in sample.plan.groups if not g.finite]
    assert missing
    assert all(g.group in text for g in missing)
    assert all(advice in text for advice in sample.plan.advice)


# --- verdicts ------------------------------------------------------------------------------------


def predictor_of(names: list[str], scale: float = 1.0, **options: object) -> gcfcp.Predictor:
    rng = np.random.default_rng(0)
    groups = gcfcp.Groups(names)
    membership = np.eye(len(names), dtype=bool)[np.arange(400) % len(names)]
    scores = scale * rng.random(400)
    summary = gcfcp.summarize(
        scores, membership, groups=groups, client="one", score="own", **options
    )
    return gcfcp.Predictor("own", gcfcp.calibrate([summary], alpha=0.1))


def audited(names: list[str], rates: list[float], n: int = 2000, **options: object) -> AuditReport:
    groups = gcfcp.Groups(names)
    membership = np.repeat(np.eye(len(names), dtype=bool), n, axis=0)
    covered = np.concatenate([np.arange(n) < round(rate * n) for rate in rates])
    return merge_audits(
        [audit(covered, membership, groups=groups, client="one", **options)], alpha=0.1
    )


@pytest.mark.parametrize(
    ("rates", "n", "tone", "sentence"),
    [
        ([0.92, 0.91], 4000, "good", "Kept within 5 percentage points: for each of the 2"),
        ([0.92, 0.80], 4000, "bad", "Broken for 1 of 2 groups: for b, the prediction set"),
        ([0.70, 0.80], 4000, "bad", "Broken for all 2 groups: for a and b, the"),
        ([0.90, 0.90], 20, "open", "Too few records to tell: the audit cannot show for any group"),
    ],
)
def test_the_verdict_is_one_sentence(rates: list[float], n: int, tone: str, sentence: str) -> None:
    names = ["a", "b"]
    reader = Reader(render(predictor_of(names), audited(names, rates, n), date="today"))
    assert sentence in reader.text
    section = next(s for s in reader.all("section") if s.get("aria-label") == "Verdict")
    assert section["class"] == f"verdict {tone}"


def test_a_mixed_verdict_names_who_is_in_doubt() -> None:
    names = ["a", "b"]
    groups = gcfcp.Groups(names)
    membership = np.array([[True, False]] * 4000 + [[False, True]] * 5)
    found = merge_audits(
        [audit(np.arange(4005) % 12 > 0, membership, groups=groups, client="one")], alpha=0.1
    )
    text = Reader(render(predictor_of(names), found, date="today")).text
    assert (
        "No broken promise was found: the promise was kept for 1 of 2 groups within 5 percentage "
        "points, and for 1 group there are too few audited records to tell."
    ) in text
    assert "There are too few audited records to tell for b." in text


def test_an_audit_without_alpha_is_counted_and_not_judged() -> None:
    groups = gcfcp.Groups(["a"])
    found = merge_audits([audit([1, 0], [[1], [1]], groups=groups, client="one")])
    text = Reader(render(predictor_of(["a"]), found, date="today")).text
    assert "Counted, not judged" in text


def test_empty_and_suppressed_groups_keep_their_row() -> None:
    groups = gcfcp.Groups(["a", "b"])
    membership = np.array([[True, False]] * 500 + [[False, True]] * 3)
    found = merge_audits(
        [audit(np.ones(503), membership, groups=groups, client="one", min_count=10)], alpha=0.1
    )
    text = Reader(render(predictor_of(["a", "b"]), found, date="today")).text
    assert "withheld at one" in text


def test_a_coverage_that_counts_leave_open_is_shown_as_a_range() -> None:
    names = ["a", "b"]
    found = audited(names, [0.95, 0.998], 2000, min_count=10)
    open_ = found.groups[1]
    assert open_.coverage is None
    other = audited(names, [0.95, 0.998], 2000)
    page = render(predictor_of(names), found, {"other": other}, date="today")
    text = Reader(page).text
    assert "between 99.5 and 100.0%" in text
    assert "A bar in place of a mark shows between which shares" in text
    assert page.count('<line class="band"') == 2  # What is neither a nor b is hidden as well.
    assert "The lowest coverage of any group" not in text
    plain = render(predictor_of(names), other, date="today")
    assert "A bar in place of a mark" not in Reader(plain).text


def test_clients_that_gave_no_answer_are_named_at_the_top() -> None:
    predictor = predictor_of(["a"])
    predictor.provenance["missing"] = ["north", "south"]
    page = render(predictor, date="today")
    verdict = Reader(page.split('aria-label="Verdict">')[1].split("</section>")[0]).text
    assert "2 clients that gave no answer" in verdict
    assert "north and south" in verdict


def test_bounds_are_never_rounded_to_look_better() -> None:
    low, high = numbers.rounded(0.1, up=False), numbers.rounded(0.1, up=True)
    assert low(0.89999) == "89.9%"
    assert low(0.9) == "90.0%"
    assert low(0.1 + 0.2 + 0.6) == "90.0%"  # The sum is 0.8999999999999999.
    assert high(0.90001) == "90.1%"
    assert high(0.9) == "90.0%"
    assert numbers.rounded(0.001, up=False)(0.99899) == "99.89%"
    assert numbers.rounded(0.05, up=True)(0.95001) == "95.1%"


def test_an_interval_that_just_misses_says_so() -> None:
    names = ["a"]
    found = audited(names, [0.8])
    edge = replace(found, groups=(replace(found.groups[0], high=0.89999, verdict="broken"),))
    assert "to <90.0%" in Reader(render(predictor_of(names), edge, date="today")).text


def test_the_head_answers_what_a_compliance_officer_asks() -> None:
    page = render(
        samples.small().predictor, samples.small().audit, date="2026-01-02",
        title="Admissions 2026", model="admissions 4.2", owner="Dr Weiss", period="2026, Q4",
    )  # fmt: skip
    head = Reader(page.split("<header>")[1].split("</header>")[0])
    for text in ("Admissions 2026", "Model admissions 4.2", "Owner Dr Weiss", "Period 2026, Q4"):
        assert text in head.text
    assert "Mixture in proportion to the records (clinic-00 35.8%, clinic-01 23.9%," in head.text
    assert "The mixture of the clients: in proportion to the records, so that every" in head.text
    for question in ("What was promised", "Was it kept?", "Where not", "What was left out"):
        assert question in head.text
    assert "90% of the prediction intervals contain the true answer, on average" in head.text
    assert "weight that was given" not in head.text


def test_weights_that_are_those_of_the_records_are_called_that() -> None:
    rng = np.random.default_rng(0)
    groups = gcfcp.Groups(["a"])
    parts = [
        gcfcp.summarize(rng.random(n), np.ones((n, 1)), groups=groups, client=k, score="own")
        for k, n in (("x", 100), ("y", 300))
    ]
    for mixture, words in (
        ({"x": 0.25, "y": 0.75}, "in proportion to the records"),
        ({"x": 0.5, "y": 0.5}, "every client counts the same"),
        ({"x": 0.4, "y": 0.6}, "the weight that was given for it (x 40.0%, y 60.0%)"),
    ):
        predictor = gcfcp.Predictor("own", gcfcp.calibrate(parts, 0.1, mixture))
        assert words in Reader(render(predictor, date="today")).text


def everything(names: list[str], **options: object) -> tuple[gcfcp.Predictor, AuditReport]:
    """A predictor without a finite threshold for its last group, and its audit."""
    rng = np.random.default_rng(0)
    groups = gcfcp.Groups(names)
    membership = np.eye(len(names), dtype=bool)[np.arange(400) % len(names)]
    membership[membership[:, -1], 0] = np.arange(membership[:, -1].sum()) > 3
    membership[:, -1] &= ~membership[:, 0]
    summary = gcfcp.summarize(rng.random(400), membership, groups=groups, client="one", score="own")
    with pytest.warns(gcfcp.GCFCPWarning, match="no finite threshold"):
        predictor = gcfcp.Predictor("own", gcfcp.calibrate([summary], alpha=0.1))
    return predictor, audited(names, [0.95] * (len(names) - 1) + [1.0], **options)


def test_a_promise_kept_by_giving_everything_is_amber() -> None:
    """Also where the audit has counted no sets: the predictor knows it."""
    names = ["a", "b"]
    full = np.repeat([[1], [2]], 2000, axis=0).ravel()
    for options in ({}, {"set_size": full, "labels": 2}):
        predictor, found = everything(names, **options)
        assert predictor.gives_everything.tolist() == [False, True]
        page = render(predictor, found, date="today")
        reader = Reader(page)
        section = next(s for s in reader.all("section") if s.get("aria-label") == "Verdict")
        assert section["class"] == "verdict warn"
        assert (
            "Kept only by giving everything for 1 of 2 groups, and kept for 1 group: for b, the "
            "prediction set holds every label so often that it is never wrong and says nothing."
        ) in reader.text
        assert "Of 2 groups: kept for 1, kept only by giving everything for 1." in reader.text
        assert page.count('<span class="tag warn">') == 1
        assert ("Holding everything" in reader.text) == bool(options)
    assert "only by giving everything" in {
        g["certified_status"] for g in predictor.provenance["guarantee"]
    }


def test_the_page_says_what_was_left_out() -> None:
    names = ["a", "b"]
    predictor = predictor_of(names)
    predictor.provenance["left_out"] = ["north.gcfcp"]
    rows = np.array([[True, False], [False, False]])
    groups = gcfcp.Groups(names)
    found = merge_audits([audit([1, 1], rows, groups=groups, client="two")], alpha=0.1)
    text = Reader(render(predictor, found, date="today")).text
    for line in (
        "The calibration left out 1 file that could not be used: north.gcfcp.",
        "Not audited: one.",
        "Audited, but not part of the calibration: two.",
        "The audits do not say which predictor they are of.",
        "1 audited record in no group: nothing is promised for them.",
    ):
        assert line in text
    full = audited(names, [0.95, 0.95], predictor=predictor.fingerprint)
    del predictor.provenance["left_out"]
    assert "Nothing: every site was audited" in Reader(render(predictor, full, date="today")).text


def test_coverage_is_shown_site_by_site() -> None:
    names = ["a", "b"]
    groups = gcfcp.Groups(names)
    member = np.eye(2, dtype=bool)[np.arange(400) % 2]
    rates = {"one": (0.95, 0.6), "two": (0.95, 1.0)}
    audits = [
        audit(
            np.where(member[:, 0], np.arange(400) < 400 * p, np.arange(400) < 400 * q),
            member, groups=groups, client=client,
        )
        for client, (p, q) in rates.items()
    ]  # fmt: skip
    found = merge_audits(audits, alpha=0.1)
    page = render(predictor_of(names), found, date="today")
    inside = page.split('<h2 id="sites">')[1].split("</section>")[0]
    section = Reader(f"<h2>{inside}")
    assert "It is not made for a single site" in section.text
    for site in found.sites:
        for g in site.groups:
            assert f"{100 * g.coverage:.1f}%" in section.text
            assert f"{g.total} records" in section.text
    assert section.text.count("↓") == 1
    assert (
        "At single sites, the coverage is below the promised share for b at one."
        in Reader(page).text
    )
    alone = Reader(render(predictor_of(names), audited(names, [0.9, 0.9]), date="today"))
    assert "Site by site" not in alone.text


# --- what does not fit ---------------------------------------------------------------------------


def test_audits_of_something_else_are_refused() -> None:
    predictor = predictor_of(["a", "b"])
    with pytest.raises(gcfcp.GCFCPError, match=r"the audit is of groups .*the predictor is for"):
        render(predictor, audited(["a", "c"], [0.9, 0.9]))
    other = replace(audited(["a", "b"], [0.9, 0.9]), alpha=0.2)
    with pytest.raises(gcfcp.GCFCPError, match=r"FedCP is for alpha=0.2, but the predictor is for"):
        render(predictor, audited(["a", "b"], [0.9, 0.9]), {"FedCP": other})
    with pytest.raises(gcfcp.GCFCPError, match="without an audit"):
        render(predictor, None, {"FedCP": other})
    strange = audited(["a", "c"], [0.9, 0.9])
    with pytest.raises(gcfcp.GCFCPError, match=r"FedCP is of groups .*the predictor is for groups"):
        render(predictor, audited(["a", "b"], [0.9, 0.9]), {"FedCP": strange})
    fine = audited(["a", "b"], [0.9, 0.9])
    with pytest.raises(gcfcp.GCFCPError, match="at most 5 can be drawn"):
        render(predictor, fine, {str(i): fine for i in range(6)})
    assert render(predictor, fine, {str(i): fine for i in range(5)})


def test_audits_of_another_predictor_are_refused_with_both_fingerprints() -> None:
    one, two = predictor_of(["a", "b"]), predictor_of(["a", "b"], scale=2.0)
    found = audited(["a", "b"], [0.9, 0.9], predictor=two.fingerprint)
    with pytest.raises(gcfcp.GCFCPError) as caught:
        render(one, found)
    assert str(caught.value) == (
        f"the audit is of predictor {two.fingerprint[:8]}.., but the report is about predictor "
        f"{one.fingerprint[:8]}..: give the predictor that was audited, or audit this one"
    )
    assert render(two, found)
    # A baseline is another method, and so it is always of another predictor.
    assert render(two, found, {"other": audited(["a", "b"], [0.9, 0.9], predictor="other")})


EVIL = "<script>alert(1)</script>\"'&{{ 7*7 }}"


def test_names_from_files_are_text_and_nothing_else(tmp_path: Path) -> None:
    names = [f"{EVIL} one", "x' onload='alert(2)", "</title><img src=x>"]
    groups = gcfcp.Groups(names)
    membership = np.eye(3, dtype=bool)[np.arange(300) % 3]
    scores = np.random.default_rng(0).random(300)
    summary = gcfcp.summarize(
        scores, membership, groups=groups, client=EVIL, score="<b>own</b>", model="<i>m</i>"
    )
    with pytest.warns(gcfcp.GCFCPWarning):
        calibration = gcfcp.calibrate([summary], alpha=0.005)
    predictor = gcfcp.Predictor("<b>own</b>", calibration)
    found = merge_audits([audit(scores < 0.9, membership, groups=groups, client=EVIL)], alpha=0.005)
    page = render(
        predictor, found, {EVIL: found}, gcfcp.plan([summary], 0.005), EVIL, date=EVIL, title=EVIL
    )
    reader = Reader(page)
    assert len(reader.all("script")) == 1
    assert not reader.all("b")
    assert not reader.all("i")
    assert not reader.all("img")
    assert "alert(1)" not in "".join(page.split("<script>")[1:])
    assert "49" not in {word for word in reader.text.split() if word.startswith("4")}
    for text in (*names, EVIL, "<b>own</b>", "<i>m</i>"):
        assert re.sub(r"\s+", " ", text) in reader.text
    assert not [a for _, a in reader.tags if any(k.startswith("on") for k in a)]


@pytest.mark.parametrize(
    "provenance",
    [
        {},
        {"clients": "x", "guarantee": 3, "mixture": ["?"], "model": {"a": 1}},
        {"clients": [1, {"client": None, "n": "many", "share": "inf", "bytes": -1}]},
        {"clients": [{"client": "a", "n": 5, "share": True, "delta": [], "centroids": 1e400}]},
        {"guarantee": [{"group": "a", "certified": "nan", "eta": None}, {"group": []}]},
        {"mixture": {"a": "much"}, "alpha": None, "recompression_delta": "<b>"},
    ],
)
def test_a_provenance_from_anyone_does_no_harm(provenance: dict[str, object]) -> None:
    predictor = predictor_of(["a", "b"])
    object.__setattr__(predictor, "provenance", provenance)
    Reader(render(predictor, audited(["a", "b"], [0.9, 0.9]), date="today"))


def test_results_of_other_methods_have_a_page_too() -> None:
    rng = np.random.default_rng(0)
    groups = gcfcp.Groups(["a", "b"])
    clients = [(rng.random(200), rng.random((200, 2)) < [1.0, 0.4]) for _ in range(2)]
    from gcfcp import methods

    for method in (methods.fedcp, methods.mondrian_fedcp, methods.gcfcp):
        predictor = gcfcp.Predictor("thr", method(clients, 0.1))
        text = Reader(render(predictor, date="today")).text
        assert "Promised, not yet audited" in text
        assert f"{predictor.table.thresholds_by_atom[0]:.4g}" in text
        assert len(predictor.groups) == len(groups)


def test_negative_equal_and_enormous_thresholds_are_drawn() -> None:
    for scale in (1e-12, 1e12, 0.0, -1.0):
        page = render(predictor_of(["a", "b"], scale), date="today")
        positions = [float(x) for x in re.findall(r'<use href="#m0"[^>]* x="([-\d.]+)%"', page)]
        assert positions
        assert all(0 <= x <= 100 for x in positions)


# --- size ----------------------------------------------------------------------------------------


def test_a_federation_that_is_too_large_still_fits_and_says_what_is_left_out() -> None:
    rng = np.random.default_rng(0)
    names = [f"group {i} " + "x" * 150 for i in range(200)]
    groups = gcfcp.Groups(names)
    membership = np.unique(rng.random((3000, 200)) < 0.05, axis=0)
    table = gcfcp.ThresholdTable(
        groups=groups,
        alpha=Fraction(1, 10),
        membership=membership,
        thresholds_by_atom=np.where(np.arange(len(membership)) < 5, np.inf, 0.5),
        source=ByGroup("max", np.full(200, 0.5)),
    )
    predictor = gcfcp.Predictor("thr", table)
    found = audited(names, [0.9] * 200, 20)
    page = render(predictor, found, {"other": found}, date="today")
    assert len(page.encode()) < 2_000_000
    reader = Reader(page)
    assert re.search(
        r"[\d,]+ rows .* left out: the combinations of groups with the least", reader.text
    )
    assert page.count('class="infinite"') == 5  # What matters most is not left out.


# --- scales --------------------------------------------------------------------------------------


@pytest.mark.parametrize("low", [0.0, 0.31, 0.5, 0.79, 0.88, 0.895, 0.8999])
def test_the_promise_is_always_on_the_axis_and_labels_keep_apart(low: float) -> None:
    found = audited(["a"], [0.9])
    group = replace(found.groups[0], coverage=low, low=max(0.0, low - 0.01), high=low + 0.01)
    scale = findings._coverage_scale([replace(found, groups=(group,))], 0.1)
    strong = [t for t in scale.ticks if t.strong]
    assert [t.label for t in strong] == ["90%"]
    places = sorted(float(t.x) for t in scale.ticks)
    assert places[0] >= 0
    assert places[-1] <= 100
    assert np.diff(places).min() >= 8
    assert 3 <= len(places) <= 8
    assert float(scale.at(low)) < float(scale.at(1.0))


@pytest.mark.parametrize("least", [1e-9, 0.03, 0.2, 1.0, 7.0, 99.0, 1e6])
def test_steps_are_round(least: float) -> None:
    step = step_of(least)
    assert least * (1 - 1e-8) <= step <= 2.5 * least * (1 + 1e-8)
    mantissa = step / 10 ** math.floor(math.log10(step) + 1e-9)
    assert min(abs(mantissa - m) for m in (1, 2, 5)) < 1e-6


def test_importing_the_report_loads_no_template_engine() -> None:
    code = "import sys, gcfcp.report; sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# --- by group, with a shape and with confidence ---------------------------------------------------


def by_group(confidence: float | None = None, rare: int = 3) -> gcfcp.Predictor:
    """A predictor of two sites by group, with a shape; of the group `rare` each has few records."""
    groups = gcfcp.Groups({"all": "TRUE", "old": "age >= 65", "rare": "x = 1"})
    shape = gcfcp.Shape(groups, (0.5, 1.25, 0.0))
    rng = np.random.default_rng(0)
    parts = []
    for name in ("a", "b"):
        member = np.column_stack([np.ones(200, bool), rng.random(200) < 0.4, np.arange(200) < rare])
        parts.append(
            gcfcp.summarize(
                rng.normal(size=200), member, groups=groups, client=name, by="group", shape=shape,
                min_count=10, score="own",
            )
        )  # fmt: skip
    return gcfcp.Predictor("own", gcfcp.calibrate(parts, 0.1, confidence=confidence))


@pytest.mark.filterwarnings("ignore::gcfcp.GCFCPWarning")
def test_a_calibration_by_group_speaks_of_groups_and_levels() -> None:
    public = gcfcp.Predictor.from_json(by_group().to_json())
    assert "Groups withheld" not in Reader(render(public, date="today")).text
    loaded = gcfcp.Predictor.from_json(by_group().to_json(coreset=True))
    for predictor in (by_group(), public, loaded):
        page = Reader(render(predictor, date="today")).text
        assert "combination" not in page.replace("a combination or a client", "").replace(
            "record's combination of groups", ""
        )
        assert "For 1 of 3 groups, and so for every record in one of them," in page
        assert "(all +0.5, old +1.25, rare +0)" in page
        if predictor is not public:
            assert "Groups withheld" in page
            assert "does not tell how many it has, or whether it has any" in page
        assert "on average over calibrations" in page
        assert "Summaries by group" in page


@pytest.mark.filterwarnings("ignore::gcfcp.GCFCPWarning")
def test_the_page_says_which_kind_of_promise_it_is() -> None:
    page = Reader(render(by_group(0.95), date="today")).text
    assert "The promise is about this very predictor: with 95% confidence it holds for all" in page
    assert "on average over calibrations" not in page
    assert "weighs as much as" not in page


# --- noise ---------------------------------------------------------------------------------------


def noisy_site(client: str, epsilon: float | None) -> gcfcp.ClientSummary:
    rng = np.random.default_rng(len(client))
    member = np.column_stack([np.ones(3000, bool), rng.random(3000) < 0.4])
    groups = gcfcp.Groups({"all": "TRUE", "old": "age >= 65"})
    grid = gcfcp.Grid.uniform(0, 4, 16)
    return gcfcp.summarize(
        np.abs(rng.normal(size=3000)), member, groups=groups, client=client, grid=grid,
        score="residual", epsilon=epsilon,
    )  # fmt: skip


@pytest.mark.parametrize("epsilons", [(1.0, 2.0), (1.0, None), (None, None)])
def test_the_page_says_what_noise_took(epsilons: tuple[float | None, ...]) -> None:
    """In memory and from a file; not beside sites whose exact counts it would tell."""
    pytest.importorskip("opendp", reason="noise needs OpenDP (extra dp)")
    parts = [noisy_site("a" * (i + 1), e) for i, e in enumerate(epsilons)]
    made = gcfcp.calibrate(parts, 0.1, rule="max")
    predictor = gcfcp.Predictor("residual", made)
    told = None not in epsilons
    for given in (predictor, gcfcp.Predictor.from_json(predictor.to_json())):
        page = Reader(render(given))
        assert ("Clients have added noise" in page.text) == any(epsilons)
        cells = [c for c in page.all("td") if c.get("data-label") == "Taken by noise"]
        assert len(cells) == (2 if told else 0)
        if told:
            assert "(epsilon 2)" in page.text
            for cell, promised in zip(cells, made.guarantee, strict=True):
                assert float(cell["data-value"]) == pytest.approx(promised.privacy, abs=1e-3)
                assert float(cell["data-value"]) >= promised.privacy - 1e-9
        else:
            assert "Taken by noise" not in page.text
