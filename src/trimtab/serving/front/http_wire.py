"""HTTP answers as bytes, and request bodies out of gzip or deflate within a limit."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence

from trimtab.errors import ServeError
from trimtab.serving.front.oip import error_body
from trimtab.serving.nouns import Why

PHRASES = {
    200: b"OK",
    400: b"Bad Request",
    404: b"Not Found",
    405: b"Method Not Allowed",
    408: b"Request Timeout",
    413: b"Content Too Large",
    415: b"Unsupported Media Type",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
}
STATUS_OF = {
    Why.DONE: 200,
    Why.INVALID: 400,
    Why.UNKNOWN: 404,
    Why.BUSY: 429,
    Why.LATE: 504,
    Why.UNAVAILABLE: 503,
    Why.FAILED: 500,
}
JSON = b"application/json"
BINARY = b"application/octet-stream"
TEXT = b"text/plain; charset=utf-8"


class TooLarge(ServeError):
    """A compressed body opens to more than the limit."""


def answer_bytes(
    status: int,
    body: Sequence[bytes | memoryview],
    kind: bytes = JSON,
    more: bytes = b"",
    close: bool = False,
    date: bytes = b"",
    head_only: bool = False,
) -> bytes:
    """One whole HTTP answer. `more` is header lines, each with its line end."""
    size_bytes = sum(memoryview(piece).nbytes for piece in body)
    head = b"HTTP/1.1 %d %b\r\nDate: %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n%b%b\r\n" % (
        status,
        PHRASES[status],
        date,
        kind,
        size_bytes,
        more,
        b"Connection: close\r\n" if close else b"",
    )
    return head if head_only else b"".join((head, *body))


def error_bytes(
    status: int,
    reason: str,
    retry_after_s: float = 0.0,
    more: bytes = b"",
    close: bool = False,
    date: bytes = b"",
    head_only: bool = False,
) -> bytes:
    """One whole HTTP error answer."""
    if retry_after_s > 0:
        # Retry-After has whole seconds only, too coarse for a queue that clears in milliseconds
        waits = (math.ceil(retry_after_s), math.ceil(retry_after_s * 1e3))
        more += b"Retry-After: %d\r\nRetry-After-Ms: %d\r\n" % waits
    return answer_bytes(status, (error_body(reason),), JSON, more, close, date, head_only)


def opened(body: bytes, encoding: bytes, limit_bytes: int) -> bytes:
    """The body without its Content-Encoding, never more than `limit_bytes` in memory."""
    kind = encoding.strip().lower()
    if kind in (b"", b"identity"):
        return body
    if kind not in (b"gzip", b"x-gzip", b"deflate"):
        raise ServeError(f"Content-Encoding is {encoding!r}; send gzip, deflate or identity")
    # 32 + 15: zlib itself tells gzip from deflate by the first bytes
    unzip = zlib.decompressobj(47)
    try:
        plain = unzip.decompress(body, limit_bytes + 1)
    except zlib.error as error:
        raise ServeError(
            f"Content-Encoding is {kind.decode()} and the body is not: {error}"
        ) from None
    if len(plain) > limit_bytes:
        raise TooLarge(f"the body opens to more than {limit_bytes} bytes; send less a request")
    if not unzip.eof or unzip.unused_data:
        raise ServeError(
            f"the {kind.decode()} body is cut short or has a tail; send one whole stream"
        )
    return plain
