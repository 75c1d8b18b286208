"""Mutations that know what the inputs are made of: JSON fields, numbers, SQL words, cells.

Bytes that are flipped at random hardly ever leave JSON valid, so the parser would refuse most
inputs of a plain fuzzer. `mutate` changes one or a few places of the structure instead, and only
sometimes bytes. The same state of the generator always gives the same mutation.
"""

from __future__ import annotations

import json
import random
import re
import struct
from collections.abc import Callable
from typing import Any

from fuzz import targets

NUMBERS: list[Any] = [
    0, 1, -1, 2, 3, 8, 255, 2**31, 2**32, 2**53 - 1, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63),
    10**30, 10**400, 0.0, -0.0, 0.5, 1e308, -1e308, 1.7976931348623157e308, 5e-324, 1e-300, 0.1,
    float("inf"), float("-inf"), float("nan"), True, False,
]  # fmt: skip
TEXTS: list[Any] = [
    "", " ", "a", "a" * 201, "../../etc/passwd", "<script>alert(1)</script>", "[red]x[/red]",
    "\x1b[31m", "\x00", "\u202e", "\ud800", "inf", "-inf", "nan", "1/10", "0/0", "1e999",
    "{{7*7}}", "%s%n", "TRUE", "all", "mean", "upper", "thr", "aps", "raps", "residual", "cqr",
    "simultaneous", "max", "first", "constant", "é", "𝟙", "\u2028", "'; DROP TABLE x; --",
]  # fmt: skip
VALUES: list[Any] = [None, [], {}, [[]], [None], [0] * 50, {"a": {"b": {}}}, [[["a"]]]]
DOUBLES = [
    0.0, -0.0, 1.0, -1.0, 0.1, 0.3, 1e308, -1e308, 1.7976931348623157e308, 5e-324, -5e-324,
    1e-308, float("inf"), float("-inf"), float("nan"), 2.0**53, 1.0000000000000002,
]  # fmt: skip
_SQL = """
    TRUE FALSE NULL and or not in between like ilike is case when then else end cast abs round
    length substr concat coalesce nullif if pow sqrt ln date extract ( ) ( ) , . ; ' " ` -- /* */
    + - * / % = <> < <= > >= :: || [ ] { } 0 1 65 1e308 -1 99999999999999999999 '%' 'F' '(' age sex
    x b score "age" 'a''b' interval timestamp array struct unnest exists any all some collate $1 @x
    regexp rlike strptime position left right replace reverse upper lower trim decimal varchar int
"""
WORDS = _SQL.split()
CELLS = [
    "", "NA", "null", "nan", "NaN", "inf", "-inf", "1e999", "-1e308", "0", "1", "0.5", "65", "F",
    '"', '""', '"a,b"', "\n", "\r\n", ",", ";", "\t", "true", "1,000", "0x10", "2**53", "é", "\x00",
    "y", "score", "prediction", "lo", "hi", "proba_0", "proba_1", "proba_a", "proba_", "score_0",
    "age", "sex", "proba_²", "proba_01", "=1+1", "2020-01-01", "9" * 400,
]  # fmt: skip

Mutation = Callable[[bytes, random.Random], bytes]


def mutate(name: str, data: bytes, chance: random.Random) -> bytes:
    """Another input for this target, with one to four changes of `data`."""
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        structured = STRUCTURED[name] if chance.random() < 0.8 else flipped
        data = structured(data, chance)
    return data


def flipped(data: bytes, chance: random.Random) -> bytes:
    """The data with some bytes changed, removed, repeated or reversed."""
    if not data:
        return bytes(chance.randrange(256) for _ in range(8))
    i = chance.randrange(len(data))
    j = min(len(data), i + chance.choice((1, 1, 2, 4, 8, 64)))
    piece = data[i:j]
    choice = chance.randrange(5)
    if choice == 0:
        return data[:i] + bytes(b ^ (1 << chance.randrange(8)) for b in piece) + data[j:]
    if choice == 1:
        return data[:i] + data[j:]
    if choice == 2:
        return data[:j] + piece * chance.choice((1, 2, 50)) + data[j:]
    if choice == 3:
        return data[:i] + bytes(chance.randrange(256) for _ in piece) + data[j:]
    return data[:i] if chance.random() < 0.2 else data[:i] + piece[::-1] + data[j:]


def in_json(data: bytes, chance: random.Random) -> bytes:
    """The JSON text with one value replaced, removed, repeated, shuffled or put elsewhere."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return flipped(data, chance)
    if chance.random() < 0.01:
        depth = chance.choice((10, 500, 5000, 100_000))
        return b'{"a":' * depth + b"1" + b"}" * depth
    holder, key = _place(value, chance)
    if holder is None:
        return flipped(data, chance)
    choice = chance.randrange(7)
    if choice < 3:
        holder[key] = _other(holder[key], chance)
    elif choice == 3:
        del holder[key]
    elif choice == 4 and isinstance(holder, list):
        holder.insert(key, holder[key])
    elif choice == 5 and isinstance(holder, list):
        chance.shuffle(holder)
    elif choice == 6 and isinstance(holder[key], list):
        holder[key] = holder[key] * chance.choice((0, 2, 3, 40))
    else:
        other, there = _place(value, chance)
        holder[key] = other[there] if other is not None and other[there] is not value else 1
    try:
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")[: 2**20]
    except (ValueError, RecursionError):
        return data


def _place(value: Any, chance: random.Random) -> tuple[Any, Any]:
    """A random place in the value: an object or a list, and a key or an index of it."""
    holder, key = None, None
    while isinstance(value, dict | list) and value:
        holder = value
        key = (
            chance.choice(list(value)) if isinstance(value, dict) else chance.randrange(len(value))
        )
        if chance.random() < 0.15:
            break
        value = value[key]
    return holder, key


def _other(value: Any, chance: random.Random) -> Any:
    """Another value in the place of this one, mostly of the same type."""
    if isinstance(value, int | float) and not isinstance(value, bool) and chance.random() < 0.7:
        near = [value + 1, value - 1, -value, value * 2, value // 3 if abs(value) < 1e300 else 0]
        return chance.choice(near + NUMBERS)
    if isinstance(value, str) and chance.random() < 0.7:
        return chance.choice([*TEXTS, value + " ", value[:-1], value * 2])
    return chance.choice(NUMBERS + TEXTS + VALUES)


def in_container(data: bytes, chance: random.Random) -> bytes:
    """The input with a field of the header, a number of the body, or the flags changed."""
    flags, header, body = targets.split(data)
    choice = chance.random()
    if choice < 0.1:
        return targets.join(chance.randrange(256), header, body)
    if choice < 0.6 or not body:
        return targets.join(flags, in_json(header, chance).replace(b"\xff", b""), body)
    if choice < 0.8 and len(body) >= 8:  # The representatives are at the end of the body.
        at = len(body) - 8 * chance.randrange(1, 1 + len(body) // 8)
        number = struct.pack("<d", chance.choice(DOUBLES))
        return targets.join(flags, header, body[:at] + number + body[at + 8 :])
    if choice < 0.9:
        at = chance.randrange(len(body))
        number = bytes([chance.choice((0, 1, 2, 127, 128, 255))])
        return targets.join(flags, header, body[:at] + number + body[at + 1 :])
    return targets.join(flags, header, flipped(body, chance))


def in_toml(data: bytes, chance: random.Random) -> bytes:
    """The file with a word put into a condition or a line repeated, or a deeply nested one."""
    choice = chance.random()
    if choice < 0.01:
        bracket = chance.choice((b"[", b"{a=", b"a."))
        return b"a = " + bracket * chance.choice((10, 400, 2000))
    if choice < 0.02:
        mark = chance.choice((b"(", b"not ", b"-", b"case when "))
        return b'a = "' + mark * chance.choice((10, 100, 900)) + b'age > 1"'
    lines = data.split(b"\n")
    i = chance.randrange(len(lines))
    if choice < 0.5:
        made = nested_condition(chance) if choice < 0.2 else condition(chance)
        name = f"g{chance.randrange(100)}"
        return f"{name} = {json.dumps(made)}\n".encode()
    choice = 2 * choice - 1
    if choice < 0.15:
        lines.insert(i, chance.choice(lines))
    elif choice < 0.2:
        lines[i] = lines[i].replace(b"=", chance.choice((b".b =", b"=", b"= 1 #")), 1)
    else:
        words = lines[i].split(b" ")
        j = chance.randrange(len(words))
        word = chance.choice(WORDS).encode()
        if chance.random() < 0.5:
            words[j] = word
        else:
            words.insert(j, word)
        lines[i] = b" ".join(words)
    return b"\n".join(lines)


# Calls of allowed functions, with a gap for each operand.
def _listed(calls: str) -> list[str]:
    """The calls in a text, between blanks; a dot stands for a blank inside of a call."""
    return [call.replace("·", " ") for call in calls.split()]


_TEXT_CALLS = _listed("""
    replace({t},'a','aaaaaaaaaa') replace({t},'','b') concat({t},{t}) concat_ws('--',{t},{t},{n})
    ({t}||{t}) ({t}+{t}) lower({t}) upper({t}) initcap({t}) reverse({t}) trim({t}) ltrim({t},'a')
    left({t},{n}) right({t},{n}) right({t},2) substr({t},{n},{n}) substring({t},2,3) nullif({t},{t})
    coalesce({t},{t}) if({b},{t},{t}) cast({n}·as·varchar) {t}::varchar greatest({t},{t})
    case·{t}·when·{t}·then·{t}·when·{t}·then·{t}·end
""")
_NUMBER_CALLS = _listed("""
    abs({n}) ceil({n}) floor({n}) round({n},3) sign({n}) sqrt({n}) cbrt({n}) exp({n}) ln({n})
    log({n},{n}) log1p({n}) pow({n},{n}) mod({n},{n}) div({n},{n}) atan2({n},{n}) degrees({n}) -{n}
    ({n}+{n}) ({n}-{n}) ({n}*{n}) ({n}/{n}) ({n}%{n}) ({n}//{n}) ({n}&1) greatest({n},{n}) pi()
    least({n},{n}) coalesce({n},{n}) nullif({n},{n}) length({t}) bit_length({t}) octet_length({t})
    strpos({t},{t}) cast({n}·as·decimal({d},{d})) cast({t}·as·{k})
    try_cast({t}·as·{k}) cast({n}·as·{k}) {n}::{k} date_part('dow',{t})
    extract(epoch·from·date({t})) date_part('year',strptime({t},'%Y-%m-%d'))
    case·when·{b}·then·{n}·else·{n}·end if({b},{n},{n})
""")
_TRUTH_CALLS = _listed("""
    ({n}>{n}) ({n}={n}) ({t}={t}) ({t}<{t}) ({b}·and·{b}) ({b}·or·{b}) not·{b}
    ({n}·between·{n}·and·{n}) ({t}·in·('F',{t})) ({n}·in·(1,{n},{n}))
    ({n}·not·in·(1,2,65)) ({t}·like·'%F_') ({t}·ilike·'f%')
    ({t}·rlike·'{r}') regexp_like({t},'{r}') ({t}~'{r}') starts_with({t},{t})
    ends_with({t},{t}) ({n}·is·null) ({b}·is·not·distinct·from·{b})
    case·{n}·when·1·then·{b}·when·{n}·then·{b}·end
    (date({t})>date({t},'%d.%m.%Y')) (strptime({t},'%Y')·is·null)
""")
_ENDS = {
    "t": ("sex", "'F'", "''", "'a'"),
    "n": ("age", "x", "score", "1", "-1", "1e308", "0", "99999999999"),
    "b": ("b", "TRUE", "FALSE", "NULL"),
    "d": ("0", "1", "5", "38", "39", "999"),
    "k": ("int", "bigint", "float", "date", "time", "timestamp", "boolean", "decimal(9,2)", "blob"),
    "r": ("a{1000}", "(a{100}){100}", "[a-z]+", "(", "\\w{50}", "^F|M$", "\\p{Greek}{3}"),
}
_CALLS = {"t": _TEXT_CALLS, "n": _NUMBER_CALLS, "b": _TRUTH_CALLS}
_GAP = re.compile(r"\{([tnbdkr])\}")


def condition(chance: random.Random, kind: str = "b", depth: int = 4) -> str:
    """A random condition of the allowed functions: "b" is true or false, "n" a number, "t" text."""
    if kind not in _CALLS or depth == 0 or (depth < 4 and chance.random() < 0.25):
        return chance.choice(_ENDS[kind])
    call = chance.choice(_CALLS[kind])
    return _GAP.sub(lambda gap: condition(chance, gap.group(1), depth - 1), call)


def nested_condition(chance: random.Random) -> str:
    """A condition in which one call stands inside of itself many times, as in an attack."""
    kind = chance.choice("tnb")
    call = chance.choice(_CALLS[kind])
    text = chance.choice(_ENDS[kind])
    place = chance.choice(_GAP.findall(call) or [kind])
    for _ in range(chance.choice((2, 5, 10, 20, 40))):
        if place != kind:
            break
        once = call.replace(f"{{{kind}}}", "\0", 1)
        filled = _GAP.sub(lambda gap: chance.choice(_ENDS[gap.group(1)]), once)
        text = filled.replace("\0", text)
    return text if kind == "b" else f"{text} = {chance.choice(_ENDS[kind])}"


def in_table(data: bytes, chance: random.Random) -> bytes:
    """The CSV file with a cell or a column name changed, or a line repeated or removed."""
    lines = data.split(b"\n")
    i = chance.randrange(len(lines))
    choice = chance.random()
    if choice < 0.1:
        lines[i:i] = [chance.choice(lines)] * chance.choice((1, 1, 30))
    elif choice < 0.15:
        del lines[i]
    else:
        cells = lines[0 if choice > 0.85 else i].split(b",")
        j = chance.randrange(len(cells))
        cells[j] = chance.choice(CELLS).encode()
        lines[0 if choice > 0.85 else i] = b",".join(cells)
    return b"\n".join(lines)


STRUCTURED: dict[str, Mutation] = {
    "raw": flipped,
    "summary": in_container,
    "audit": in_container,
    "predictor": in_json,
    "shape": in_json,
    "grid": in_json,
    "groups": in_toml,
    "table": in_table,
    "sums": in_container,
}
