"""A site that is asked by a hostile server: one question, one answer, kept on disk.

The first part is the server that reads scores one by one. It stayed within the policy of 0.1.0,
which let it choose delta, min_count and representative, and gave it 280 of 300 scores.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gcfcp
from gcfcp import GCFCPError, codec, rounds
from gcfcp.rounds import (
    Code,
    Ledger,
    Policy,
    Question,
    Records,
    Refusal,
    Site,
    answer_audit,
    answer_summary,
    code_of,
    file_stem,
    own_site,
)
from gcfcp.rounds import ledger as ledgers

GROUPS = gcfcp.Groups(["all", "young"])
QUESTION = Question(GROUPS, "column", delta=100, min_count=5)
N = 300


def records() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    return rng.random(N), np.column_stack([np.ones(N, dtype=bool), rng.random(N) < 0.5])


@dataclass
class Reading:
    """The function that reads the records of a site, and how often it was called."""

    calls: int = 0
    asked: list[Question] = field(default_factory=list)

    def __call__(self, question: Question) -> Any:
        self.calls += 1
        self.asked.append(question)
        return records()


def site(directory: Path, policy: Policy | None = None, **changes: Any) -> Site:
    """The site as it is after a restart: nothing is remembered but what is in the directory."""
    site = Site(
        client="a",
        policy=policy or Policy(QUESTION),
        ledger=Ledger(directory / "ledger"),
        calibration=Records("2026Q3", Reading()),
        audit=Records("audit 2026Q3", counted),
    )
    return replace(site, **changes)


def counted(predictor: gcfcp.Predictor, question: Question) -> Any:
    scores, membership = records()
    return scores <= predictor.thresholds(membership), membership


def answers(work: Callable[[], bytes]) -> tuple[bytes | None, Code | None]:
    """The answer, or the code of the refusal."""
    try:
        return work(), None
    except Refusal as refusal:
        return None, refusal.code


def code(work: Callable[[], bytes]) -> Code | None:
    return answers(work)[1]


def by_hand(question: Question = QUESTION) -> bytes:
    """The summary that `gcfcp.summarize` makes of the records."""
    scores, membership = records()
    return gcfcp.summarize(
        scores,
        membership,
        groups=question.groups,
        client="a",
        delta=question.delta,
        representative=question.representative,  # type: ignore[arg-type]
        min_count=question.min_count,
        score=question.score,
        model=question.model,
        by=str(question.by),
        shape=question.shape,
    ).to_bytes()


# --- a server that varies its question ------------------------------------------------------------


def varied(representative: str) -> list[Question]:
    """941 questions that a policy of 0.1.0 with max_delta 250 and min_count 5 allowed."""
    return [
        Question(
            GROUPS,
            "column",
            delta=delta,
            min_count=count,
            representative=representative,
            by="atom" if representative == "mean" else "group",  # By group there are no means.
        )
        for delta, count in [*product(range(12, 247, 5), range(5, 25)), (250, 5)]
    ]


@pytest.mark.parametrize("representative", ["mean", "upper"])
def test_a_server_that_varies_its_question_gets_one_answer(
    representative: str, tmp_path: Path
) -> None:
    """The site restarts after every question: it has nothing but its ledger."""
    questions = varied(representative)
    assert len(questions) == 941
    agreed = questions[500]
    got, codes = set(), set()
    for question in [*questions, *questions[498:502]]:
        data, refused = answers(
            lambda q=question: answer_summary(site(tmp_path, Policy(agreed)), q)
        )
        got.add(data)
        codes.add(refused)
    assert got == {None, by_hand(agreed)}
    assert codes == {None, Code.DELTA_DIFFERS, Code.MIN_COUNT_DIFFERS}


@pytest.mark.parametrize("representative", ["mean", "upper"])
def test_even_if_everything_is_agreed_one_answer_leaves(
    representative: str, tmp_path: Path
) -> None:
    """A policy that is too generous does not undo the ledger: the first question counts."""
    questions = varied(representative)[::10]
    policy = Policy(questions)
    got = [answers(lambda q=q: answer_summary(site(tmp_path, policy), q)) for q in questions]
    assert got[0] == (by_hand(questions[0]), None)
    assert set(got[1:]) == {(None, Code.QUESTIONS_USED_UP)}
    assert answers(lambda: answer_summary(site(tmp_path, policy), questions[0])) == got[0]
    assert len(Ledger(tmp_path / "ledger").entries()) == 1


def test_no_record_is_read_for_a_refused_or_a_repeated_question(tmp_path: Path) -> None:
    reading = Reading()
    here = site(tmp_path, calibration=Records("2026Q3", reading))
    assert code(lambda: answer_summary(here, replace_question(delta=99))) == Code.DELTA_DIFFERS
    assert reading.calls == 0
    first = answer_summary(here, QUESTION)
    assert answer_summary(here, QUESTION) == first
    assert reading.calls == 1


def replace_question(**changes: Any) -> Question:
    given: dict[str, Any] = {"score": "column", "delta": 100, "min_count": 5}
    return Question(GROUPS, **(given | changes))


def test_a_shape_that_is_not_the_agreed_one_is_refused(tmp_path: Path) -> None:
    """An enormous coefficient moves one group's scores apart, so that both can be read."""
    agreed = replace_question(shape=gcfcp.Shape(GROUPS, (0.5, 0.25)))
    for coefficients in [(0.5, 2.0**999), (0.5, 0.25 + 2**-40), (0.0, 0.0)]:
        asked = replace_question(shape=gcfcp.Shape(GROUPS, coefficients))
        here = site(tmp_path, Policy(agreed))
        assert code(lambda here=here, q=asked: answer_summary(here, q)) == Code.SHAPE_DIFFERS
    here = site(tmp_path, Policy(agreed))
    assert code(lambda: answer_summary(here, QUESTION)) == Code.SHAPE_DIFFERS
    assert code(lambda: answer_summary(site(tmp_path), agreed)) == Code.SHAPE_DIFFERS
    assert answer_summary(here, agreed) == by_hand(agreed)


def test_the_site_works_with_its_own_copy_of_the_question(tmp_path: Path) -> None:
    """Nothing of the server's is used, not even what fingerprints do not cover."""
    shape = gcfcp.Shape(GROUPS, (0.5, 0.25), ("0123456789abcdef",))
    agreed = replace_question(shape=shape)
    asked = replace_question(shape=replace(shape, sources=()))
    reading = Reading()
    here = site(tmp_path, Policy(agreed), calibration=Records("2026Q3", reading))
    answer_summary(here, asked)
    assert reading.asked[0] is agreed


_SHAPES = [None, gcfcp.Shape(GROUPS, (0.5, 0.25)), gcfcp.Shape(GROUPS, (0.5, -0.25))]
_PARTS = st.fixed_dictionaries(
    {
        "groups": st.sampled_from([GROUPS, gcfcp.Groups(["all", "old"])]),
        "score": st.sampled_from(["column", "mine", gcfcp.scores.RAPS(), gcfcp.scores.RAPS(0.1)]),
        "model": st.sampled_from([None, "m1", "m2"]),
        "delta": st.sampled_from([100, 100.0, 101]),
        "representative": st.sampled_from(["upper", "mean"]),
        "min_count": st.sampled_from([5, 6]),
        "by": st.sampled_from(["atom", "group"]),
        "shape": st.sampled_from(range(3)),
    }
)


@given(_PARTS, st.lists(_PARTS, min_size=1, max_size=3), st.data())
def test_a_question_is_agreed_on_in_every_part_or_refused(
    asked: dict[str, Any], agreed: list[dict[str, Any]], data: st.DataObject
) -> None:
    """The oracle compares the arguments. Half of the time all but one part is an agreed one's."""

    def made(parts: dict[str, Any]) -> Question:
        groups, by = parts["groups"], parts["by"]
        shape = _SHAPES[parts["shape"]] if groups is GROUPS and by == "group" else None
        return Question(**(parts | {"shape": shape}))

    if data.draw(st.booleans()):
        part = data.draw(st.sampled_from(sorted(asked)))
        asked = agreed[-1] | {part: asked[part]}
    question, policy = made(asked), Policy([made(parts) for parts in agreed])
    equal = [made(parts) for parts in agreed if made(parts) == question]
    if equal:
        assert policy.agreed_to(question) == equal[0]
    else:
        with pytest.raises(Refusal) as refused:
            policy.agreed_to(question)
        name = str(refused.value.code)
        assert name.endswith(("-differs", "-not-allowed"))
        assert refused.value.detail.split()[0].replace("parameters", "score") in name.replace(
            "min-count", "min_count"
        )


# --- audits ---------------------------------------------------------------------------------------


def predictor(
    threshold: float = 0.5, score: Any = "column", groups: Any = GROUPS, **more: Any
) -> bytes:
    """The bytes of a predictor whose thresholds the server chose."""
    summary = gcfcp.summarize(
        [threshold] * 40, [[1] * len(groups)] * 40, groups=groups, client="a", score=score, **more
    )
    found = gcfcp.calibrate([summary], 0.1)
    return gcfcp.Predictor(score, found).to_json().encode()


@pytest.mark.slow
def test_a_server_that_chooses_thresholds_gets_one_audit(tmp_path: Path) -> None:
    """156 audits gave 6 scores to 1e-16, by halving: each count says on which side they lie."""
    asked = [predictor(t) for t in np.linspace(0.1, 0.9, 156)]
    assert len(set(asked)) == 156
    got = [answers(lambda p=p: answer_audit(site(tmp_path), QUESTION, p)) for p in asked]
    first = got[0][0]
    assert first is not None
    found = gcfcp.Audit.from_bytes(first)
    assert found.predictor == hashlib.sha256(asked[0]).hexdigest()
    assert found.min_count == QUESTION.min_count
    assert set(got[1:]) == {(None, Code.AUDITS_USED_UP)}
    assert answer_audit(site(tmp_path), QUESTION, asked[0]) == first
    # A summary of the same data set is another matter, and is still answered.
    assert answer_summary(site(tmp_path), QUESTION) == by_hand()


THR = Question(GROUPS, gcfcp.scores.THR(), model="m1", min_count=5)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (predictor(score=gcfcp.scores.AbsoluteResidual(), model="m1"), Code.SCORE_NOT_ALLOWED),
        (predictor(score=gcfcp.scores.APS(), model="m1"), Code.SCORE_NOT_ALLOWED),
        (predictor(score="column", model="m1"), Code.SCORE_NOT_ALLOWED),
        (predictor(score=gcfcp.scores.THR(), model="m2"), Code.MODEL_DIFFERS),
        (predictor(score=gcfcp.scores.THR()), Code.MODEL_DIFFERS),
        (
            predictor(score=gcfcp.scores.THR(), groups=gcfcp.Groups(["all", "one"]), model="m1"),
            Code.GROUPS_NOT_ALLOWED,
        ),
        (b"{}", Code.BAD_REQUEST),
        (b"\xff" * 100, Code.BAD_REQUEST),
        (None, Code.BAD_REQUEST),
        (predictor(score=gcfcp.scores.THR(), model="m1"), None),
    ],
)
def test_an_audit_is_of_the_agreed_score_groups_and_model(
    data: bytes | None, expected: Code | None, tmp_path: Path
) -> None:
    """0.1.0 answered `residual` under a policy that allowed `thr` alone."""
    called = []

    def count(given: gcfcp.Predictor, question: Question) -> Any:
        called.append(given)
        return counted(given, question)

    here = site(tmp_path, Policy(THR), audit=Records("labelled", count))
    assert code(lambda: answer_audit(here, THR, data)) == expected
    assert len(called) == (expected is None)


def test_parameters_of_a_score_are_part_of_it(tmp_path: Path) -> None:
    agreed = Question(GROUPS, gcfcp.scores.RAPS(lam=0.1), min_count=5)
    here = site(tmp_path, Policy(agreed))
    other = predictor(score=gcfcp.scores.RAPS(lam=0.2))
    assert code(lambda: answer_audit(here, agreed, other)) == Code.SCORE_NOT_ALLOWED
    # So are those of a score that the library does not know.
    mine = Question(GROUPS, rounds.NamedScore("mine", {"k": 1}), min_count=5)
    here = site(tmp_path, Policy(mine))

    @dataclass(frozen=True)
    class Mine:
        k: int
        name: str = "mine"

        @property
        def parameters(self) -> dict[str, Any]:
            return {"k": self.k}

        def predict(self, prediction: Any, thresholds: Any, rng: Any = None) -> Any: ...

    assert code(lambda: answer_audit(here, mine, predictor(score=Mine(2)))) == (
        Code.SCORE_NOT_ALLOWED
    )
    assert code(lambda: answer_audit(here, mine, predictor(score=Mine(1)))) is None


def test_a_site_without_audit_data_makes_no_audit(tmp_path: Path) -> None:
    here = site(tmp_path, audit=None)
    assert code(lambda: answer_audit(here, QUESTION, predictor())) == Code.AUDIT_NOT_ALLOWED


def test_an_audit_that_was_made_beforehand_must_be_as_agreed(tmp_path: Path) -> None:
    def made(**changes: Any) -> Records:
        scores, membership = records()
        given: dict[str, Any] = {"groups": GROUPS, "client": "a", "min_count": 5}
        audit = gcfcp.audit(scores < 0.5, membership, **(given | changes))
        return Records("x", lambda predictor, question: audit)

    for wrong in ({"min_count": 1}, {"client": "b"}, {"groups": gcfcp.Groups(["all", "old"])}):
        here = site(tmp_path, audit=made(**wrong))
        assert code(lambda here=here: answer_audit(here, QUESTION, predictor())) == (
            Code.DATA_REFUSED
        )
    here = site(tmp_path, audit=made())
    assert code(lambda: answer_audit(here, QUESTION, predictor())) is None


# --- the law of the ledger ------------------------------------------------------------------------

_POOL = [replace_question(delta=delta) for delta in (20, 40, 60, 80)]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from(range(4)), st.sampled_from(["x", "y"])), max_size=12),
    st.integers(1, 3),
)
def test_the_first_questions_are_answered_and_each_always_with_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, asked: list[tuple[int, str]], limit: int
) -> None:
    """About each data set the first `limit` questions are answered, whatever is asked and when.

    The answers are random, so that a second computation would give other bytes.
    """
    directory = tmp_path_factory.mktemp("law")
    first: dict[tuple[int, str], bytes] = {}
    for k, dataset in asked:
        here = site(
            directory,
            Policy(_POOL, questions=limit),
            calibration=Records(dataset, lambda q: random_summary(q)),
        )
        got, refused = answers(lambda here=here, k=k: answer_summary(here, _POOL[k]))
        if (k, dataset) in first:
            assert got == first[k, dataset]
        elif sum(d == dataset for _, d in first) < limit:
            assert got is not None
            first[k, dataset] = got
        else:
            assert refused == Code.QUESTIONS_USED_UP
    kept = Ledger(directory / "ledger").entries() if first else []
    assert sorted(e.answer for e in kept) == sorted(first.values())


def random_summary(question: Question) -> gcfcp.ClientSummary:
    """A summary that differs every time, as that of a randomised score without a seed."""
    return gcfcp.summarize(
        np.random.default_rng().random(60),
        np.ones((60, 2), dtype=bool),
        groups=GROUPS,
        client="a",
        delta=question.delta,
        min_count=question.min_count,
        score="column",
        by="group",
    )


def test_a_randomised_score_is_drawn_once(tmp_path: Path) -> None:
    draws = {
        answer_summary(site(tmp_path, calibration=Records("x", random_summary)), QUESTION)
        for _ in range(5)
    }
    assert len(draws) == 1
    # Under another name they are other records, as far as the ledger can know.
    other = site(tmp_path, calibration=Records("y", random_summary))
    assert answer_summary(other, QUESTION) not in draws


def test_the_owner_can_allow_more_and_take_it_back(tmp_path: Path) -> None:
    a, b, c = _POOL[:3]
    one, two = Policy(_POOL), Policy(_POOL, questions=2)
    first = answer_summary(site(tmp_path, one), a)
    assert code(lambda: answer_summary(site(tmp_path, one), b)) == Code.QUESTIONS_USED_UP
    second = answer_summary(site(tmp_path, two), b)
    assert code(lambda: answer_summary(site(tmp_path, two), c)) == Code.QUESTIONS_USED_UP
    # What has left is repeated. Nothing more leaves by that.
    assert answer_summary(site(tmp_path, one), a) == first
    assert answer_summary(site(tmp_path, one), b) == second


def test_what_else_makes_an_answer_another_one(tmp_path: Path) -> None:
    """Another name of the client, or other absent groups, would be another file of bytes."""
    first = answer_summary(site(tmp_path), QUESTION)
    assert code(lambda: answer_summary(site(tmp_path, client="b"), QUESTION)) == (
        Code.QUESTIONS_USED_UP
    )
    declared = Policy(QUESTION, absent=("young",))
    assert code(lambda: answer_summary(site(tmp_path, declared), QUESTION)) == (
        Code.QUESTIONS_USED_UP
    )
    assert answer_summary(site(tmp_path), QUESTION) == first


# --- records that change --------------------------------------------------------------------------


def test_changed_records_need_a_name_of_their_own(tmp_path: Path) -> None:
    marks = {"now": "1"}

    def here(dataset: str = "2026Q3", **more: Any) -> Site:
        found = Records(dataset, Reading(), lambda: marks["now"])
        return site(tmp_path, calibration=found, **more)

    first = answer_summary(here(), QUESTION)
    marks["now"] = "2"
    with pytest.raises(Refusal) as refused:
        answer_summary(here(), QUESTION)
    assert refused.value.code == Code.DATA_CHANGED
    assert "give the new records a name of their own" in refused.value.detail
    generous = Policy([QUESTION, _POOL[0]], questions=5)
    assert code(lambda: answer_summary(here(policy=generous), _POOL[0])) == Code.DATA_CHANGED
    assert answer_summary(here("2026Q4"), QUESTION) == first  # The records are equal, in fact.
    marks["now"] = "1"
    assert answer_summary(here(), QUESTION) == first


def test_records_that_change_while_they_are_read_give_no_answer(tmp_path: Path) -> None:
    """A file that is still being written would be summarised by half."""
    marks = iter("12")
    found = Records("2026Q3", Reading(), lambda: next(marks))
    here = site(tmp_path, calibration=found)
    assert code(lambda: answer_summary(here, QUESTION)) == Code.DATA_CHANGED
    assert Ledger(tmp_path / "ledger").entries() == []
    assert answer_summary(site(tmp_path), QUESTION) == by_hand()


def test_what_cannot_be_summarised_uses_nothing_up(tmp_path: Path) -> None:
    def broken(question: Question) -> Any:
        raise GCFCPError("the file is damaged")

    with pytest.raises(GCFCPError, match="damaged"):
        answer_summary(site(tmp_path, calibration=Records("2026Q3", broken)), QUESTION)
    policy = Policy(_POOL)
    assert answer_summary(site(tmp_path, policy), _POOL[2]) == by_hand(_POOL[2])
    (first, _) = Ledger(tmp_path / "ledger").journal()
    assert first["code"] == "data-refused"
    assert "damaged" not in json.dumps(first)  # The text may quote the data.


# --- two processes, and a kill --------------------------------------------------------------------

_FORK = multiprocessing.get_context("fork") if hasattr(os, "fork") else None
needs_fork = pytest.mark.skipif(_FORK is None, reason="processes are forked")


def _ask_at_once(directory: Path, k: int, start: Any, out: Any) -> None:
    here = site(directory, Policy(_POOL), calibration=Records("x", random_summary))
    start.wait()
    out.put((k, *answers(lambda: answer_summary(here, _POOL[k % len(_POOL)]))))


@pytest.mark.slow
@needs_fork
def test_of_racing_processes_one_question_wins(tmp_path: Path) -> None:
    """Four questions race, each from two processes, and each process makes other bytes."""
    assert _FORK is not None
    for turn in range(12):
        directory = tmp_path / str(turn)
        start, out = _FORK.Barrier(8), _FORK.Queue()
        workers = [
            _FORK.Process(target=_ask_at_once, args=(directory, k, start, out)) for k in range(8)
        ]
        for worker in workers:
            worker.start()
        got = [out.get(timeout=60) for _ in workers]
        for worker in workers:
            worker.join(60)
            assert worker.exitcode == 0
        sent = {data for _, data, _ in got if data is not None}
        (entry,) = Ledger(directory / "ledger").entries()
        assert sent == {entry.answer}
        assert {refused for _, data, refused in got if data is None} <= {Code.QUESTIONS_USED_UP}
        winners = {k % len(_POOL) for k, data, _ in got if data is not None}
        assert len(winners) == 1
        assert len(Ledger(directory / "ledger").journal()) == 8


def _killed(directory: Path, where: str, when: int) -> None:
    """Ask, and be killed at the `when`-th call of a function of the operating system."""
    left = [when]
    real = getattr(os, where)

    def dying(*arguments: Any, **named: Any) -> Any:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **named)

    setattr(os, where, dying)
    answer_summary(site(directory, Policy(_POOL)), _POOL[0])
    os._exit(0)


@needs_fork
@pytest.mark.parametrize("where", ["fsync", "link", "open", "unlink", "mkdir"])
def test_a_kill_leaves_the_answer_in_the_ledger_or_nothing(where: str, tmp_path: Path) -> None:
    """Wherever the process dies, another question is answered only if nothing was kept."""
    assert _FORK is not None
    kept_after = []
    for when in range(1, 12):
        directory = tmp_path / f"{where}-{when}"
        process = _FORK.Process(target=_killed, args=(directory, where, when))
        process.start()
        process.join(60)
        kept = Ledger(directory / "ledger").entries() if (directory / "ledger").is_dir() else []
        kept_after.append(len(kept))
        if process.exitcode == 0:
            break  # The function is called less often than this.
        assert process.exitcode == -signal.SIGKILL
        here = site(directory, Policy(_POOL))
        other = answers(lambda here=here: answer_summary(here, _POOL[1]))
        if kept:
            assert kept[0].answer == by_hand(_POOL[0])
            assert other == (None, Code.QUESTIONS_USED_UP)
            assert answer_summary(here, _POOL[0]) == kept[0].answer
        else:
            assert other == (by_hand(_POOL[1]), None)
    assert kept_after[-1] == 1
    assert len(kept_after) > 1 or where == "unlink"


# --- a ledger that cannot be used -----------------------------------------------------------------


def unusable(directory: Path) -> str:
    """Nothing is answered, and the ledger is why; returns what the site's log says."""
    reading = Reading()
    here = site(directory, calibration=Records("2026Q3", reading))
    with pytest.raises(Refusal) as refused:
        answer_summary(here, QUESTION)
    assert refused.value.code == Code.LEDGER_UNUSABLE
    assert "\n" not in refused.value.detail
    return refused.value.detail


def test_a_ledger_that_is_not_a_directory(tmp_path: Path) -> None:
    """In 0.1.0 the ledger was a file, which such a site may still have in its configuration."""
    (tmp_path / "ledger").write_text('{"asked": "summary"}\n')
    assert "give a directory that this user can write to" in unusable(tmp_path)


@pytest.mark.skipif(os.name == "nt" or os.getuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "ledger").mkdir(mode=0o500)
    unusable(tmp_path)
    (tmp_path / "ledger").chmod(0o700)
    assert answer_summary(site(tmp_path), QUESTION) == by_hand()
    (tmp_path / "ledger/journal.jsonl").chmod(0o400)
    unusable(tmp_path)


def failing(error: int) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(error, os.strerror(error))

    return fail


@pytest.mark.parametrize("error", [errno.EROFS, errno.ENOSPC, errno.EACCES])
@pytest.mark.parametrize("call", ["mkdir", "open", "fsync", "link"])
def test_no_answer_leaves_without_its_entry(
    call: str, error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, a read-only file system, and a directory that cannot be written to."""
    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing(error))
        assert os.strerror(error) in unusable(tmp_path)
    assert answer_summary(site(tmp_path), QUESTION) == by_hand()


def test_a_file_system_without_hard_links_keeps_one_answer_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", failing(errno.EPERM))
    assert answer_summary(site(tmp_path), QUESTION) == by_hand()
    assert len(Ledger(tmp_path / "ledger").entries()) == 1
    # A kill between the empty file that reserves the name and the whole one means no answer.
    (entry,) = (tmp_path / "ledger").rglob("*.entry")
    entry.write_bytes(b"")
    unusable(tmp_path)


def test_no_answer_leaves_without_its_line_in_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal counts. An answer that it could not count is kept, and sent when it can."""
    first = answer_summary(site(tmp_path), QUESTION)
    for error in (errno.ENOSPC, errno.EROFS):
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "_append", failing(error))
            unusable(tmp_path)
    assert answer_summary(site(tmp_path), QUESTION) == first
    assert sum("code" not in line for line in Ledger(tmp_path / "ledger").journal()) == 2


def damages() -> Iterator[tuple[str, Callable[[Path], None]]]:
    yield "empty", lambda path: path.write_bytes(b"")
    yield "cut short", lambda path: path.write_bytes(path.read_bytes()[:-10])
    yield "one bit", lambda path: path.write_bytes(_flipped(path.read_bytes()))
    yield "another kind", lambda path: path.write_bytes(by_hand())
    yield "a directory", lambda path: (path.unlink(), path.mkdir())  # type: ignore[func-returns-value]
    yield "of another place", lambda path: path.rename(path.with_name("summary-2.entry"))
    yield "another answer", lambda path: _rewrite(path, answer=by_hand(_POOL[0]))
    yield "no answer", lambda path: _rewrite(path, answer=b"")
    yield "newer format", lambda path: path.write_bytes(codec.pack(b"L", 2, {}, b""))
    yield "no question", lambda path: path.write_bytes(codec.pack(b"L", 1, {"asked": 1}, b""))


def _flipped(data: bytes) -> bytes:
    return data[:50] + bytes([data[50] ^ 1]) + data[51:]


def _rewrite(path: Path, **changes: Any) -> None:
    entry = ledgers.Entry.from_bytes(path.read_bytes(), "entry")
    path.write_bytes(replace(entry, **changes).to_bytes())


@pytest.mark.parametrize(("name", "damage"), list(damages()), ids=[n for n, _ in damages()])
def test_a_damaged_entry_means_no_answer(
    name: str, damage: Callable[[Path], None], tmp_path: Path
) -> None:
    answer_summary(site(tmp_path), QUESTION)
    damage(entry_path(tmp_path))
    unusable(tmp_path)
    # Another question is not answered either.
    generous = Policy([QUESTION, _POOL[0]], questions=9)
    other = code(lambda: answer_summary(site(tmp_path, generous), _POOL[0]))
    if name in ("another answer", "no answer"):  # Only the entry that is used is taken apart.
        assert other is None
    else:
        assert other == Code.LEDGER_UNUSABLE


def entry_path(directory: Path) -> Path:
    (found,) = (directory / "ledger").glob("*/summary-1.entry")
    return found


def test_an_entry_may_say_more_than_this_version_knows(tmp_path: Path) -> None:
    """A later version can keep more in an entry, such as what an answer cost."""
    first = answer_summary(site(tmp_path), QUESTION)
    path = entry_path(tmp_path)
    header, body = codec.unpack(path.read_bytes(), b"L", 1, "entry")
    path.write_bytes(codec.pack(b"L", 1, header | {"epsilon": 0.5}, bytes(body)))
    assert answer_summary(site(tmp_path), QUESTION) == first


# --- names, and the journal -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["../../outside", "/etc/passwd", "..", ".", "a/b", "A", "nul", "x" * 300, "Straße", "-"]
)
def test_no_name_leads_out_of_the_ledger(name: str, tmp_path: Path) -> None:
    here = site(tmp_path, calibration=Records(name, Reading()))
    answer_summary(here, QUESTION)
    assert [p.name for p in tmp_path.iterdir()] == ["ledger"]
    (entry,) = Ledger(tmp_path / "ledger").entries()
    assert entry.asked.dataset == name
    folders = [p for p in (tmp_path / "ledger").iterdir() if p.is_dir()]
    assert len(folders) == 1
    assert list(folders[0].iterdir()) == [folders[0] / "summary-1.entry"]


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "x" * 5000, "\udcff"])
def test_a_name_that_nobody_could_read_is_refused(name: str, tmp_path: Path) -> None:
    here = site(tmp_path, calibration=Records(name, Reading()))
    assert code(lambda: answer_summary(here, QUESTION)) == Code.LEDGER_UNUSABLE


@given(st.lists(st.text(min_size=1, max_size=60), min_size=2, max_size=2, unique=True))
def test_every_data_set_has_a_directory_of_its_own(names: list[str]) -> None:
    names += [file_stem("dataset", name) for name in names]  # Names that look like hashes.
    stems = {name: file_stem("dataset", name) for name in names}
    assert len({stem.lower() for stem in stems.values()}) == len(stems)
    for stem in stems.values():
        assert Path(stem).name == stem
        assert stem.isascii()
        assert not stem.startswith(".")
        assert len(stem) < 120


def test_the_journal_has_a_line_for_every_reply(tmp_path: Path) -> None:
    first = answer_summary(site(tmp_path), QUESTION)
    answer_summary(site(tmp_path), QUESTION)
    code(lambda: answer_summary(site(tmp_path), _POOL[0]))
    journal = tmp_path / "ledger/journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-9])  # A crash has cut the last line short.
    audit = answer_audit(site(tmp_path), QUESTION, predictor())
    lines = Ledger(tmp_path / "ledger").journal()
    assert [(e["asked"], e.get("bytes"), e.get("repeated")) for e in lines] == [
        ("summary", len(first), False),
        ("summary", len(first), True),
        ("audit", len(audit), False),
    ]
    assert lines[0]["sha256"] == hashlib.sha256(first).hexdigest()
    assert {e["dataset"] for e in lines} == {"2026Q3", "audit 2026Q3"}
    assert len(journal.read_text().splitlines()) == 4


def test_the_ledger_is_for_its_owner_alone(tmp_path: Path) -> None:
    answer_summary(site(tmp_path), QUESTION)
    assert (tmp_path / "ledger/2026Q3").exists() is False  # "2026Q3" is hashed: Q is not q.
    for path in (tmp_path / "ledger").iterdir():
        assert path.stat().st_mode & 0o077 == 0


def test_where_a_ledger_is_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert rounds.default_directory() == tmp_path / "state/gcfcp"
    for unset in ("", "relative"):
        monkeypatch.setenv("XDG_STATE_HOME", unset)
        assert rounds.default_directory() == tmp_path / ".local/state/gcfcp"
    monkeypatch.setattr(Path, "home", failing_home)
    with pytest.raises(GCFCPError, match="give a directory as ledger"):
        rounds.default_directory()


def failing_home() -> Path:
    raise RuntimeError("no home")


def test_the_owner_sees_what_was_told_and_how_often(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from gcfcp.cli import entry as cli

    first = answer_summary(site(tmp_path), QUESTION)
    answer_summary(site(tmp_path), QUESTION)
    for question in _POOL:
        code(lambda q=question: answer_summary(site(tmp_path), q))
    audit = answer_audit(site(tmp_path), QUESTION, predictor())
    cli.run(["ledger", str(tmp_path / "ledger"), "--json"])
    told = json.loads(capsys.readouterr().out)
    shown = [(e["dataset"], e["asked"], e["times"], e["bytes"]) for e in told["entries"]]
    assert shown == [
        ("2026Q3", "summary", 2, len(first)),
        ("audit 2026Q3", "audit", 1, len(audit)),
    ]
    assert told["entries"][0]["question"] == QUESTION.to_json()
    assert told["entries"][0]["sha256"] == hashlib.sha256(first).hexdigest()
    assert told["refused"] == {"delta-differs": 4}
    # For people, and at the usual place.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "ledger").rename(tmp_path / "gcfcp")
    cli.run(["ledger"])
    lines = capsys.readouterr().out
    assert "2 answers are kept" in lines
    assert "score column, delta 100, upper, min_count 5, by group" in lines
    assert "refused with delta-differs: 4 times" in lines
    with pytest.raises(GCFCPError, match="is not a ledger: give the directory"):
        cli.run(["ledger", str(tmp_path / "nowhere")])
    next((tmp_path / "gcfcp").glob("*/summary-1.entry")).write_bytes(b"GCFCPL")
    with pytest.raises(GCFCPError, match=r"summary-1\.entry is not a gcfcp file"):
        cli.run(["ledger"])


def test_rounds_need_no_flower() -> None:
    import subprocess
    import sys

    program = "import gcfcp.rounds, sys; print([m for m in sys.modules if m.startswith('flwr')])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


# --- audits that fail, and records that are used twice --------------------------------------------


def test_an_audit_that_fails_tells_once_and_not_of_every_combination(tmp_path: Path) -> None:
    """A server leaves one combination out of each predictor, to see which the site cannot audit.

    Whether the audit fails would tell whether the site has a record of this combination. On 0.1.0
    and until the number was taken before the records were read, all of them could be tried.
    """
    failed: list[str] = []

    def read(given: gcfcp.Predictor, question: Question) -> Any:
        failed.append(given.fingerprint)
        raise GCFCPError("an atom that was not seen")

    def outcome(data: bytes) -> Code:
        here = site(tmp_path, audit=Records("audit 2026Q3", read))  # As after a restart.
        with pytest.raises((Refusal, GCFCPError)) as error:
            answer_audit(here, QUESTION, data)
        return code_of(error.value)

    sent = [predictor(t) for t in (0.1, 0.2, 0.3)]
    assert [outcome(data) for data in sent] == [
        Code.DATA_REFUSED,
        Code.AUDITS_USED_UP,
        Code.AUDITS_USED_UP,
    ]
    # The same predictor can be asked for again, and another one never.
    assert outcome(sent[0]) == Code.DATA_REFUSED
    assert outcome(sent[1]) == Code.AUDITS_USED_UP
    assert len(set(failed)) == 1


def test_records_are_not_both_summarised_and_audited(tmp_path: Path) -> None:
    with pytest.raises(GCFCPError, match="both summarised and audited"):
        site(tmp_path, audit=Records("2026Q3", lambda predictor, question: None))


def test_a_data_set_that_was_summarised_is_not_audited_later(tmp_path: Path) -> None:
    """The owner changes the configuration, and gives the audit the name of the old records."""
    first = site(tmp_path)
    told = answer_summary(first, QUESTION)
    later = replace(
        first, calibration=Records("2026Q4", Reading()), audit=Records("2026Q3", counted)
    )
    assert code(lambda: answer_audit(later, QUESTION, predictor(0.5))) == Code.AUDITS_USED_UP
    assert answer_summary(first, QUESTION) == told
    # The other way round, and even if the audit failed.
    for name, read in (("audited", counted), ("asked for", lambda *_: 1 / 0)):
        here = site(tmp_path, audit=Records(name, read))
        with contextlib.suppress(ZeroDivisionError):
            answer_audit(here, QUESTION, predictor(0.5))
        after = replace(here, calibration=Records(name, Reading()), audit=None)
        assert code(lambda after=after: answer_summary(after, QUESTION)) == Code.QUESTIONS_USED_UP


def test_the_same_bytes_under_two_names_are_not_audited(tmp_path: Path) -> None:
    """A copy of the file that calibrates has another path and another name."""
    for audited, expected in (("1", Code.AUDIT_NOT_ALLOWED), ("2", None)):
        here = site(
            tmp_path,
            calibration=Records("2026Q3", Reading(), lambda: "1"),
            audit=Records(f"copy {audited}", counted, lambda audited=audited: audited),
        )
        assert code(lambda here=here: answer_audit(here, QUESTION, predictor(0.5))) == expected


def test_an_audit_does_not_need_the_records_that_calibrated(tmp_path: Path) -> None:
    def gone() -> str:
        raise GCFCPError("cannot read it")

    here = site(
        tmp_path,
        calibration=Records("2026Q3", Reading(), gone),
        audit=Records("audit 2026Q3", counted, lambda: "1"),
    )
    assert code(lambda: answer_audit(here, QUESTION, predictor(0.5))) is None


# --- a site's own Python --------------------------------------------------------------------------


OWN = """
import sys
from pathlib import Path

import gcfcp
from gcfcp.rounds import Ledger, Policy, Question, Records, Site

{more}


def site(settings):
    agreed = Question(gcfcp.Groups(["all"]), "mine", min_count=2)
    read = Records("2026Q4", lambda question: ([0.1, 0.2, 0.3, 0.4], [[1]] * 4))
    return Site(settings["client"], Policy(agreed), Ledger(Path(settings["ledger"])), read)
"""


def own_file(tmp_path: Path, more: str = "") -> str:
    """A site's own file, and the function in it."""
    (tmp_path / "my_site.py").write_text(OWN.format(more=more))
    return f"{tmp_path / 'my_site.py'}:site"


def test_a_site_is_made_by_a_function_of_its_own(tmp_path: Path) -> None:
    settings = {"client": "a", "ledger": str(tmp_path / "ledger")}
    site = own_site(own_file(tmp_path), settings)
    (agreed,) = site.policy.agreed  # type: ignore[misc]
    summary = gcfcp.ClientSummary.from_bytes(answer_summary(site, agreed))
    assert (summary.client, summary.n) == ("a", 4)


def test_a_module_that_the_server_sends_is_not_taken_for_the_sites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The app of a run is on Python's path, before everything else."""
    sent, own = tmp_path / "apps" / "run", tmp_path / "own"
    for directory, whose in ((sent, "the server"), (own, "the site")):
        directory.mkdir(parents=True)
        (directory / "hospital_helper_7f3a.py").write_text(f"WHOSE = {whose!r}")
    monkeypatch.setattr(sys, "path", [str(sent), str(own), *sys.path])
    more = "from hospital_helper_7f3a import WHOSE\nassert WHOSE == 'the site', WHOSE"
    reference = own_file(own, more)
    settings = {"client": "a", "ledger": str(tmp_path / "ledger")}
    with pytest.raises(GCFCPError, match="raised AssertionError"):
        own_site(reference, settings)
    sys.modules.pop("hospital_helper_7f3a")
    assert own_site(reference, settings, [sent]).client == "a"
    assert str(sent) not in sys.path
    sys.modules.pop("hospital_helper_7f3a")
    # Nor is a file that lies where the server writes.
    with pytest.raises(GCFCPError, match="lies in a directory that the server writes to"):
        own_site(own_file(sent), settings, [tmp_path / "apps"])
    (tmp_path / "link.py").symlink_to(sent / "my_site.py")
    with pytest.raises(GCFCPError, match="lies in a directory that the server writes to"):
        own_site(f"{tmp_path / 'link.py'}:site", settings, [tmp_path / "apps"])


SECRET = "0.37194428"


@pytest.mark.parametrize(
    ("reference", "more", "message"),
    [
        ("my_site:site", "", "is not the whole path"),
        ("my_site.py:site", "", "is not the whole path"),
        ("{tmp}/my_site.py", "", "is not the whole path"),
        ("{tmp}/my_site.py:a b", "", "is not the whole path"),
        ("{tmp}/none.py:site", "", "there is no such file"),
        ("{tmp}/my_site.py:other", "", "raised AttributeError"),
        ("{tmp}/my_site.py:site", f"raise ValueError('{SECRET}')", "raised ValueError"),
        ("{tmp}/my_site.py:site", f"sys.exit('{SECRET}')", "raised SystemExit"),
        ("{tmp}/my_site.py:dict", "dict = dict", "returned dict"),
        ("{tmp}/my_site.py:loose", "loose = lambda s: site(dict(s) | {'ledger': 'x'})", "ledger"),
    ],
)
def test_a_function_that_makes_no_site_is_named_without_its_text(
    reference: str, more: str, message: str, tmp_path: Path
) -> None:
    own_file(tmp_path, more)
    settings = {"client": "a", "ledger": str(tmp_path / "ledger")}
    with pytest.raises(GCFCPError, match=message) as caught:
        own_site(reference.format(tmp=tmp_path), settings)
    assert SECRET not in str(caught.value)
