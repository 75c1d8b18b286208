"""What a condition may cost: bounds that follow from its tokens, before polars sees it.

A condition may come from a stranger's file, and some hundred bytes of SQL can fill any memory.
Three things grow. Each is bounded here, by a number that is never too small:

- The size of the expression. polars writes `x between 1 and 2` as `x >= 1 and x <= 2`, so x stands
  there twice, and nested twenty times it stands there a million times. `size` counts the words and
  operators with every copy that polars makes.
- The length of texts. `replace(x, 'a', 'aaaaaaaaaa')` makes a text ten times as long, and nested
  six times a million times as long. `growth` bounds all texts that the condition makes of one row:
  so many times the longest text of the row, and so many characters from quotes besides.
- The size of patterns. The pattern `\\w{90}` is 90 copies of a class of some 700 ranges, and takes
  40 ms to compile. `_pattern_size` counts the characters of a pattern with every repetition, and a
  class as several. All patterns of a condition share one limit, because a hundred of them take a
  hundred times as long. To look for a pattern in a text takes at most about 5 ns for each character
  of the text and each unit of this size.

Only BETWEEN, IN, CASE with an operand, and the functions in `_COPIES` copy an operand; this was
found by trying every allowed function and operator with polars 2.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

MAX_DEPTH = 100
"""How deep parentheses and CASE may be nested. polars itself gives up a little earlier."""
MAX_SIZE = 1_000
"""How many words and operators an expression may have, with all copies that polars makes."""
MAX_TIMES = 100
"""How many times longer than the longest text of a row all texts made of this row may be."""
MAX_QUOTED = 2_000
"""How many characters from quotes the texts that are made of one row may contain."""
MAX_PATTERNS = 4_000
"""The largest size of all patterns of a condition together: their characters, with repetitions."""
MAX_DIGITS = 38
"""The most digits of a decimal number in polars."""

# How often an argument of these functions can stand in the expression that polars makes of a call.
_COPIES = {"nullif": 2, "extract": 3, "date_part": 3}
_COPIES |= dict.fromkeys(("left", "right", "substr", "substring"), 3)
# BETWEEN and IN bind more tightly than these words. XOR is not one of them.
_CONNECTIVES = frozenset(("and", "or", "when", "then", "else"))
_CONNECTIVE_SIZE = 3  # polars takes much longer for a long chain of these than for other operators.
# Words that stand beside operands and before parentheses without being a function.
_OTHER_WORDS = "is in between like ilike rlike regexp from for as"
_NO_OPERANDS = frozenset(_OTHER_WORDS.split())
_TRUTH = frozenset(("not", "null", "true", "false"))
_CONSTANT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_PATTERN_WORDS = frozenset(("rlike", "regexp"))
_BYTES = frozenset(("blob", "bytea", "bytes", "binary", "varbinary"))
# The parts of a pattern: a repetition such as {1,10}, an escaped character, the beginning of a
# group with its flags, and any other character.
_PART = re.compile(
    r"""\{(?P<times>[\s\d,]*)\}|(?P<escaped>\\[pP]\{[^}]*\}|\\.)"""
    r"""|(?P<open>\((?:\?(?P<flags>[A-Za-z-]+))?)|(?P<other>.)""",
    re.DOTALL,
)
# How many characters a class counts as. To compile \w takes about 0.4 ms, and a character 0.01 ms.
_CLASS_SIZE = dict.fromkeys("wWpP", 10) | dict.fromkeys("dDsS", 3)


@dataclass(frozen=True)
class Node:
    """A token, or what stands between two parentheses or between CASE and END."""

    kind: str  # The kind of token; "call" for parentheses and "case" for CASE.
    text: str  # The token; for parentheses the word before them, or "".
    inside: list[Node] = field(default_factory=list)


class TooCostly(Exception):  # noqa: N818 (it is a verdict, and never leaves `problem_of`)
    """Why a condition is refused, as part of a sentence."""


def refuse_costly(tokens: list[tuple[str, str]]) -> None:
    """Raise TooCostly if the condition could take much memory or time, or make polars panic.

    tokens: The kind and the text of each token that is not blank. Parentheses are balanced.
    """
    nodes = _nested(tokens)
    _refuse_patterns([pattern for level in _levels(nodes) for pattern in _patterns(level)])
    for level in _levels(nodes):
        _refuse_wide_decimals(level)
        _refuse_bytes(level)
    size = _size(nodes)
    if size > MAX_SIZE:
        raise TooCostly(
            f"condition becomes {size:,} words and operators with the copies that BETWEEN, IN, "
            f"CASE and some functions make, and at most {MAX_SIZE:,} are allowed: make it shorter, "
            "nest these less, or list constants with IN"
        )
    made: list[tuple[int, int]] = []
    _growth(nodes, made)
    times, quoted = sum(t for t, _ in made), sum(q for _, q in made)
    if times > MAX_TIMES or quoted > MAX_QUOTED:
        raise TooCostly(
            f"condition can make texts of {times:,} times the longest text of a row and "
            f"{quoted:,} characters from quotes, and at most {MAX_TIMES} times and {MAX_QUOTED:,} "
            "characters are allowed: use fewer or shorter texts in concat, || and replace"
        )


def _nested(tokens: list[tuple[str, str]]) -> list[Node]:
    """The tokens as a tree, in which parentheses and CASE ... END hold what is between them."""
    root = Node("call", "")
    open_nodes = [root]
    for kind, text in tokens:
        here = open_nodes[-1].inside
        word = text.lower() if kind == "word" else ""
        if kind == "open" or word == "case":
            before = _word(here[-1]) if kind == "open" and here else ""
            if before and before not in _CONNECTIVES | _NO_OPERANDS | _TRUTH:
                here.pop()  # The name of the function belongs to its parentheses.
            node = Node("call" if kind == "open" else "case", before)
            here.append(node)
            open_nodes.append(node)
            if len(open_nodes) > MAX_DEPTH:
                raise TooCostly(
                    f"condition is nested more than {MAX_DEPTH} levels deep: flatten it"
                )
        elif (text == ")" and kind == "symbol") or word == "end":
            if len(open_nodes) == 1:
                raise TooCostly(f"condition has one {text} too many: remove it")
            closed = open_nodes.pop()
            if (closed.kind == "case") != (word == "end"):
                raise TooCostly("condition has a CASE without its END: close it")
        else:
            here.append(Node(kind, text))
    if len(open_nodes) > 1:
        raise TooCostly("condition has a CASE without its END: close it")
    return root.inside


def _levels(nodes: list[Node]) -> Iterator[list[Node]]:
    """What stands between each pair of parentheses, the outermost first."""
    yield nodes
    for node in nodes:
        if node.inside:
            yield from _levels(node.inside)


def _word(node: Node) -> str:
    """The word of a token in small letters, and "" if it is no word."""
    return node.text.lower() if node.kind == "word" else ""


def _is_number(node: Node) -> bool:
    """Whether the token is a number; 1e308 counts as a word of the tokens."""
    return node.kind == "word" and node.text[0].isdigit()


def _split(nodes: list[Node], at: str = ",") -> list[list[Node]]:
    """The nodes between the symbols `at` of one level."""
    parts: list[list[Node]] = [[]]
    for node in nodes:
        if node.kind == "symbol" and node.text == at:
            parts.append([])
        else:
            parts[-1].append(node)
    return parts


# --- The size of the expression ------------------------------------------------------------------


def _size(nodes: list[Node]) -> int:
    """How many words and operators polars makes of one level, at most."""
    return sum(_size_of_operands(part) for part in _clauses(nodes))


def _clauses(nodes: list[Node]) -> Iterator[list[Node]]:
    """The parts of one level between AND, OR, commas and the words of CASE.

    The AND of a BETWEEN belongs to its part. BETWEEN and IN copy what is to their left, so a second
    one in the same part would copy the copies; it is refused unless parentheses show it.
    """
    part: list[Node] = []
    between = copied = False
    for node in nodes:
        word = _word(node)
        if word in ("between", "in"):
            if copied:
                raise TooCostly(
                    f"condition applies {word.upper()} to the result of another BETWEEN or IN: put "
                    "parentheses around each of them"
                )
            copied, between = True, word == "between"
        elif word == "and" and between:
            between = False
        elif word in _CONNECTIVES or (node.kind == "symbol" and node.text == ","):
            yield part
            part, between, copied = [], False, False
        part.append(node)
    yield part


def _size_of_operands(part: list[Node]) -> int:
    """The size of one part of a level, with what BETWEEN or IN copies of its left operand."""
    total = 0
    for place, node in enumerate(part):
        word = _word(node)
        if word == "between":
            total *= 2
        elif word == "in" and place + 1 < len(part):
            items = _split(part[place + 1].inside)
            if not all(_is_constant(item) for item in items):
                total = (total + _CONNECTIVE_SIZE + 1) * len(items)
        total += _size_of(node, place and _word(part[place - 1]) == "in")
    return total


def _is_constant(item: list[Node]) -> bool:
    """Whether an entry of a list is a number, a signed number or a text in quotes."""
    if len(item) == 1 and item[0].kind == "string":
        return True
    return bool(
        _CONSTANT.fullmatch("".join(node.text if not node.inside else "(" for node in item))
    )


def _size_of(node: Node, is_list: bool | int = False) -> int:
    """The size of one token or of one pair of parentheses."""
    if node.kind == "case":
        whens = sum(_word(inner) == "when" for inner in node.inside)
        has_operand = bool(node.inside) and _word(node.inside[0]) != "when"
        return (1 + _size(node.inside)) * (max(1, whens) if has_operand else 1)
    if node.kind == "call":
        if is_list and all(_is_constant(item) for item in _split(node.inside)):
            return 1
        return (1 + _size(node.inside)) * _COPIES.get(node.text, 1)
    if node.kind == "symbol" and node.text in ",.":
        return 0
    return _CONNECTIVE_SIZE if _word(node) in _CONNECTIVES else 1


# --- The length of texts -------------------------------------------------------------------------


def _growth(nodes: list[Node], made: list[tuple[int, int]], joins: bool = False) -> tuple[int, int]:
    """A bound on every text that one level gives: (times the longest text of the row, characters).

    made: The bound of each text that is longer than its inputs is added here.
    joins: Whether the function to which this level belongs joins its arguments.
    """
    parts: list[tuple[int, int]] = []
    times = quoted = 0
    joined, previous = False, ""
    for node in [*nodes, Node("symbol", ",")]:
        found = _growth_of(node, made)
        if found is not None:
            times, quoted = times + found[0], quoted + found[1]
        elif _ends_operand(node, previous):
            if joined:
                made.append((times, quoted))
            parts.append((times, quoted))
            times, quoted, joined = 0, 0, False
        else:
            joined |= node.text in "+|"
        previous = node.text
    if joins:
        return sum(t for t, _ in parts), sum(q for _, q in parts)
    return max(t for t, _ in parts), max(q for _, q in parts)


def _ends_operand(node: Node, previous: str) -> bool:
    """Whether nothing to the left of this word or symbol can be part of a text to its right.

    The other symbols join operands, or do not, as the types of columns decide.
    """
    if node.kind != "symbol":
        return True
    # The symbol > also stands in -> and ->>, which take a part of what is to their left.
    return node.text in ",=<!" or (node.text == ">" and previous not in ("-", ">"))


def _growth_of(node: Node, made: list[tuple[int, int]]) -> tuple[int, int] | None:
    """The bound for one operand, or None for what separates operands."""
    if node.kind == "symbol" or _word(node) in _CONNECTIVES | _NO_OPERANDS:
        return None
    if node.kind == "string" or _is_number(node) or _word(node) in _TRUTH:
        return 0, len(node.text)
    if node.kind == "case":
        return _growth(node.inside, made)
    if node.kind != "call":
        return 1, 0
    if node.text == "replace":
        return _growth_of_replace(node, made)
    if node.text not in ("concat", "concat_ws"):
        return _growth(node.inside, made)
    times, quoted = _growth(node.inside, made, joins=True)
    arguments = _split(node.inside)
    if node.text == "concat_ws" and arguments[0]:
        quoted += len(arguments[0][0].text) * len(arguments)  # The separator stands between all.
    made.append((times, quoted))
    return times, quoted


def _growth_of_replace(node: Node, made: list[tuple[int, int]]) -> tuple[int, int]:
    """The bound for replace(text, old, new), where every `old` may become `new`."""
    arguments = _split(node.inside)
    if len(arguments) != 3 or any(len(a) != 1 or a[0].kind != "string" for a in arguments[1:]):
        raise TooCostly(
            "condition calls replace() with other arguments than a text, the old piece and the new "
            "piece: write both pieces in quotes"
        )
    old, new = (_unquoted(a[0]) for a in arguments[1:])
    times, quoted = _growth(arguments[0], made)
    # An empty piece stands before each character and at the end.
    factor = max(1, -(-len(new) // len(old))) if old else 1 + len(new)
    found = times * factor, quoted * factor + (0 if old else len(new))
    if factor > 1:
        made.append(found)
    return found


def _unquoted(node: Node) -> str:
    """The text of a string without its quotation marks."""
    return node.text[1:-1].replace("''", "'")


# --- Patterns and types --------------------------------------------------------------------------


def _refuse_patterns(patterns: list[list[Node]]) -> None:
    """Raise TooCostly if a pattern is not one text in quotes, or all of them are too large."""
    total = 0
    for nodes in patterns:
        if len(nodes) != 1 or nodes[0].kind != "string":
            raise TooCostly("condition takes a pattern that is not in quotes: write it as '...'")
        total += _pattern_size(_unquoted(nodes[0]))
        if total > MAX_PATTERNS:
            raise TooCostly(
                f"condition has patterns of more than {MAX_PATTERNS:,} characters "
                f"({nodes[0].text:.60}), where repetitions are written out and a class such as "
                "\\w counts as ten: use fewer patterns, smaller numbers in braces, or [0-9A-Za-z_]"
            )


def _patterns(nodes: list[Node]) -> Iterator[list[Node]]:
    """Every pattern of one level."""
    for place, node in enumerate(nodes):
        if node.kind == "call" and node.text == "regexp_like":
            arguments = _split(node.inside)
            yield arguments[1] if len(arguments) > 1 else []
            for flags in arguments[2:]:
                if len(flags) != 1 or flags[0].kind != "string" or "x" in flags[0].text:
                    raise TooCostly(
                        "condition takes flags of a pattern that are not in quotes, or the flag x: "
                        "write flags such as 'i'"
                    )
        elif _word(node) in _PATTERN_WORDS or (node.kind == "symbol" and node.text == "~"):
            following = [n for n in nodes[place + 1 :] if n.kind != "symbol" or n.text not in "~*"]
            yield following[:1]


def _pattern_size(pattern: str) -> int:
    """How many characters a pattern has if all repetitions are written out, at most.

    What stands in brackets counts character by character, which is more than one class.
    """
    groups = [[0, 0]]  # For each open group: the size of its last part, and of all before that.
    brackets = 0  # So many brackets are open. In them parentheses and braces are characters.
    before = ""  # What stands before this part.
    for part in _PART.finditer(pattern):
        here, text, is_character = groups[-1], part.group(), brackets > 0
        if is_character:
            # A bracket that would close an empty class is a character of the class.
            brackets += (text == "[") - (text == "]" and before not in ("[", "[^"))
            here[0] += _size_of_character(text)
        elif part["times"] is not None:
            here[0] *= 1 + max(map(int, re.findall(r"\d+", part["times"])), default=0)
        elif text in "*+?":
            here[0] += 1  # A repetition of it repeats all of what is repeated.
        elif part["open"]:
            if "x" in (part["flags"] or ""):  # Blanks and comments may stand before repetitions.
                raise TooCostly("condition has a pattern with the flag x: leave the flag out")
            groups.append([len(text), 0])
        elif text == ")" and len(groups) > 1:
            inside = sum(groups.pop())
            groups[-1] = [inside + 1, sum(groups[-1])]
        else:
            brackets += text == "["
            here[:] = [_size_of_character(text), sum(here)]
        before = "[^" if (before, text) == ("[", "^") else text
    return sum(map(sum, groups))


def _size_of_character(text: str) -> int:
    """How many characters an escaped character or another part of a pattern counts as."""
    return _CLASS_SIZE.get(text[1:2], 1) if text[0] == "\\" else len(text)


def _refuse_wide_decimals(nodes: list[Node]) -> None:
    """Raise TooCostly if a decimal type has more digits than polars has, which makes it panic."""
    for node in nodes:
        if node.kind == "call" and node.text in ("decimal", "numeric", "dec"):
            digits = [a[0].text if len(a) == 1 else "" for a in _split(node.inside)]
            numbers = [int(d) for d in digits if d.isdecimal() and len(d) < 9]
            if len(numbers) != len(digits) or not _are_digits(*numbers):
                raise TooCostly(
                    f"condition uses {node.text}({', '.join(digits):.40}): give 1 to {MAX_DIGITS} "
                    "digits, and at most as many of them after the point"
                )


def _refuse_bytes(nodes: list[Node]) -> None:
    """Raise TooCostly if a value is cast to bytes, which makes some functions of polars panic."""
    for before, node in pairwise(nodes):
        is_type = _word(before) == "as" or (before.kind == "symbol" and before.text == ":")
        if is_type and node.text.lower() in _BYTES:
            raise TooCostly(f"condition casts to {node.text}: give another type, such as varchar")


def _are_digits(precision: int, scale: int = 0, *more: int) -> bool:
    """Whether a decimal type of polars can have these digits."""
    return not more and 1 <= precision <= MAX_DIGITS and scale <= precision
