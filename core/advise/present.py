"""Advice as JSON and as text: what was measured, what was only estimated, and how to measure the rest."""

from collections.abc import Iterable, Sequence
from typing import Any

from core.advise.advice import Advice, Kind, Price, Way

TITLES = {
    Kind.ACTIVATION: "Activations: what another one would cost",
    Kind.DEEPEN: "1x1 convolutions that run in the kernel before them",
    Kind.SHAPE: "Shapes that miss an alignment, a tile or a wave",
    Kind.ROOFLINE: "Layers below the roofline",
    Kind.BATCH: "Batch size",
}
UNMEASURED = "not measured"


def us_text(us: float) -> str:
    """Three significant figures; from 1,000 us in ms."""
    if abs(us) >= 999.5:
        return f"{us / 1000:.3g} ms" if abs(us) < 999_500 else f"{us / 1000:,.0f} ms"
    return f"{us:.3g} us"


def gain_text(price: Price) -> str:
    """ "saves 1.2 us", "costs 3 us", "not measured": measured figures only."""
    gain = price.gain_us
    if gain is None:
        if price.runs > 1:
            return "measured in different runs"
        return UNMEASURED
    if abs(gain) < 0.005:
        return "no difference"
    return f"{'saves' if gain > 0 else 'costs'} {us_text(abs(gain))}"


def estimate_text(price: Price) -> str:
    """The estimate in its own words, "" where there is none."""
    guess = price.estimate_us
    if guess is None:
        return ""
    return f"estimated: {'saves' if guess >= 0 else 'costs'} {us_text(abs(guess))}"


def as_json(advice: Advice) -> dict[str, Any]:
    """Plain values; times in us, None where nothing was measured."""
    return {
        "id": advice.id,
        "kind": str(advice.kind),
        "what": advice.what,
        "why": advice.why,
        "regions": list(advice.regions),
        "nodes": list(advice.nodes),
        "price": _price_json(advice.price),
        "ways": [_way_json(w) for w in advice.ways],
        "facts": dict(advice.facts),
        "applicable": advice.change is not None,
        "keeps_function": advice.change.keeps if advice.change is not None else None,
        "unchanged": advice.unchanged,
    }


def _price_json(price: Price) -> dict[str, Any]:
    return {
        "before_us": price.before_us,
        "after_us": price.after_us,
        "gain_us": price.gain_us,
        "estimated_gain_us": price.estimate_us,
        "runs": price.runs,
        "missing": list(price.missing),
    }


def _way_json(way: Way) -> dict[str, Any]:
    terms = [
        {
            "count": term.count,
            "scale": term.scale,
            "before": [w.key for w in term.before],
            "after": [w.key for w in term.after],
            **_price_json(part),
        }
        for term, part in zip(way.terms, way.parts or (way.price,) * len(way.terms), strict=True)
    ]
    return {"label": way.label, **_price_json(way.price), "terms": terms}


def lines(found: Sequence[Advice], command: str) -> list[str]:
    """By kind, each in the order given; the command that measures what has no price stands at the end."""
    out: list[str] = []
    for kind in Kind:
        of_kind = [a for a in found if a.kind is kind]
        if of_kind:
            out += [TITLES[kind], ""]
            for advice in of_kind:
                out += [*_advice_lines(advice), ""]
    missing = {key for a in found for w in a.ways for key in w.price.missing}
    if missing:
        out.append(f"{len(missing)} workloads are {UNMEASURED}; on a machine with the GPU: {command}")
    return out


def _advice_lines(advice: Advice) -> Iterable[str]:
    yield f"  {advice.id}: {advice.what}"
    yield f"      {advice.why}"
    for way in advice.ways:
        if len(advice.ways) > 8 and way.price.gain_us is None:
            continue
        yield f"      {way.label}: {way_text(way)}"
        if advice.kind is Kind.ACTIVATION:
            yield from _term_lines(way)
    for name, value in advice.facts:
        yield f"      {name}: {value}"
    if advice.change is None:
        yield f"      nothing to apply: {advice.unchanged}"
    elif not advice.change.keeps:
        yield "      applied it computes another function: the model is to be trained again"


def _term_lines(way: Way) -> Iterable[str]:
    """One epilogue each: the time before and after of one kernel, where both are measured in one run."""
    for term, part in zip(way.terms, way.parts, strict=True):
        if part.gain_us is not None and part.before_us is not None and part.after_us is not None:
            before, after = us_text(part.before_us / term.count), us_text(part.after_us / term.count)
            yield f"        {term.count} x {term.before[0].key}: {before} to {after}"


def way_text(way: Way) -> str:
    """What is known of the way's price, the estimate behind what was measured."""
    price = way.price
    said = [gain_text(price)]
    if price.before_us is not None and price.after_us is not None:
        said[0] += f" ({us_text(price.before_us)} to {us_text(price.after_us)})"
    elif price.before_us is not None and not price.missing:
        said[0] = f"takes {us_text(price.before_us)}"
    elif price.missing:
        count = len({w.key for t in way.terms for w in (*t.before, *t.after)})
        said[0] += f": {len(price.missing)} of {count} workloads have no record"
    said.append(estimate_text(price))
    return "; ".join(filter(None, said))
