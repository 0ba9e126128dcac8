"""Colours the words of CUDA C++, PTX and machine code, a line at a time."""

import re

from PySide6.QtGui import QColor, QSyntaxHighlighter, QTextCharFormat, QTextDocument

from app.listing import Form
from app.theme import Theme

_CUDA_WORDS = (
    "alignas|auto|bool|break|case|char|class|const|constexpr|continue|decltype|default|do|double|"
    "else|enum|explicit|extern|false|float|for|if|inline|int|long|namespace|nullptr|operator|private|"
    "public|return|short|signed|sizeof|static|static_assert|struct|switch|template|this|true|typedef|"
    "typename|union|unsigned|using|void|volatile|while|__global__|__device__|__host__|__shared__|"
    "__restrict__|__launch_bounds__"
)
# One expression a language, so that a line is read once: what matches first, wins. Group -> theme token.
RULES = {
    Form.CUDA: re.compile(
        r"(?P<comment>//.*$)|(?P<directive>^\s*#\s*\w+)|(?P<text>\"(?:[^\"\\]|\\.)*\"|<[\w./]+\.h(?:pp)?>)"
        rf"|(?P<word>\b(?:{_CUDA_WORDS})\b)|(?P<space>\b(?:cutlass|cute|bolt)\b)|(?P<number>\b\d[\w.]*\b)"
    ),
    Form.PTX: re.compile(
        r"(?P<comment>//.*$)|(?P<directive>^\s*\.\w+)|(?P<space>\$\w+:?|^\s*\w+:$)"
        r"|(?P<word>^\s*(?:@!?%p\d+\s+)?[a-z]\w*(?:\.[\w:]+)*)|(?P<register>%\w+(?:\.[xyz])?)"
        r"|(?P<number>\b(?:0[xfFdD][0-9a-fA-F]+|\d+)\b)"
    ),
    Form.SASS: re.compile(
        r"(?P<comment>//.*$|/\*[0-9a-f]+\*/)|(?P<tensor>\b\w*MMA(?:\.\w+)*)"
        r"|(?P<memory>\b(?:UTMA\w+|UBLK\w+|LDG\w*|STG|LDS\w*|STS\w*|LDL|STL|ATOM\w*|RED)(?:\.\w+)*)"
        r"|(?P<register>\b(?:U?R\d+|U?P\d|URZ|RZ|U?PT|SR_[\w.]+)\b)|(?P<number>-?\b0x[0-9a-f]+\b)"
        r"|(?P<word>\b[A-Z][A-Z0-9]+(?:\.[\w]+)*)"
    ),
}
TOKENS = {
    "comment": "faint", "directive": "kind.pointwise", "text": "op.activation", "word": "op.gemm", "space": "op.pool",
    "number": "op.arithmetic", "register": "op.pool", "tensor": "op.activation", "memory": "op.conv",
}  # fmt: skip


class Highlighter(QSyntaxHighlighter):
    def __init__(self, document: QTextDocument, theme: Theme) -> None:
        super().__init__(document)
        self.form = Form.CUDA
        self.set_theme(theme)

    def set_theme(self, theme: Theme) -> None:
        self.formats = {group: _format(theme[token]) for group, token in TOKENS.items()}
        self.rehighlight()

    def highlightBlock(self, text: str) -> None:
        for match in RULES[self.form].finditer(text):
            if match.lastgroup is not None:
                self.setFormat(match.start(), match.end() - match.start(), self.formats[match.lastgroup])


def _format(color: QColor) -> QTextCharFormat:
    made = QTextCharFormat()
    made.setForeground(color)
    return made
