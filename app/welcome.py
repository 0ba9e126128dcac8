"""The page of a window without a model: open, try a sample, go on with what was open last."""

from pathlib import Path

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QScrollArea,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from app.theme import Theme, icon
from core.importer.samples import sample_names

ABOUT = {
    "resnet18": "Residual network; H200 run to replay",
    "resnet50": "With bottlenecks; H200 run to replay",
    "vgg16": "Plain 3x3 convolutions, large classifier",
    "vgg19": "VGG with three more convolutions",
    "repvgg-a0": "Re-parameterised VGG, one branch",
    "repvgg-a0-aug": "RepVGG deepened with 1x1 convolutions",
    "repvgg-b0": "RepVGG, deeper and wider",
    "mobilenet-v2": "Depthwise convolutions, inverted residuals",
    "vit-b16": "Vision transformer, 16x16 patches",
    "bert-base": "Transformer encoder, 12 layers",
    "bert-base-128": "The same at sequence length 128",
    "gpt2": "Language model, prefill of 512 tokens",
    "mlp": "Three small layers: the quickest look",
    "dlrm": "Recommendation model: embeddings and MLPs",
}
WIDTH = 720


class Welcome(QWidget):
    """`open_wanted` asks for the file dialog, `chosen` carries a path or a sample's name."""

    open_wanted = Signal()
    chosen = Signal(str)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("welcome")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.theme = theme
        self.title = QLabel("Bolt Workbench")
        self.title.setObjectName("welcomeTitle")
        self.logo = QLabel()
        line = QLabel("See what is fused and why, measure it against cuBLASLt and cuDNN, export it as a CUDA library.")
        line.setObjectName("muted")
        line.setWordWrap(True)
        self.open = QPushButton("Open a model")
        self.open.setDefault(True)
        self.open.clicked.connect(self.open_wanted)
        hint = QLabel("or drop an ONNX model or a project here.  Ctrl+K finds every command.")
        hint.setObjectName("muted")
        hint.setWordWrap(True)
        head = QHBoxLayout()
        head.setSpacing(14)
        head.addWidget(self.logo)
        texts = QVBoxLayout()
        texts.setSpacing(4)
        texts.addWidget(self.title)
        texts.addWidget(line)
        head.addLayout(texts, 1)
        act = QHBoxLayout()
        act.setSpacing(12)
        act.addWidget(self.open)
        act.addWidget(hint, 1)
        self.samples, self.recent = QGridLayout(), QVBoxLayout()
        self.samples.setSpacing(8)
        self.recent.setSpacing(2)
        self.recent_head = _head("RECENT")
        page = QWidget()
        page.setMaximumWidth(WIDTH)
        body = QVBoxLayout(page)
        body.setSpacing(14)
        body.addLayout(head)
        body.addLayout(act)
        body.addSpacing(8)
        body.addWidget(self.recent_head)  # first: who has files of their own looks for those
        body.addLayout(self.recent)
        body.addWidget(_head("SAMPLES"))
        body.addLayout(self.samples)
        body.addStretch(1)
        body.insertStretch(0, 1)
        inside = QWidget()
        centred = QHBoxLayout(inside)
        centred.addStretch(1)
        centred.addWidget(page, 8)
        centred.addStretch(1)
        scroll = QScrollArea()  # many samples, a small screen: it scrolls, and never makes the window larger
        scroll.setWidget(inside)
        scroll.setWidgetResizable(True)
        scroll.setFrameShape(QScrollArea.Shape.NoFrame)
        scroll.viewport().setAutoFillBackground(False)
        inside.setAutoFillBackground(False)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(scroll)
        self._fill_samples()
        self.show_recent([])
        self.set_theme(theme)

    def set_theme(self, theme: Theme) -> None:
        self.theme = theme
        self.logo.setPixmap(icon("logo", theme, "accent").pixmap(QSize(44, 44)))

    def _fill_samples(self) -> None:
        self._cards: list[QPushButton] = []
        for name in sample_names():
            button = QPushButton()
            button.setObjectName("card")
            button.setText(f"{name}\n{ABOUT.get(name, '')}")
            button.setAccessibleName(f"Open the sample {name}")
            button.setSizePolicy(button.sizePolicy().Policy.Expanding, button.sizePolicy().Policy.Fixed)
            button.clicked.connect(lambda _=False, name=name: self.chosen.emit(name))
            self._cards.append(button)
        self._lay_cards(2)

    def _lay_cards(self, columns: int) -> None:
        widest = max((card.sizeHint().width() for card in self._cards), default=0)
        for i, card in enumerate(self._cards):
            card.setMinimumWidth(widest)
            self.samples.addWidget(card, i // columns, i % columns)
        for column in range(2):
            self.samples.setColumnStretch(column, int(column < columns))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._lay_cards(2 if self.width() > WIDTH else 1)

    def show_recent(self, paths: list[str]) -> None:
        while item := self.recent.takeAt(0):
            if widget := item.widget():
                widget.hide()
                widget.deleteLater()
        self.recent_head.setVisible(bool(paths))
        for path in paths:
            button = QToolButton()
            button.setObjectName("link")
            button.setText(f"{Path(path).name}    {Path(path).parent}")
            button.setToolTip(path)
            button.clicked.connect(lambda _=False, path=path: self.chosen.emit(path))
            self.recent.addWidget(button)


def _head(text: str) -> QLabel:
    label = QLabel(text)
    label.setObjectName("head")
    return label
