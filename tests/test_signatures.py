"""Signed summaries are accepted from clients whose keys are known, and from nobody else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import gcfcp
from gcfcp import GCFCPError, codec
from gcfcp.cli import entry as cli
from gcfcp.summary import signatures

pytest.importorskip("cryptography", reason="signatures need gcfcp[sign]")


def summary(client: str, seed: int = 0) -> gcfcp.ClientSummary:
    rng = np.random.default_rng([seed, ord(client[0])])
    groups = gcfcp.Groups(["all"])
    return gcfcp.summarize(rng.random(50), np.ones((50, 1), bool), groups=groups, client=client)


@pytest.fixture
def sites(tmp_path: Path) -> dict[str, Path]:
    """Two sites with keys, summaries and signatures, and the server's file of keys."""
    lines = []
    for name in ("a", "b"):
        public = signatures.new_key(tmp_path / f"{name}.key")
        lines.append(f'{name} = "{public}"\n')
        summary(name).save(tmp_path / f"{name}.gcfcp")
        data = (tmp_path / f"{name}.gcfcp").read_bytes()
        (tmp_path / f"{name}.gcfcp.sig").write_bytes(
            signatures.sign(data, tmp_path / f"{name}.key")
        )
    (tmp_path / "keys.toml").write_text("".join(lines))
    return {path.name: path for path in tmp_path.iterdir()}


def test_what_known_clients_signed_is_taken(sites: dict[str, Path]) -> None:
    known = signatures.load_known(sites["keys.toml"])
    found = signatures.load_signed([sites["a.gcfcp"], sites["b.gcfcp"]], known)
    assert [s.client for s in found] == ["a", "b"]
    assert found[0] == summary("a")


def test_a_signature_of_other_bytes_is_refused(sites: dict[str, Path]) -> None:
    summary("a", seed=1).save(sites["a.gcfcp"])
    with pytest.raises(GCFCPError, match="not what 'a' signed"):
        signatures.load_signed([sites["a.gcfcp"]], signatures.load_known(sites["keys.toml"]))


def test_every_bit_of_the_signature_counts(sites: dict[str, Path]) -> None:
    known = signatures.load_known(sites["keys.toml"])
    data = sites["a.gcfcp"].read_bytes()
    header, _ = codec.unpack(sites["a.gcfcp.sig"].read_bytes(), b"K", 1, "x")
    for i in range(0, 128, 7):
        digits = header["signature"]
        other = format(int(digits[i], 16) ^ 1, "x")
        forged = codec.pack(
            b"K", 1, header | {"signature": digits[:i] + other + digits[i + 1 :]}, b""
        )
        with pytest.raises(GCFCPError, match="not what 'a' signed"):
            signatures.verify(data, forged, "a", known)


def test_a_known_site_cannot_speak_for_another(sites: dict[str, Path]) -> None:
    known = signatures.load_known(sites["keys.toml"])
    data = summary("b", seed=1).to_bytes()
    with pytest.raises(GCFCPError, match="which is not a known key of 'b'"):
        signatures.verify(data, signatures.sign(data, sites["a.key"]), "b", known)


def test_unknown_clients_and_missing_signatures_are_refused(sites: dict[str, Path]) -> None:
    known = signatures.load_known(sites["keys.toml"])
    data = summary("c").to_bytes()
    with pytest.raises(GCFCPError, match="no key is known"):
        signatures.verify(data, signatures.sign(data, sites["a.key"]), "c", known)
    sites["b.gcfcp.sig"].unlink()
    with pytest.raises(GCFCPError, match="not signed"):
        signatures.load_signed([sites["b.gcfcp"]], known)


def test_a_key_can_be_replaced(sites: dict[str, Path], tmp_path: Path) -> None:
    old = signatures.public_key(sites["a.key"])
    new = signatures.new_key(tmp_path / "new.key")
    (tmp_path / "both.toml").write_text(f'a = ["{old}", "{new}"]\n')
    data = sites["a.gcfcp"].read_bytes()
    known = signatures.load_known(tmp_path / "both.toml")
    for key in (sites["a.key"], tmp_path / "new.key"):
        signatures.verify(data, signatures.sign(data, key), "a", known)


def test_private_keys_are_closed_to_others_and_never_overwritten(sites: dict[str, Path]) -> None:
    assert sites["a.key"].stat().st_mode & 0o777 == 0o600
    before = sites["a.key"].read_bytes()
    with pytest.raises(GCFCPError, match="never overwritten"):
        signatures.new_key(sites["a.key"])
    assert sites["a.key"].read_bytes() == before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('a = "abc"', "64 hexadecimal"),
        ('a = "' + "G" * 64 + '"', "64 hexadecimal"),
        ("a = []", "64 hexadecimal"),
        ("a = 1", "64 hexadecimal"),
        ("a", "not a file of keys"),
        ("a = " + "[" * 5000, "not a file of keys"),
        ("\ud800", "not a file of keys"),
    ],
)
def test_a_bad_file_of_keys_says_so(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "keys.toml").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(GCFCPError, match=words):
        signatures.load_known(tmp_path / "keys.toml")


@pytest.mark.parametrize("bad", [b"", b"GCFCP", b"x" * 200])
def test_a_bad_key_or_signature_says_so(sites: dict[str, Path], bad: bytes) -> None:
    sites["a.key"].write_bytes(bad)
    with pytest.raises(GCFCPError, match="not a private Ed25519 key"):
        signatures.sign(b"", sites["a.key"])
    known = signatures.load_known(sites["keys.toml"])
    with pytest.raises(GCFCPError, match="signature of the file"):
        signatures.verify(b"", bad, "a", known)


def test_the_command_line_refuses_what_is_not_signed(sites: dict[str, Path]) -> None:
    folder = sites["a.key"].parent
    runner = CliRunner()

    def run(*arguments: str) -> None:
        result = runner.invoke(cli.app, list(arguments), catch_exceptions=False)
        assert result.exit_code == 0, result.output

    both = [str(sites["a.gcfcp"]), str(sites["b.gcfcp"])]
    keys = ["--known-keys", str(sites["keys.toml"])]
    run("plan", *both, *keys)
    run("calibrate", *both, *keys, "-o", str(folder / "predictor.json"))
    summary("c").save(folder / "c.gcfcp")
    run("keygen", "-o", str(folder / "c.key"))
    run("sign", str(folder / "c.gcfcp"), "--key", str(folder / "c.key"))
    assert (folder / "c.gcfcp.sig").exists()
    with pytest.raises(GCFCPError, match="no key is known"):
        run("calibrate", *both, str(folder / "c.gcfcp"), *keys, "-o", str(folder / "p.json"))
    assert not (folder / "p.json").exists()
    run("calibrate", *both, str(folder / "c.gcfcp"), "-o", str(folder / "p.json"))


def test_without_the_package_one_line_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['cryptography'] = None\n"
        "from gcfcp.summary import signatures\n"
        "try: signatures.new_key('/nonexistent/x')\n"
        "except ValueError as e: print(e)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "install gcfcp with its extra sign" in out.stdout


# --- Audits, two names, and bad files among many --------------------------------------------------


def test_one_key_under_two_names_is_refused(sites: dict[str, Path], tmp_path: Path) -> None:
    """On 0.1.0 the holder of one key could be two clients."""
    key = signatures.public_key(sites["a.key"])
    (tmp_path / "two.toml").write_text(f'a = "{key}"\nsecond = ["{key}"]\n')
    with pytest.raises(GCFCPError, match=r"two\.toml has key .* two names, 'a' and 'second'"):
        signatures.load_known(tmp_path / "two.toml")
    (tmp_path / "twice.toml").write_text(f'a = ["{key}", "{key}"]\n')
    assert signatures.load_known(tmp_path / "twice.toml") == {"a": (key, key)}


def invoke(*arguments: object) -> tuple[int, str]:
    """The exit code and all output of a command; an error is code 1."""
    try:
        result = CliRunner().invoke(cli.app, [str(a) for a in arguments], catch_exceptions=False)
    except GCFCPError as error:
        return 1, str(error)
    return result.exit_code, result.output


def test_signatures_of_audits_and_summaries_are_verified(
    sites: dict[str, Path], tmp_path: Path
) -> None:
    keys = ["--known-keys", sites["keys.toml"]]
    audits = []
    for name in "ab":
        path = tmp_path / f"{name}.audit"
        covered = np.random.default_rng(0).random(80) < 0.9
        gcfcp.audit(
            covered, np.ones((80, 1), bool), groups=gcfcp.Groups(["all"]), client=name, alpha=0.1
        ).save(path)
        assert invoke("sign", path, "--key", sites[f"{name}.key"])[0] == 0
        audits.append(path)
    code, text = invoke("verify", sites["a.gcfcp"], *audits, *keys)
    assert code == 0
    assert "a.gcfcp: summary of 50 records, signed by a" in text
    assert "b.audit: audit of 80 records, signed by b" in text
    assert invoke("verify", *audits, *keys, "--json")[0] == 0
    assert invoke("audit-merge", *audits, *keys)[0] == 0
    # An audit of b that a signed is refused everywhere.
    (tmp_path / "b.audit.sig").unlink()
    assert invoke("sign", audits[1], "--key", sites["a.key"])[0] == 0
    for command in ("verify", "audit-merge"):
        code, text = invoke(command, *audits, *keys)
        assert code == 1
        assert "not a known key of 'b'" in text
    assert invoke("audit-merge", *audits)[0] == 0  # Nobody asked for signatures.


def test_bad_files_are_left_out_if_the_user_says_so(sites: dict[str, Path], tmp_path: Path) -> None:
    """A site that takes another's name stops nobody but the two of them."""
    keys = ["--known-keys", sites["keys.toml"]]
    both, out = [sites["a.gcfcp"], sites["b.gcfcp"]], tmp_path / "p.json"
    summary("c").save(tmp_path / "c.gcfcp")  # Nobody knows its key.
    (tmp_path / "d.gcfcp").write_bytes(b"not a summary")
    bad = [tmp_path / "c.gcfcp", tmp_path / "d.gcfcp"]
    assert invoke("calibrate", *both, *bad, *keys, "-o", out)[0] == 1
    assert not out.exists()
    code, text = invoke("calibrate", *both, *bad, *keys, "-o", out, "--skip-bad")
    assert code == 3
    assert "c.gcfcp is not signed" in text
    assert "d.gcfcp" in text
    made = gcfcp.Predictor.load(out)
    assert [c["client"] for c in made.provenance["clients"]] == ["a", "b"]
    assert made.provenance["left_out"] == ["c.gcfcp", "d.gcfcp"]
    # Without keys, a second summary under the name of a takes the place of neither.
    summary("a", seed=5).save(tmp_path / "false-a.gcfcp")
    summary("e").save(tmp_path / "e.gcfcp")
    given = [tmp_path / "false-a.gcfcp", *both, tmp_path / "e.gcfcp"]
    code, text = invoke("plan", *given, "--json")
    assert code == 1
    weights = ["--mixture", "a=0.5,b=0.25,e=0.25"]
    code, text = invoke("calibrate", *given, *weights, "-o", out, "--skip-bad", "--force")
    assert code == 3
    assert "false-a.gcfcp" in text
    made = gcfcp.Predictor.load(out)
    assert {c["client"]: c["share"] for c in made.provenance["clients"]} == {"b": 0.5, "e": 0.5}
    assert invoke("calibrate", *both, "-o", out, "--skip-bad", "--force")[0] == 0
    assert invoke("plan", *bad[1:], "--skip-bad")[0] == 1


def test_a_round_and_a_share_are_asked_for_on_the_command_line(tmp_path: Path) -> None:
    groups = gcfcp.Groups(["all"])
    rng = np.random.default_rng(0)
    for name, when in (("a", "2026Q4"), ("b", "2026Q4"), ("old", "2026Q3")):
        gcfcp.summarize(
            rng.random(100), np.ones((100, 1), bool), groups=groups, client=name, round=when
        ).save(tmp_path / f"{name}.gcfcp")
    files = [tmp_path / f"{name}.gcfcp" for name in ("a", "b", "old")]
    out = tmp_path / "p.json"
    code, text = invoke("calibrate", *files, "--round", "2026Q4", "-o", out)
    assert code == 1
    assert "old.gcfcp is a summary of round '2026Q3', not of round '2026Q4'" in text
    more = ["--round", "2026Q4", "--skip-bad", "-o", out]
    assert invoke("calibrate", *files, *more)[0] == 3
    assert gcfcp.Predictor.load(out).provenance["round"] == "2026Q4"
    code, text = invoke("calibrate", *files[:2], "--max-share", 0.4, "-o", out, "--force")
    assert code == 1
    assert "a has 50.0% of the weight of group 'all'" in text
    allowed = ["--max-share", 0.4, "--allow-share", "a", "--allow-share", "b"]
    assert invoke("calibrate", *files[:2], *allowed, "-o", out, "--force")[0] == 0
    assert invoke("calibrate", *files[:2], "--max-atoms", 1, "-o", out, "--force")[0] == 0
