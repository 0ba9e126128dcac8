"""What each fusion gains, from measured figures only."""

from app.charts.picture import BAR, Bars, Context, Mark, Picture, Tip
from app.document import Document
from app.format import micros
from core.gains import Gain, Way

TITLE = "Fusion gains"
NOTHING = (
    "No fused region and its parts were measured in one run yet. Split a region (Ctrl+Shift+G), press Tune, undo the "
    "split: both stand here then. `tune --persistent FILE` measures pairs of regions as one kernel."
)


def fusion(document: Document, context: Context) -> Picture:
    """Each fused kernel beside its best unfused parts; where those do less than it, what they leave out is named."""
    if context.gains is None:
        return Picture(TITLE, empty="Looking for figures of the parts.")
    found = context.gains.found
    if not found:
        return Picture(TITLE, empty=NOTHING)
    made, could = _places(found, True), _places(found, False)
    marks: list[Mark] = []
    for name, places, token in (("one kernel", made, "ours"), ("one kernel, not in this plan", could, "good")):
        if places:
            marks.append(Bars(name, [i - BAR / 2 for i in places], [found[i].fused_us for i in places], token))
    marks += _parts(found)
    rows = tuple(
        (g.region, str(g.way), "yes" if g.made else "no", g.fused_us, g.parts_us, g.saved_us, g.left_out, g.source,
         " | ".join(key for key, _ in g.parts))
        for g in found
    )  # fmt: skip
    missing = f"; {context.gains.unknown} fusions are without a figure of their parts" if context.gains.unknown else ""
    return Picture(
        TITLE, "", "us", tuple(marks), tuple((float(i), g.region) for i, g in enumerate(found)),
        tuple(Tip(i, 0, _text(g)) for i, g in enumerate(found)),
        ("region", "fusion", "in the plan", "fused us", "parts us", "saved us", "parts leave out", "from", "parts"),
        rows, note=f"measured only{missing}",
    )  # fmt: skip


_PARTS = (("first part", "vendor"), ("second part", "even"), ("further parts", "slower"))


def _places(found: tuple[Gain, ...], made: bool) -> list[int]:
    return [i for i, g in enumerate(found) if g.made is made]


def _parts(found: tuple[Gain, ...]) -> list[Mark]:
    """The parts of several regions on top of each other; of an epilogue the product with fewer steps, lighter."""
    several = [i for i, g in enumerate(found) if g.way is not Way.EPILOGUE]
    bare = [i for i, g in enumerate(found) if g.way is Way.EPILOGUE]
    marks: list[Mark] = []
    last = len(_PARTS) - 1
    for number, (name, token) in enumerate(_PARTS):
        places = [i for i in several if len(found[i].parts) > number]
        if places:
            end = None if number == last else number + 1
            heights = [sum(us for _, us in found[i].parts[number:end]) for i in places]
            base = [sum(us for _, us in found[i].parts[:number]) for i in places]
            marks.append(Bars(name, [i + BAR / 2 for i in places], heights, token, base=base))
    if bare:
        xs, heights = [i + BAR / 2 for i in bare], [found[i].parts_us for i in bare]
        marks.append(Bars("without the epilogue's last steps", xs, heights, "heat_low"))
    return marks


def _text(gain: Gain) -> str:
    said = f"{gain.region}, {gain.way} fusion ({gain.source})\none kernel {micros(gain.fused_us)}"
    if gain.left_out:
        costs = f"those cost {micros(-gain.saved_us)} fused" if gain.saved_us < 0 else "fused they cost nothing"
        return f"{said}\nwithout {gain.left_out} {micros(gain.parts_us)}: {costs},\nand nobody timed them as kernels"
    parts = " + ".join(micros(us) for _, us in gain.parts)
    verb = "saves" if gain.saved_us >= 0 else "loses"
    return f"{said}\nits parts {parts} = {micros(gain.parts_us)}\n{verb} {micros(abs(gain.saved_us))}"
