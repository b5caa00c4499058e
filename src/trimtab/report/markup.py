"""Pieces of HTML: the style of the page, figures, tables, numbers with units. Text is escaped."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib import metadata

from trimtab.report.colours import themed, variable, variables
from trimtab.report.drawing import short

MOST_NAMES = 20
CSS = (
    f":root{{color-scheme:light dark;{variables(dark=False)}}}\n"
    f"@media(prefers-color-scheme:dark){{:root{{{variables(dark=True)}}}}}\n"
    f"@media print{{:root{{color-scheme:light;{variables(dark=False)}}}}}"
    """
*{box-sizing:border-box}
html{font-size:clamp(15px,9px + .47vw,28px)}
body{margin:0;background:var(--paper);color:var(--ink);line-height:1.5;font-size:1rem;
font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
svg text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,
sans-serif!important}
main,header>div{max-width:76rem;margin:0 auto;padding:0 1.33rem}
header{background:var(--soft);border-bottom:1px solid var(--line);padding:1.5rem 0 1.1rem}
h1{font-size:1.67rem;line-height:1.25;margin:0 0 .67rem;overflow-wrap:anywhere}
h2{font-size:1.27rem;margin:2.5rem 0 .4rem;padding-bottom:.27rem;
border-bottom:1px solid var(--line)}
h3{font-size:1rem;margin:1.6rem 0 .13rem;overflow-wrap:anywhere}
p{margin:.53rem 0;max-width:78ch;overflow-wrap:anywhere}
p.faint{font-size:.9rem}
p.warn{border-left:.27rem solid var(--c4);background:var(--soft);padding:.5rem .8rem}
dl.facts{display:grid;grid-template-columns:max-content 1fr;gap:.13rem 1rem;
margin:0;font-size:.93rem}
dl.facts dt,figcaption,.faint{color:var(--faint)}
dl.facts dd{margin:0;overflow-wrap:anywhere}
dl.about dt{font-weight:600;margin-top:.4rem}
dl.about dd{margin:0;max-width:78ch}
code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:.87rem}
.wide{overflow-x:auto;margin:.8rem 0}
table{border-collapse:collapse;font-size:.93rem;font-variant-numeric:tabular-nums}
.metrics{width:100%;font-size:.9rem}
.metrics th,.metrics td{padding:.33rem .53rem}
td small{color:var(--faint);font-weight:400;font-size:.8rem}
th,td{padding:.33rem .8rem;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}
.metrics thead th{max-width:9em}
thead th{vertical-align:bottom;font-weight:600;white-space:normal;
border-bottom:2px solid var(--line)}
thead th small{display:block;font-weight:400;color:var(--faint)}
tbody th{font-weight:500}
th:first-child,td:first-child{text-align:left}
.metrics th:first-child,.metrics td:first-child{position:sticky;left:0;background:var(--paper)}
td.best{background:var(--best);font-weight:700}
tr.record td{font-style:italic}
figure{margin:.53rem 0 1.33rem;overflow-x:auto}
figure svg{display:block;width:100%;height:auto;min-width:44rem}
figure svg.phone{display:none;min-width:0}
figcaption{font-size:.9rem;max-width:86ch}
.swatch{display:inline-block;width:.72em;height:.72em;border-radius:2px;margin-right:.5em}
ul.notes{margin:.53rem 0;padding-left:1.33rem}
ul.notes li{overflow-wrap:anywhere}
details{margin:.53rem 0}
summary{cursor:pointer;color:var(--link);overflow-wrap:anywhere}
footer{margin:2.9rem 0 1.9rem;color:var(--faint);font-size:.87rem}
@media screen and (max-width:46rem){
main,header>div{padding:0 .8rem}
dl.facts{grid-template-columns:1fr;gap:0}
dl.facts dt{margin-top:.4rem;font-size:.87rem}
.metrics td:first-child{max-width:9.5em;overflow:hidden;text-overflow:ellipsis}
figure svg.phone{display:block}
figure svg.desk{display:none}
}
@media print{
html{font-size:10.5pt}
main,header>div{max-width:none;padding:0}
figure,tr{break-inside:avoid}
h2,h3{break-after:avoid}
figure svg{min-width:0}
.wide{overflow-x:visible}
.metrics{font-size:.72rem}
.metrics th,.metrics td{padding:.2rem .3rem}
thead{display:table-header-group}
}
"""
)


def figure(drawn: str | tuple[str, str], label: str, caption: str) -> str:
    """An inline SVG in the colours of the page, or one for a desk and one for a phone.

    One alone keeps its size on a phone, and scrolls inside itself.
    """
    sheets = (drawn,) if isinstance(drawn, str) else drawn
    kinds = ("",) if len(sheets) == 1 else (' class="desk"', ' class="phone"')
    inline = "".join(_inline(svg, label, kind) for svg, kind in zip(sheets, kinds))
    told = f"<figcaption>{escape(caption)}</figcaption>" if caption.strip() else ""
    return f"<figure>{inline}{told}</figure>"


def _inline(drawn: str, label: str, kind: str) -> str:
    """A name space is of no use inside HTML, and would look like an address."""
    inline = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", drawn, count=2)
    inline = re.sub(r'(<svg[^>]*?)\swidth="[^"]*"', r"\1", inline, count=1)
    inline = re.sub(r'(<svg[^>]*?)\sheight="[^"]*"', r"\1", inline, count=1)
    named = f'<svg{kind} role="img" aria-label="{escape(label)}"'
    return themed(inline.replace("<svg", named, 1))


def named(name: str, most: int = 48) -> str:
    """A name as HTML: a long one is cut, and whole where it is pointed at."""
    if len(name) <= most:
        return escape(name)
    return f'<span title="{escape(name)}">{escape(short(name, most))}</span>'


def listed(names: Sequence[str], letters: int = 48) -> str:
    """Names as HTML, each cut to so many letters, and how many more there are."""
    told = ", ".join(named(name, letters) for name in names[:MOST_NAMES])
    more = len(names) - MOST_NAMES
    return f"{told} and {more:,} more" if more > 0 else told


def swatch(colour: str) -> str:
    return f'<span class="swatch" style="background:{variable(colour)}"></span>'


def facts(told: Mapping[str, str]) -> str:
    """Names and values; the values are HTML."""
    return (
        '<dl class="facts">'
        + "".join(f"<dt>{escape(k)}</dt><dd>{v}</dd>" for k, v in told.items())
        + "</dl>"
    )


def bullets(items: Sequence[str]) -> str:
    return '<ul class="notes">' + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"


def plain_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return table([escape(text) for text in head], [[escape(text) for text in row] for row in rows])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells are HTML; the table scrolls inside itself where it is wider than the page."""
    top = "".join(f"<th>{text}</th>" for text in head)
    body = "".join("<tr>" + "".join(f"<td>{text}</td>" for text in row) + "</tr>" for row in rows)
    return (
        f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def shell(title: str, body: str, style: str = "", allowed: str = "") -> str:
    """A whole page around its body; it may load nothing but what `allowed` adds to its policy."""
    policy = f"default-src 'none'; style-src 'unsafe-inline'{allowed}"
    text = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{CSS}{style}</style>\n</head>\n<body>\n"
        f"{body}\n</body>\n</html>\n"
    )
    return text.encode("utf-8", "replace").decode("utf-8")  # a path may hold bytes that are no text


def version(package: str) -> str:
    """As installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "(version unknown)"
