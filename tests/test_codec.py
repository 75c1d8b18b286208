"""A container is checked before anything in it is believed, and files are written whole."""

import hashlib
import json
import os
import struct
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcfcp import codec
from gcfcp.errors import GCFCPError

HEADER = {"b": 1, "a": "é"}


def packed(header=HEADER, body=b"body"):
    return codec.pack(b"S", 1, header, body)


def sealed(data):
    return data + hashlib.sha256(data).digest()


def test_the_layout_is_the_documented_one():
    data = packed()
    text = '{"a":"é","b":1}'.encode()
    assert data[:12] == b"GCFCPS" + struct.pack("<HI", 1, len(text))
    assert data[12 : 12 + len(text)] == text
    assert data[12 + len(text) : -32] == b"body"
    assert data[-32:] == hashlib.sha256(data[:-32]).digest()
    header, body = codec.unpack(data, b"S", 1, "it")
    assert header == HEADER
    assert bytes(body) == b"body"


def test_the_order_of_keys_makes_no_difference():
    assert packed({"x": 1, "a": 2}) == packed({"a": 2, "x": 1})


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=30
)


@given(VALUES)
def test_json_is_what_python_writes_with_indents(value):
    expected = json.dumps(codec.plain(value), indent=1, ensure_ascii=False)
    assert codec.to_json(value) == expected


def test_nan_is_never_written():
    with pytest.raises(ValueError):
        packed({"x": float("nan")})


def test_every_truncation_and_every_flipped_bit_is_found():
    data = packed()
    for length in range(len(data)):
        with pytest.raises(GCFCPError, match=r"^it "):
            codec.unpack(data[:length], b"S", 1, "it")
    for place in range(len(data)):
        for bit in range(8):
            altered = bytearray(data)
            altered[place] ^= 1 << bit
            with pytest.raises(GCFCPError, match=r"^it "):
                codec.unpack(bytes(altered), b"S", 1, "it")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "does not begin"),
        (b"PK\x03\x04" + bytes(100), "does not begin"),
        (codec.pack(b"A", 1, {}, b""), "is an audit, but a summary"),
        (codec.pack(b"S", 2, {}, b""), "version 2.*upgrade"),
        (codec.pack(b"S", 0, {}, b""), "version 0.*make the file again"),
        (packed() + b"x", "checksum"),
        (sealed(b"GCFCPS" + struct.pack("<HI", 1, 2**32 - 1) + bytes(40)), "longer than the file"),
        (sealed(b"GCFCPS" + struct.pack("<HI", 1, 4) + b"\xff\xfe{}"), "not JSON"),
        (sealed(b"GCFCPS" + struct.pack("<HI", 1, 2) + b"[]"), "not a JSON object"),
        (sealed(b"GCFCPS" + struct.pack("<HI", 1, 10**5) + b"[" * 10**5), "not JSON"),
        (sealed(b"GCFCPS" + struct.pack("<HI", 1, 5007) + b'{"a":' + b"9" * 5001 + b"}"), "JSON"),
        ("text", "str, not as bytes"),
        (None, "NoneType, not as bytes"),
    ],
)
def test_what_is_no_container_is_refused(data, words):
    with pytest.raises(GCFCPError, match=words) as error:
        codec.unpack(data, b"S", 1, "it")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_kind_of_bytes_is_read(kind):
    assert codec.unpack(kind(packed()), b"S", 1, "it")[0] == HEADER


def test_a_file_is_replaced_whole_and_nothing_is_left_behind(tmp_path, monkeypatch):
    path = tmp_path / "file"
    codec.write(path, b"old")
    assert codec.read(path) == b"old"

    def crash(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", crash)
        with pytest.raises(GCFCPError, match=r"cannot write .*file: No space left"):
            codec.write(path, b"new")
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", crash)
        with pytest.raises(GCFCPError, match="No space left"):
            codec.write(path, b"new")
    assert codec.read(path) == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    codec.write(path, b"old")

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        codec.write(path, b"new")
    assert codec.read(path) == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_gets_the_rights_that_the_umask_leaves(tmp_path):
    codec.write(tmp_path / "file", b"x")
    mask = os.umask(0)
    os.umask(mask)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~mask


def test_writers_at_once_never_mix(tmp_path):
    path = tmp_path / "file"
    contents = [bytes([i]) * 100_000 for i in range(8)]
    threads = [threading.Thread(target=codec.write, args=(path, c)) for c in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codec.read(path) in contents
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("path", ["missing/file", "", "nul\0byte", "x" * 300])
def test_paths_that_cannot_be_are_one_line(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GCFCPError, match="cannot write") as error:
        codec.write(path, b"x")
    assert "\n" not in str(error.value)
    with pytest.raises(GCFCPError, match="cannot read"):
        codec.read(path)
    assert not os.listdir(tmp_path)


def test_a_directory_is_neither_read_nor_replaced(tmp_path):
    with pytest.raises(GCFCPError, match="cannot read"):
        codec.read(tmp_path)
    (tmp_path / "sub").mkdir()
    with pytest.raises(GCFCPError, match="cannot write"):
        codec.write(tmp_path / "sub", b"x")
    assert os.listdir(tmp_path) == ["sub"]


def test_what_is_wrong_is_said_in_one_line():
    def complaint(error):
        return codec.explain(error)

    assert complaint(KeyError("n")) == "the field 'n' is missing"
    assert complaint(GCFCPError("plain")) == "plain"
    assert complaint(TypeError("two\nlines")) == "a field is wrong (two lines)"
    assert len(complaint(ValueError("x" * 1000))) <= 500
    assert issubclass(GCFCPError, codec.MALFORMED)
    assert json.loads(packed()[12:-36]) == HEADER


@pytest.mark.parametrize("text", ['"\\ud800"', '{"\\udfff": 1}', '["a", "\\uDC00x"]'])
def test_half_of_a_surrogate_pair_is_no_text(text):
    """It could never be written again."""
    with pytest.raises(ValueError):
        codec.from_json(text)
    assert codec.from_json('"\\ud83d\\ude00"') == "\U0001f600"


@pytest.mark.parametrize("magic", [b"AAAAA", b"gcfcp", b"GCFCQ"])
def test_another_beginning_is_another_file(magic):
    data = magic + codec.pack(b"S", 1, {}, b"")[5:]
    with pytest.raises(GCFCPError, match="is not a gcfcp file"):
        codec.unpack(data, b"S", 1, "it")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b'{\n "format": "gcfcp predictor",\n "version": 3', "a predictor"),
        (b'{"format":"gcfcp shape","version":1', "a shape"),
        (b'{"format": "gcfcp grid"', "a grid"),
        (b'{"format": "gcfcp round"', "the record of a round"),
    ],
)
def test_another_file_of_gcfcp_is_called_what_it_is(text, what):
    for data in (text, text + bytes(100)):
        with pytest.raises(GCFCPError, match=f"^it is {what}, but a summary is needed here$"):
            codec.unpack(data, b"S", 1, "it")
    with pytest.raises(GCFCPError, match="it is a summary, but a predictor is needed here"):
        codec.refuse_other(codec.pack(b"S", 1, {}, b""), "it", "a predictor")
    codec.refuse_other(text.decode(), "it", what)
    codec.refuse_other('{"format": "\ud800"}', "it", what)
    codec.refuse_other("", "it", what)
