"""Secure sums: exact or nothing, and what a server or a site may try to learn more or to spoil."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from gcfcp import GCFCPError, codec, secure
from gcfcp.secure import client, messages, primitives
from gcfcp.summary import signatures
from secure_sum import STEPS, Federation, counts, names


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """The signing keys of 30 sites: the files of the private ones, and the public ones."""
    folder = tmp_path_factory.mktemp("keys")
    files = {name: folder / f"{name}.key" for name in [*names(30), "stranger"]}
    public = {name: (signatures.new_key(path),) for name, path in files.items()}
    return files, {name: public[name] for name in names(30)}


def signed(keys, number=4, **more) -> Federation:
    files, known = keys
    more.setdefault("vectors", counts(names(number), 5))
    return Federation(keys=files, known=known, **more)


def unsigned(number=4, **more) -> Federation:
    more.setdefault("vectors", counts(names(number), 5))
    return Federation(**more)


def plain(federation: Federation, of) -> np.ndarray:
    """The sum of the vectors of some sites, with Python's own numbers."""
    columns = zip(*(map(int, federation.vectors[name]) for name in of), strict=True)
    return np.array([sum(column) for column in columns], dtype=object)


# --- the sum -------------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_the_sum_is_that_of_the_survivors_to_the_bit(data):
    number = data.draw(st.integers(3, 6), "sites")
    length = data.draw(st.integers(1, 6), "length")
    entry = st.one_of(st.integers(0, 3), st.integers(0, secure.LIMIT - 1))
    vectors = {
        name: np.array(data.draw(st.lists(entry, min_size=length, max_size=length)), np.int64)
        for name in names(number)
    }
    threshold = secure.usual_threshold(number)
    lost = data.draw(st.permutations(names(number)))[: number - threshold]
    steps = {name: data.draw(st.sampled_from(STEPS[1:])) for name in lost}
    federation = unsigned(
        vectors=vectors,
        threshold=threshold,
        lost={step: [n for n, s in steps.items() if s == step] for step in STEPS},
    )
    found = federation.run()
    before = [n for n in names(number) if steps.get(n) not in ("share", "mask")]
    assert found.sites == tuple(before)
    assert found.dropped == tuple(n for n in names(number) if steps.get(n) == "mask")
    assert list(map(int, found.values)) == list(plain(federation, before))


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_ten_of_thirty_sites_are_lost_at_each_step(keys, step):
    federation = signed(keys, 30, threshold=20 if step != "advertise" else None)
    gone = names(30)[7:17]
    federation.lost = {step: gone}
    found = federation.run()
    inside = [n for n in names(30) if step in ("confirm", "reveal") or n not in gone]
    assert list(found.sites) == inside
    assert list(found.dropped) == (gone if step == "mask" else [])
    assert list(map(int, found.values)) == list(plain(federation, inside))


@pytest.mark.parametrize("step", STEPS)
def test_fewer_than_the_threshold_end_with_nothing(keys, step):
    federation = signed(keys, 6, threshold=5, lost={step: names(6)[:2]})
    with pytest.raises(GCFCPError, match="ends with nothing"):
        federation.run()
    # No site was asked for shares, unless enough vectors and confirmations had come.
    assert ("reveal" in {s for s, _ in federation.sent}) == (step == "reveal")


def test_fewer_shares_than_the_threshold_say_nothing_about_a_seed():
    """With t - 1 shares, every seed is equally possible: any further share gives another one."""
    secret = bytes(range(16))
    shares = dict(enumerate(primitives.split(secret, 3, 5)))
    assert primitives.join(shares, 3) == secret
    few = {0: shares[0], 1: shares[1]}
    with pytest.raises(GCFCPError, match="2 shares do not give"):
        primitives.join(few, 3)
    found = {primitives.join(few | {2: bytes([i]) * 16}, 3) for i in range(64)}
    assert len(found) == 64


# --- what the server sees ------------------------------------------------------------------------


def test_a_masked_vector_is_uniform_whatever_is_in_it():
    """Chi-square tests of the bytes of masked vectors, all zeros and all equal."""
    for value in (0, 7):
        federation = unsigned(vectors={n: np.full(4000, value) for n in names(3)})
        federation.until("mask")
        for vector in federation.masked.values():
            seen = np.bincount(vector.view(np.uint8), minlength=256)
            assert chisquare(seen).pvalue > 1e-6


def test_self_masks_alone_do_not_uncover_a_vector():
    """What is left after the revealed self masks is still uniform, for every single site."""
    federation = unsigned(vectors={n: np.zeros(4000, int) for n in names(3)})
    seeds = {}
    federation.until("share")
    for name, state in federation.states.items():
        seeds[name] = state.self_seed
    replies = federation.ask("mask", federation.parcels)
    for name, data in replies.items():
        roster = federation.roster
        left = secure.read_masked(roster, name, data) - client.self_mask(seeds[name], roster, name)
        seen = np.bincount(left.view(np.uint8), minlength=256)
        assert chisquare(seen).pvalue > 1e-6


def test_the_same_transcript_arises_from_any_data_with_the_same_sum(monkeypatch):
    """With masks that are uniform, the server's view depends on the sum of the vectors only.

    A one-to-one change of the pairwise masks turns the transcript of one data set into that of
    another with the same sum. As masks are uniform, both transcripts are equally likely.
    """
    here, there, third = names(3)
    one = counts(names(3), 8, seed=1)
    change = np.random.default_rng(2).integers(-20, 20, (2, 8))
    other = {here: one[here] + 20, there: one[there] + 20, third: one[third] + 20}
    one = dict(other)
    other = {
        here: one[here] + change[0],
        there: one[there] + change[1],
        third: one[third] - change[0] - change[1],
    }
    assert all((v >= 0).all() for v in other.values())
    assert (plain(Federation(one), names(3)) == plain(Federation(other), names(3))).all()

    stream = Counter()

    def fixed(number):
        """The same chance in both runs."""
        stream["calls"] += 1
        return np.random.default_rng(stream["calls"]).bytes(number)

    genuine, labels = client.pair_mask, {}

    def moved(secret, roster, at, to):
        """The mask of the pair with the last site takes up what the first site has more."""
        mask = genuine(secret, roster, at, to)
        labels[at, to] = roster.names[at], roster.names[to]
        if {at, to} in ({0, 2}, {1, 2}):
            extra = change[min(at, to)].astype(np.int64).view(np.uint64)
            mask = mask - extra if at < to else mask + extra
        return mask

    def transcript(vectors):
        stream.clear()
        federation = unsigned(vectors=vectors)
        monkeypatch.setattr(federation, "begin", lambda: secure.Begin("0" * 32, "1" * 64, 8, False))
        found = federation.run()
        return federation.sent, federation.got, list(found.values)

    monkeypatch.setattr(primitives, "random_bytes", fixed)
    monkeypatch.setattr("Crypto.Protocol.SecretSharing.rng", fixed)
    first = transcript(one)
    assert first == transcript(one)
    assert first != transcript(other)
    monkeypatch.setattr(client, "pair_mask", moved)
    assert first == transcript(other)
    assert len(labels) == 6


def test_masks_cancel_and_are_bound_to_the_roster():
    federation = unsigned(3)
    federation.until("share")
    roster = federation.roster
    secrets = [
        client._mask_secret(federation.states[n].mask_seed, roster.begin, n) for n in names(3)
    ]
    assert not (
        client.pair_mask(secrets[0], roster, 0, 2) + client.pair_mask(secrets[2], roster, 2, 0)
    ).any()
    other = messages.Roster(roster.begin, 3, roster.keys)
    assert (
        client.pair_mask(secrets[0], roster, 0, 2) != client.pair_mask(secrets[0], other, 0, 2)
    ).all()


# --- a server that lies --------------------------------------------------------------------------


def division_of(federation, survivors, senders=None):
    shared = list(federation.shares) if senders is None else senders
    return secure.divide(federation.roster, shared, survivors)


@pytest.mark.parametrize("kind", ["signed", "unsigned"])
def test_a_site_answers_for_one_division_only(keys, kind):
    """A survivor is named as dropped in a second request: both shares of it would unmask it."""
    federation = signed(keys, 5, threshold=4) if kind == "signed" else unsigned(5, threshold=4)
    last = "confirm" if kind == "signed" else "mask"
    federation.until(last)
    first = division_of(federation, names(5))
    second = division_of(federation, names(5)[:4])
    here = names(5)[0]
    if kind == "signed":
        with pytest.raises(GCFCPError, match="each step is made once"):
            federation.step("confirm", here, secure.ask_survivors(federation.roster, second))
        signatures_ = dict.fromkeys(names(5)[:4], next(iter(federation.signed.values())))
        with pytest.raises(GCFCPError, match="not the division that this site has confirmed"):
            federation.step(
                "reveal", here, secure.ask_reveal(federation.roster, second, signatures_)
            )
        request = secure.ask_reveal(federation.roster, first, federation.signed)
    else:
        request = secure.ask_reveal(federation.roster, first)
    federation.step("reveal", here, request)
    again = secure.ask_reveal(federation.roster, second, federation.__dict__.get("signed"))
    for repeated in (again, request):
        with pytest.raises(GCFCPError, match="each step is made once"):
            federation.step("reveal", here, repeated)
    state = federation.states[here]
    assert not state.held + state.own + state.self_seed + state.mask_seed + state.cipher_secret


def test_a_site_never_reveals_both_shares_of_one_site():
    federation = unsigned(5, threshold=3, lost={"mask": names(5)[4:]}, rules=secure.Rules(3, 3))
    federation.run()
    held = {n: federation.sent["reveal", n] for n in names(5)[:4]}
    seeds = {
        n: secure.read_revealed(federation.roster, federation.division, n, d)
        for n, d in held.items()
    }
    lost, kept = names(5)[4], names(5)[0]
    begin, roster = federation.roster.begin, federation.roster
    of_lost = primitives.join({i: seeds[n][lost] for i, n in enumerate(names(5)[:4])}, 3)
    of_kept = primitives.join({i: seeds[n][kept] for i, n in enumerate(names(5)[:4])}, 3)
    assert client.mask_public(of_lost, begin, lost)[1] == roster.keys[4].mask_key
    assert client.commitment(of_lost, begin, lost) != roster.keys[4].commitment
    assert client.commitment(of_kept, begin, kept) == roster.keys[0].commitment
    assert client.mask_public(of_kept, begin, kept)[1] != roster.keys[0].mask_key


def test_a_division_needs_the_signatures_of_as_many_sites_as_the_threshold(keys):
    federation = signed(keys, 5, threshold=4)
    federation.until("confirm")
    here, roster, division = names(5)[0], federation.roster, federation.division
    few = dict(list(federation.signed.items())[:3])
    header = {"confirmed": [0, 1, 2], "sizes": [len(d) for d in few.values()]}
    short = roster.write("reveal", division.header | header, b"".join(few.values()))
    with pytest.raises(GCFCPError, match="threshold of this secure sum is 4"):
        federation.step("reveal", here, short)
    none = roster.write("reveal", division.header | {"confirmed": [], "sizes": []})
    with pytest.raises(GCFCPError, match="threshold of this secure sum is 4"):
        federation.step("reveal", here, none)
    # The signature of one site does not stand for another one, nor for another division.
    swapped = federation.signed | {names(5)[1]: federation.signed[names(5)[2]]}
    with pytest.raises(GCFCPError, match="not a known key"):
        federation.step("reveal", here, secure.ask_reveal(roster, division, swapped))
    forged = federation.signed | {
        names(5)[1]: signatures.sign(
            division_of(federation, names(5)[:4]).confirmation(roster, 1), keys[0][names(5)[1]]
        )
    }
    with pytest.raises(GCFCPError, match="signature does not match"):
        federation.step("reveal", here, secure.ask_reveal(roster, division, forged))
    assert federation.states[here].stage == client.CONFIRMED


@pytest.mark.parametrize("step", ["confirm", "reveal"])
def test_a_division_must_be_possible(keys, step):
    federation = signed(keys, 5, threshold=4) if step == "confirm" else unsigned(5, threshold=4)
    federation.lost = {"share": names(5)[4:]}
    federation.until("mask")
    roster, here = federation.roster, names(5)[0]
    more = {} if step == "confirm" else {"confirmed": [], "sizes": []}
    kind = "survivors" if step == "confirm" else "reveal"

    def asked(senders, survivors):
        header = {"senders": senders, "survivors": survivors} | more
        return roster.write(kind, header)

    for senders, survivors, wrong in (
        ([0, 1, 2, 3], [0, 1, 2], "threshold of this secure sum is 4"),
        ([0, 1, 2, 3], [0, 1, 2, 4], "sent no shares"),
        ([0, 1, 2, 3, 4], [0, 1, 2, 3], "not those that were named"),
        ([0, 1, 2, 3, 4], [1, 2, 3, 4], "not those that were named"),
        ([0, 1, 2, 3], [0, 1, 2, 2], "does not ascend"),
        ([0, 1, 2, 3], [0, 1, 2, True], "position"),
        ([0, 1, 2, 3], [0, 1, 2, 9], "position"),
    ):
        with pytest.raises(GCFCPError, match=wrong):
            federation.step(step, here, asked(senders, survivors))
    federation = signed(keys, 5, threshold=4) if step == "confirm" else unsigned(5, threshold=4)
    federation.until("mask")
    roster = federation.roster
    with pytest.raises(GCFCPError, match="named as dropped"):
        federation.step(step, here, asked([0, 1, 2, 3, 4], [1, 2, 3, 4]))


def stolen(federation, colluders, first_half, second_half, victim):
    """What a lying server gets that tells some sites that the victim is in, and others that not.

    colluders: The sites that sign whatever it wants, and give it all that they hold.
    first_half, second_half: The honest sites that are asked to confirm the one and the other.
    """
    roster, names_ = federation.roster, federation.roster.names
    shares = {"in": {}, "out": {}}
    for label, asked, survivors in (
        ("in", first_half, list(names_)),
        ("out", second_half, [n for n in names_ if n != victim]),
    ):
        division = secure.divide(roster, list(names_), survivors)
        question = secure.ask_survivors(roster, division)
        signed_ = {
            n: secure.read_confirmation(
                roster, division, n, federation.step("confirm", n, question)
            )
            for n in asked
        }
        for n in colluders:
            unsigned_ = division.confirmation(roster, roster.position(n))
            signed_[n] = signatures.sign(unsigned_, federation.keys[n])
        at = roster.position(victim)
        for n in asked:
            reply = federation.step("reveal", n, secure.ask_reveal(roster, division, signed_))
            told = secure.read_revealed(roster, division, n, reply)[victim]
            shares[label][roster.position(n)] = told
        for n in colluders:
            pair = federation.states[n].held[32 * at : 32 * (at + 1)]
            shares[label][roster.position(n)] = pair[:16] if label == "in" else pair[16:]
    seed, key = (primitives.join(shares[label], roster.threshold) for label in ("in", "out"))
    found = federation.masked[victim] - client.self_mask(seed, roster, victim)
    secret, _ = client.mask_public(key, roster.begin, victim)
    for there in range(len(names_)):
        if there != at:
            found -= client.pair_mask(secret, roster, at, there)
    return found


def test_how_many_sites_a_lying_server_needs(keys):
    """Of 6 sites with a threshold of 4, it needs 2t - n = 2 on its side, and 1 is not enough."""
    a, b, c, d, e, victim = names(6)
    bound = signed(keys, 6, threshold=4)
    bound.until("mask")
    assert (stolen(bound, [a, b], [victim, c], [d, e], victim) == bound.vectors[victim]).all()
    safe = signed(keys, 6, threshold=4)
    safe.until("mask")
    with pytest.raises(GCFCPError, match="3 of 6 sites have confirmed"):
        stolen(safe, [a], [victim, b], [c, d, e], victim)
    again = signed(keys, 6, threshold=4)
    again.until("mask")
    with pytest.raises(GCFCPError, match="each step is made once"):
        stolen(again, [a], [victim, b, c], [c, d, e], victim)


def test_fewer_sites_than_the_threshold_learn_the_sum_of_the_others_alone():
    """Three of five sites (t = 4) and the server put together all that they hold."""
    federation = unsigned(5, threshold=4)
    federation.until("mask")
    roster, colluders = federation.roster, [0, 1, 2]
    held = {i: federation.states[names(5)[i]].held for i in colluders}
    victim = 4
    for part in (slice(0, 16), slice(16, 32)):
        pool = {i: held[i][32 * victim : 32 * victim + 32][part] for i in colluders}
        with pytest.raises(GCFCPError, match="3 shares do not give a secret that needs 4"):
            primitives.join(pool, roster.threshold)
    # The honest sites reveal for one division: the self mask comes off, the pairwise mask does not.
    states = dict(federation.states)
    request = secure.ask_reveal(roster, federation.division)
    revealed = {
        n: secure.read_revealed(
            roster, federation.division, n, federation.step("reveal", n, request)
        )
        for n in names(5)
    }
    found = secure.total(roster, federation.division, federation.masked, revealed)
    others = found.values - sum(federation.vectors[n].astype(np.uint64) for n in names(5)[:3])
    assert (others == plain(federation, names(5)[3:]).astype(np.uint64)).all()
    seed = primitives.join(
        {i: revealed[n][names(5)[victim]] for i, n in enumerate(names(5))}, roster.threshold
    )
    left = federation.masked[names(5)[victim]] - client.self_mask(seed, roster, names(5)[victim])
    for i in colluders:
        secret = client._mask_secret(
            federation.before["mask", names(5)[i]].mask_seed, roster.begin, names(5)[i]
        )
        left += client.pair_mask(secret, roster, i, victim)
    assert (left != federation.vectors[names(5)[victim]]).all()
    assert states[names(5)[3]].mask_seed == b""  # Nor is the last mask on the disk of its sites.


def test_a_server_cannot_put_its_own_key_on_the_roster(keys):
    federation = signed(keys)
    federation.until("advertise")
    roster, here = federation.roster, names(4)[0]
    wrong = primitives.public_of(primitives.random_bytes(32))
    swapped = replace(roster.keys[1], mask_key=wrong)
    stranger = replace(
        swapped, signature=signatures.sign(swapped.to_bytes(signed=False), keys[0]["stranger"])
    )
    for bad, why in ((swapped, "does not match"), (stranger, "not a known key")):
        given = messages.Roster(roster.begin, 3, (roster.keys[0], bad, *roster.keys[2:]))
        with pytest.raises(GCFCPError, match=why):
            federation.step("share", here, given.to_bytes())
        with pytest.raises(GCFCPError, match=why):
            secure.read_keys(roster.begin, bad.client, bad.to_bytes(), keys[1])
    mine = replace(roster.keys[0], mask_key=wrong)
    given = messages.Roster(roster.begin, 3, (mine, *roster.keys[1:]))
    with pytest.raises(GCFCPError, match="other keys for this site"):
        federation.step("share", here, given.to_bytes())


def test_an_unsigned_sum_does_not_protect_against_invented_sites():
    """The attack that the documentation names, and that signatures stop: it works here."""
    federation = unsigned(1, rules=secure.Rules(3))
    victim, fakes = names(1)[0], ["x", "y", "z"]
    inventions = Federation(counts(fakes, 5))
    first = federation.begin()
    adverts = federation.ask("advertise", {victim: first.to_bytes()})
    adverts |= inventions.ask("advertise", dict.fromkeys(fakes, first.to_bytes()))
    roster = secure.make_roster(first, [secure.read_keys(first, n, d) for n, d in adverts.items()])
    federation.roster = inventions.roster = roster
    replies = federation.ask("share", {victim: roster.to_bytes()})
    replies |= inventions.ask("share", dict.fromkeys(fakes, roster.to_bytes()))
    shares = {n: secure.read_shares(roster, n, d) for n, d in replies.items()}
    parcels = secure.deliveries(roster, shares)
    masked = {
        n: secure.read_masked(
            roster, n, (federation if n == victim else inventions).step("mask", n, parcels[n])
        )
        for n in adverts
    }
    division = secure.divide(roster, list(shares), list(masked))
    request = secure.ask_reveal(roster, division)
    revealed = {
        n: secure.read_revealed(roster, division, n, inventions.step("reveal", n, request))
        for n in fakes
    }
    found = secure.total(roster, division, masked, revealed)
    stolen = found.values - sum(inventions.vectors[n].astype(np.uint64) for n in fakes)
    assert (stolen == federation.vectors[victim]).all()


def test_a_site_that_signs_takes_no_part_in_an_unsigned_sum(keys):
    files, known = keys
    me = secure.Identity(names(1)[0], files[names(1)[0]], known)
    with pytest.raises(GCFCPError, match="signed ones only"):
        secure.advertise(secure.begin(b"", 5, signed=False).to_bytes(), me)
    with pytest.raises(GCFCPError, match="no signing key"):
        secure.advertise(secure.begin(b"", 5, signed=True).to_bytes(), secure.Identity("a"))
    with pytest.raises(GCFCPError, match="needs both"):
        secure.Identity("a", files[names(1)[0]])


@pytest.mark.parametrize(
    ("number", "threshold", "rules", "why"),
    [
        (4, 3, secure.Rules(5), "sums of at least 5"),
        (6, 4, secure.Rules(3, 5), "at least 5"),
        (9, 5, secure.Rules(3), "at least 6"),
    ],
)
def test_a_site_has_rules_of_its_own(number, threshold, rules, why):
    federation = unsigned(number, threshold=threshold, rules=rules)
    with pytest.raises(GCFCPError, match=why):
        federation.run()
    assert not [step for step, _ in federation.sent if step != "advertise"]


def test_two_halves_are_never_unmasked_apart():
    for number in range(2, 40):
        assert 2 * secure.usual_threshold(number) > number
    with pytest.raises(GCFCPError, match="two halves"):
        unsigned(6, threshold=3, rules=secure.Rules(3, 3)).run()


# --- messages of other sums, and from strangers --------------------------------------------------


def test_a_message_of_another_sum_is_refused(keys):
    """Every message of one sum is replayed to the sites and to the server of another one."""
    one, two = signed(keys), signed(keys)
    one.run()
    two.until("mask")
    here = names(4)[0]
    begin, roster = two.roster.begin, two.roster
    with pytest.raises(GCFCPError, match="another sum"):
        secure.read_keys(begin, here, one.sent["advertise", here])
    for read, step in ((secure.read_shares, "share"), (secure.read_masked, "mask")):
        with pytest.raises(GCFCPError, match="another sum"):
            read(roster, here, one.sent[step, here])
    with pytest.raises(GCFCPError, match="another sum"):
        secure.read_confirmation(roster, two.division, here, one.sent["confirm", here])
    with pytest.raises(GCFCPError, match="another sum"):
        secure.read_revealed(roster, two.division, here, one.sent["reveal", here])
    for step in ("confirm", "reveal"):
        two.states[here] = replace(two.states[here], stage=STEPS.index(step) - 1)
        with pytest.raises(GCFCPError, match="another sum"):
            two.step(step, here, one.got[step, here])
    three = signed(keys)
    three.until("advertise")
    with pytest.raises(GCFCPError, match="another sum"):
        three.step("share", here, one.got["share", here])
    three.until("share")
    with pytest.raises(GCFCPError, match="another sum"):
        three.step("mask", here, one.got["mask", here])


def test_shares_of_another_roster_or_direction_cannot_be_opened():
    federation = unsigned(4)
    federation.until("share")
    a, b, c, _ = names(4)
    roster, shares = federation.roster, federation.shares

    def delivered(to, change):
        changed = {n: dict(s) for n, s in shares.items()}
        change(changed)
        return secure.deliveries(roster, changed)[to]

    def swap(s):
        s[b][a], s[c][a] = s[c][a], s[b][a]

    def reflect(s):
        s[b][a] = s[a][b]

    def flip(s):
        s[b][a] = s[b][a][:-1] + bytes([s[b][a][-1] ^ 1])

    for change in (swap, reflect, flip):
        with pytest.raises(GCFCPError, match="sealed shares were changed"):
            federation.step("mask", a, delivered(a, change))
    # The server gives two sites different rosters: neither can open the shares of the other.
    other = messages.Roster(roster.begin, 4, roster.keys)
    _, reply = secure.share(
        replace(federation.states[b], stage=client.ADVERTISED),
        other.to_bytes(),
        federation.identity(b),
        secure.Rules(),
    )
    sealed = secure.read_shares(other, b, reply)[a]
    with pytest.raises(GCFCPError, match="sealed shares were changed"):
        federation.step("mask", a, delivered(a, lambda s: s[b].__setitem__(a, sealed)))


SMALL_ORDER = [
    0,
    1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
    2**255 - 20,
]


@pytest.mark.parametrize("point", SMALL_ORDER)
def test_a_key_of_small_order_is_refused(point):
    key = point.to_bytes(32, "little")
    with pytest.raises(GCFCPError, match="small order"):
        primitives.agree(primitives.random_bytes(32), key, "use")
    federation = unsigned(4)
    federation.until("advertise")
    roster = federation.roster
    cipher = replace(roster.keys[1], cipher_key=key)
    given = messages.Roster(roster.begin, 3, (roster.keys[0], cipher, *roster.keys[2:]))
    with pytest.raises(GCFCPError, match="small order"):
        federation.step("share", names(4)[0], given.to_bytes())


def test_a_key_has_one_encoding():
    """A key with its highest bit set is the same point, so it would be advertised twice."""
    for key in (
        (2**255 - 19).to_bytes(32, "little"),
        (5 + 2**255).to_bytes(32, "little"),
        bytes(31),
    ):
        with pytest.raises(GCFCPError, match="usual encoding"):
            primitives.check_public(key)


def test_a_roster_names_every_site_and_key_once():
    federation = unsigned(4)
    federation.until("advertise")
    roster = federation.roster
    a, b, c, d = roster.keys
    for sites in (
        (a, a, b, c),
        (b, a, c, d),
        (a, replace(b, mask_key=a.mask_key), c, d),
        (a, replace(b, cipher_key=a.mask_key), c, d),
        (a, replace(b, commitment=a.commitment), c, d),
        (a, replace(b, client="site-00\u00a0"), c, d),
    ):
        with pytest.raises(GCFCPError):
            messages.Roster(roster.begin, 3, sites)
    with pytest.raises(GCFCPError, match="at most 1000"):
        messages.Roster(roster.begin, 700, tuple(replace(a, client=f"{i:04}") for i in range(1001)))


def test_a_share_that_is_wrong_cannot_change_the_sum_unnoticed():
    for lost, owner in (([], 0), (names(5)[4:], 4)):
        federation = unsigned(5, threshold=3, rules=secure.Rules(3, 3), lost={"mask": lost})
        federation.run()
        roster, division = federation.roster, federation.division
        revealed = {
            n: secure.read_revealed(roster, division, n, federation.sent["reveal", n])
            for n in names(4)
        }
        revealed[names(4)[1]][names(5)[owner]] = bytes(16)
        with pytest.raises(GCFCPError, match=f"shares of '{names(5)[owner]}' do not give"):
            secure.total(roster, division, federation.masked, revealed)


def test_a_vector_that_was_not_masked_as_agreed_is_noticed():
    federation = unsigned(4)
    federation.run()
    roster, division = federation.roster, federation.division
    masked = dict(federation.masked)
    masked[names(4)[1]] = masked[names(4)[1]][::-1]
    revealed = {
        n: secure.read_revealed(roster, division, n, federation.sent["reveal", n]) for n in names(4)
    }
    with pytest.raises(GCFCPError, match="no sum of counts can have"):
        secure.total(roster, division, masked, revealed)


@pytest.mark.parametrize(
    ("vector", "why"),
    [
        ([1, 2, 3], "has 3 numbers, but 5"),
        ([0, 1, 2, 3, -1], "below 0"),
        ([0, 1, 2, 3, 2**43], "not below"),
        ([0.0, 1, 2, 3, 4], "whole numbers"),
        ([[1, 2, 3, 4, 5]], "one dimension"),
        ([True] * 5, "whole numbers"),
        ([2**64, 0, 0, 0, 0], "whole numbers"),
    ],
)
def test_a_malformed_vector_never_leaves_a_site(vector, why):
    federation = unsigned(4)
    federation.vectors = federation.vectors | {names(4)[1]: vector}
    with pytest.raises(GCFCPError, match=why):
        federation.run()
    assert ("mask", names(4)[1]) not in federation.sent
    assert federation.states[names(4)[1]].stage == client.SHARED


def test_a_malformed_masked_vector_is_refused_by_the_server():
    federation = unsigned(4)
    federation.until("mask")
    roster, here = federation.roster, names(4)[0]
    good = federation.sent["mask", here]
    for body in (b"", bytes(8 * 4), bytes(8 * 5 + 1), bytes(8 * 6)):
        with pytest.raises(GCFCPError, match="parts of 8 are needed"):
            secure.read_masked(roster, here, roster.write("masked", {}, body, 0))
    with pytest.raises(GCFCPError, match="another site"):
        secure.read_masked(roster, names(4)[1], good)
    with pytest.raises(GCFCPError, match="not on the roster"):
        secure.read_masked(roster, "stranger", good)


def test_records_are_read_only_when_everything_else_is_in_order():
    federation = unsigned(4)
    federation.until("share")
    a = names(4)[0]

    def never():
        raise AssertionError("the records were read")

    short = federation.roster.write("delivery", {"senders": [0, 1]}, bytes(60))
    without = federation.roster.write("delivery", {"senders": [1, 2, 3]}, bytes(180))
    for data, why in ((short, "threshold"), (without, "not among the senders")):
        with pytest.raises(GCFCPError, match=why):
            secure.mask(federation.states[a], data, never)


def test_steps_are_made_in_order(keys):
    federation = signed(keys)
    federation.run()
    here = names(4)[0]
    for step in STEPS[1:]:
        with pytest.raises(GCFCPError, match="each step is made once, in order"):
            federation.step(step, here, federation.got[step, here])
    begin = replace(federation.roster.begin, signed=False)
    federation.states[here] = replace(federation.states[here], stage=client.MASKED, begin=begin)
    with pytest.raises(GCFCPError, match="no confirmations"):
        federation.step("confirm", here, federation.got["confirm", here])


@pytest.fixture(scope="module")
def whole(keys):
    """A complete sum, whose messages are changed."""
    federation = signed(keys)
    federation.run()
    return federation


def read_again(whole, step, here, data):
    """Read a message as the server does."""
    roster, division = whole.roster, whole.division
    if step == "advertise":
        return secure.read_keys(roster.begin, here, data, whole.known)
    if step == "share":
        return secure.read_shares(roster, here, data)
    if step == "mask":
        return secure.read_masked(roster, here, data)
    if step == "confirm":
        return secure.read_confirmation(roster, division, here, data, whole.known)
    return secure.read_revealed(roster, division, here, data)


@pytest.mark.parametrize("step", STEPS)
def test_a_message_has_one_form(whole, step):
    here = names(4)[1]
    for data, read in (
        (whole.sent[step, here], lambda d: read_again(whole, step, here, d)),
        (whole.got[step, here], lambda d: request_again(whole, step, here, d)),
    ):
        read(data)
        version, header, body = codec.unpack_with_version(data, b"U", 1, "message")
        body = bytes(body)
        changed = [
            codec.pack(b"U", 1, header | {"more": 1}, body),
            codec.pack(b"U", 1, header | {"message": "other"}, body),
            codec.pack(b"U", 1, header, body + b"\0"),
            codec.pack(b"A", version, header, body),
            data + b"\0",
            b"",
        ]
        for key, value in header.items():
            changed.append(codec.pack(b"U", 1, {k: v for k, v in header.items() if k != key}, body))
            odd = (None, [], {}, -1, 2**70, 1.5, "", "0" * 64, [value], str(value) + " ")
            changed += [codec.pack(b"U", 1, header | {key: o}, body) for o in odd if o != value]
        spaced = codec.pack(b"U", 1, header, body).replace(b'","', b'", "', 1)
        changed.append(spaced)
        for bad in changed:
            with pytest.raises(GCFCPError):
                read(bad)


def request_again(whole, step, here, data):
    """Read a message as a site does that has come to this step."""
    state = whole.before[step, here]
    me = whole.identity(here)
    if step == "advertise":
        # Other values of the beginning are another sum, which only later steps can refuse.
        begin = secure.Begin.from_bytes(data)
        if begin != whole.roster.begin:
            raise GCFCPError("another sum")
        return secure.advertise(data, me)
    if step == "share":
        return secure.share(state, data, me, whole.rules)
    if step == "mask":
        return secure.mask(state, data, lambda: whole.vectors[here])
    if step == "confirm":
        return secure.confirm(state, data, me)
    return secure.reveal(state, data, me)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(STEPS), st.data())
def test_no_bytes_of_strangers_raise_anything_else(whole, step, data):
    here = names(4)[1]
    for good, read in (
        (whole.sent[step, here], read_again),
        (whole.got[step, here], request_again),
    ):
        start = data.draw(st.integers(0, len(good)))
        end = data.draw(st.integers(start, len(good)))
        bad = good[:start] + data.draw(st.binary(max_size=20)) + good[end:]
        if bad != good:
            with pytest.raises(GCFCPError):
                read(whole, step, here, bad)


def test_a_state_keeps_its_secrets_to_itself(whole):
    here = names(4)[1]
    state = whole.before["share", here]
    assert secure.State.from_bytes(state.to_bytes()) == state
    for secret in (state.mask_seed, state.self_seed, state.cipher_secret):
        assert len(secret) >= 16
        assert repr(secret) not in repr(state)
        assert not any(secret in data for data in (*whole.sent.values(), *whole.got.values()))
    with pytest.raises(GCFCPError, match="it is the state of a secure sum, but a message"):
        codec.unpack(state.to_bytes(), b"U", 1, "it")
    with pytest.raises(GCFCPError, match="damaged"):
        secure.State.from_bytes(state.to_bytes()[:-1] + b"\0")


@pytest.mark.parametrize("wrong", [[1, 0], [0, 0], [0, 2, 1], [3], [-1], [True], [0.0], "01", None])
def test_a_list_of_sites_ascends_and_names_each_once(wrong):
    assert messages.positions([0, 2], 3) == (0, 2)
    with pytest.raises(GCFCPError):
        messages.positions(wrong, 3)
