"""Pieces of HTML: the style of the page, figures, tables, numbers with units. Text is escaped."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib import metadata

CSS = """
:root{color-scheme:light;--ink:#24292f;--faint:#6e7781;--line:#d8dee4;--soft:#f6f8fa;--best:#e3f3ea}
*{box-sizing:border-box}
body{margin:0;background:#fff;color:var(--ink);line-height:1.5;font-size:15px;
font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
svg text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,
sans-serif!important}
main,header>div{max-width:1140px;margin:0 auto;padding:0 20px}
header{background:var(--soft);border-bottom:1px solid var(--line);padding:22px 0 16px}
h1{font-size:25px;line-height:1.25;margin:0 0 10px;overflow-wrap:anywhere}
h2{font-size:19px;margin:38px 0 6px;padding-bottom:4px;border-bottom:1px solid var(--line)}
h3{font-size:15px;margin:24px 0 2px}
p{margin:8px 0;max-width:78ch}
dl.facts{display:grid;grid-template-columns:max-content 1fr;gap:2px 16px;margin:0;font-size:14px}
dl.facts dt,figcaption,.faint{color:var(--faint)}
dl.facts dd{margin:0;overflow-wrap:anywhere}
dl.about dt{font-weight:600;margin-top:6px}
dl.about dd{margin:0;max-width:78ch}
code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:13px}
.wide{overflow-x:auto;margin:12px 0}
table{border-collapse:collapse;font-size:14px;font-variant-numeric:tabular-nums}
.metrics{width:100%;font-size:13.5px}
.metrics th,.metrics td{padding:5px 8px}
td small{color:var(--faint);font-weight:400;font-size:12px}
th,td{padding:5px 12px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}
.metrics thead th{max-width:9em}
thead th{vertical-align:bottom;font-weight:600;white-space:normal;
border-bottom:2px solid var(--line)}
thead th small{display:block;font-weight:400;color:var(--faint)}
tbody th{font-weight:500}
th:first-child,td:first-child{text-align:left}
td.best{background:var(--best);font-weight:700}
figure{margin:8px 0 20px;overflow-x:auto}
figure svg{display:block;width:100%;height:auto;min-width:560px}
figcaption{font-size:13.5px;max-width:86ch}
.swatch{display:inline-block;width:.72em;height:.72em;border-radius:2px;margin-right:.5em}
ul.notes{margin:8px 0;padding-left:20px}
details{margin:8px 0}
summary{cursor:pointer;color:#0b5cad}
footer{margin:44px 0 28px;color:var(--faint);font-size:13px}
@media print{figure,tr{break-inside:avoid}header{background:none}}
"""


def figure(drawn: str, label: str, caption: str) -> str:
    """An inline SVG; a name space is of no use inside HTML, and would look like an address."""
    inline = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", drawn, count=2)
    inline = re.sub(r'(<svg[^>]*?)\swidth="[^"]*"', r"\1", inline, count=1)
    inline = re.sub(r'(<svg[^>]*?)\sheight="[^"]*"', r"\1", inline, count=1)
    inline = inline.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1)
    told = f"<figcaption>{escape(caption)}</figcaption>" if caption.strip() else ""
    return f"<figure>{inline}{told}</figure>"


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
    top = "".join(f"<th>{escape(text)}</th>" for text in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in rows
    )
    return (
        f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def shell(title: str, body: str, style: str = "", allowed: str = "") -> str:
    """A whole page around its body; it may load nothing but what `allowed` adds to its policy."""
    policy = f"default-src 'none'; style-src 'unsafe-inline'{allowed}"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{CSS}{style}</style>\n</head>\n<body>\n"
        f"{body}\n</body>\n</html>\n"
    )


def version(package: str) -> str:
    """As installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "(version unknown)"
