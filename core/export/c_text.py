"""Python values as C text. The only way a string of a model may reach generated source is `c_string`."""

import keyword
import math
import re

_RESERVED = (
    "alignas alignof and asm auto bool break case catch char class concept const constexpr continue "
    "decltype default delete do double else enum explicit export extern false float for friend goto if "
    "inline int long mutable namespace new noexcept not nullptr operator or private protected public "
    "register requires restrict return short signed sizeof static struct switch template this throw true "
    "try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor main std "
    "test "
)
_WORDS = frozenset(_RESERVED.split())
_NAME_LENGTH = 64


def c_float(value: float) -> str:
    """A float literal that reads back as the nearest float32."""
    if math.isnan(value):
        return "NAN"
    if math.isinf(value) or abs(value) > 3.4028234663852886e38:
        return "-INFINITY" if value < 0 else "INFINITY"
    text = format(value, ".9g")
    return (text if any(c in text for c in ".e") else text + ".0") + "f"


def c_int(value: int) -> str:
    """A 64-bit integer literal."""
    return "(-9223372036854775807LL - 1)" if value == -(2**63) else f"{value}LL"


def c_string(text: str) -> str:
    """A C and C++ string literal of the text in UTF-8: every byte but letters, digits and a few marks as \\ooo.

    Three octal digits always end an escape, and neither quotes, backslashes, line ends nor question marks (trigraphs)
    survive unescaped, so nothing in `text` can end the literal.
    """
    plain = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.,:;/ ()[]{}+*=<>!@#$^&|~")
    encoded = text.encode("utf-8", "backslashreplace")
    return '"' + "".join(chr(b) if b in plain else f"\\{b:03o}" for b in encoded) + '"'


def library_name(text: str) -> str:
    """A name for the library, its files and its C functions: lower-case letters, digits, underscores; made of `text`.

    Never a keyword of C, C++ or Python, never empty, at most 64 characters.
    """
    name = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:_NAME_LENGTH].strip("_")
    if not name or not name[0].isalpha() or name in _WORDS or keyword.iskeyword(name):
        name = f"model_{name}".rstrip("_")
    return name
