"""Values in a notebook: the words of their printed form, as a table, with every name escaped."""

import warnings
from html.parser import HTMLParser

import numpy as np
import pytest

import gcfcp
from gcfcp.notebook import MOST_ROWS, as_html

EVIL = "</table><script>alert(1)</script>"


class Reader(HTMLParser):
    """The tags and the text of a piece of HTML, which must close what it opens."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.text = set(), [], ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.open.append(tag)
        assert {name for name, _ in attributes} <= {"style"}

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data + " "


def values(names=("all", "old")):
    """A summary, a plan, a calibration and an audit report, with infinite thresholds."""
    rng = np.random.default_rng(0)
    member = np.column_stack([np.ones(200, bool), np.arange(200) < 5])
    groups = gcfcp.Groups(list(names))
    scores = rng.random(200)
    summary = gcfcp.summarize(scores, member, groups=groups, client=names[1], score="s")
    other = gcfcp.summarize(rng.random(200), member, groups=groups, client="b", score="s")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gcfcp.GCFCPWarning)
        calibration = gcfcp.calibrate([summary, other], 0.05)
    audit = gcfcp.audit(scores < 0.9, member, groups=groups, client=names[1], min_count=3)
    report = gcfcp.merge_audits([audit], alpha=0.1)
    return summary, gcfcp.plan([summary, other], 0.05), calibration, report


@pytest.mark.parametrize("place", range(4), ids=["summary", "plan", "calibration", "report"])
def test_names_are_escaped_and_nothing_is_loaded(place):
    read = Reader(values(("all", EVIL))[place]._repr_html_())
    assert read.tags <= {"div", "table", "thead", "tbody", "tr", "th", "td"}
    assert EVIL in read.text


def test_the_words_are_those_of_the_printed_form():
    summary, plan, calibration, report = values()
    for value in (summary.disclosure, plan, report):
        shown = Reader(
            (summary if value == summary.disclosure else value)._repr_html_()
        ).text.split()
        words = str(value).replace("(", " ").replace(")", " ").replace(":", " ").split()
        text = " ".join(shown).replace("(", " ").replace(")", " ").replace(":", " ")
        missing = [w for w in words if w.strip(",;") not in text and w not in ("of", "weight")]
        assert missing == []
    read = Reader(calibration._repr_html_()).text
    assert calibration.state in read
    assert f"promised {calibration.guarantee[0].promise}" in read
    for g in calibration.guarantee:
        assert f"{g.certified:.4f} ({g.certified_status})" in read
    for record in calibration.atoms:
        assert record.reason is None or record.reason in read


def test_what_is_long_is_cut_and_says_so():
    rows = [[str(i), "1"] for i in range(MOST_ROWS + 7)]
    text = Reader(as_html(["above"], ["a", "b"], rows, ["below"] * (MOST_ROWS + 1))).text
    assert "and 7 more rows" in text
    assert "and 1 more lines" in text
    assert f" {MOST_ROWS - 1} " in text
    assert f" {MOST_ROWS} " not in text
