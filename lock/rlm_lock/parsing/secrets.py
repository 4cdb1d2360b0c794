"""Find keys, tokens and passwords in a text: such a text is not kept, and what is kept of other texts is redacted.

A cheap search for a literal that each kind must have comes first, then the expressions of the kinds that may be there:
the expressions alone would cost more than parsing the file. A secret without a form of its own, such as a password, is
found by the name before it, and only if it looks random: a word of the documentation is not a secret.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import re2

HIDDEN = "[hidden]"
_FORMS: tuple[tuple[bytes, bytes], ...] = (
    # Literal that must be there, expression. The match of a group `s` is the secret, otherwise the whole.
    (
        b"PRIVATE KEY",
        (
            rb"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
            rb"(?:[A-Za-z0-9+/=:,.\s\\]|-[A-Za-z0-9]){40}(?:[A-Za-z0-9+/=:,.\s\\]|-[A-Za-z0-9])*"
        ),
    ),
    (b"AKIA", rb"\bAKIA[0-9A-Z]{16}\b"),
    (b"ASIA", rb"\bASIA[0-9A-Z]{16}\b"),
    (b"ghp_", rb"\bghp_[A-Za-z0-9]{36}"),
    (b"gho_", rb"\bgho_[A-Za-z0-9]{36}"),
    (b"ghu_", rb"\bghu_[A-Za-z0-9]{36}"),
    (b"ghs_", rb"\bghs_[A-Za-z0-9]{36}"),
    (b"ghr_", rb"\bghr_[A-Za-z0-9]{36}"),
    (b"github_pat_", rb"\bgithub_pat_\w{60,90}"),
    (b"glpat-", rb"\bglpat-[\w-]{20}"),
    (b"xox", rb"\bxox[abeoprs]-[0-9]{6,}[0-9A-Za-z-]{10,}"),
    (b"xapp-", rb"\bxapp-\d-[A-Z0-9]{6,}-\d+-[a-z0-9]{30,}"),
    (b"hooks.slack.com", rb"slack\.com/(?:services|workflows)/(?P<s>T[A-Z0-9]{6,}/[AB][A-Z0-9]{6,}/[A-Za-z0-9/]{20,})"),
    (b"discord", rb"discord(?:app)?\.com/api/webhooks/(?P<s>\d{15,}/[\w-]{50,})"),
    (b"k_live_", rb"\b[rs]k_live_[0-9A-Za-z]{16,}"),
    (b"k_test_", rb"\b[rs]k_test_[0-9A-Za-z]{20,}"),
    (b"whsec_", rb"\bwhsec_[A-Za-z0-9+/]{30,}"),
    (b"sk-", rb"\bsk-(?:ant-|proj-|svcacct-|or-v1-)?[A-Za-z0-9_-]{32,200}"),
    (b"AIza", rb"\bAIza[0-9A-Za-z_-]{35}"),
    (b"GOCSPX-", rb"\bGOCSPX-[\w-]{28}"),
    (b"ya29.", rb"\bya29\.[\w-]{40,}"),
    (b"npm_", rb"\bnpm_[A-Za-z0-9]{36}\b"),
    (b"pypi-Ag", rb"\bpypi-AgEIcHlwaS5vcmc[\w-]{50,}"),
    (b"eyJ", rb"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{16,}"),
    (b"SG.", rb"\bSG\.[\w-]{20,24}\.[\w-]{39,50}"),
    (b"SK", rb"\bSK[0-9a-f]{32}\b"),
    (b"AccountKey", rb"AccountKey=(?P<s>[A-Za-z0-9+/]{40,}={0,2})"),
    (b"SharedAccessKey", rb"SharedAccessKey=(?P<s>[A-Za-z0-9+/]{40,}={0,2})"),
    (b"sig=", rb"[?&;]sig=(?P<s>[A-Za-z0-9%+/]{40,}(?:=|%3[dD])?)"),
    (b"8Q~", rb"\b[\w.~-]{3}8Q~[\w.~-]{31,34}"),
    (b":AA", rb"\b\d{8,10}:AA[\w-]{33}"),
    (b".G", rb"\b[MNO][A-Za-z\d]{23,25}\.G[\w-]{5}\.[\w-]{27,38}"),
    (b"shp", rb"\bshp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}\b"),
    (b"_v1_", rb"\bdo[opr]_v1_[a-f0-9]{64}\b"),
    (b"hf_", rb"\bhf_[A-Za-z]{34}\b"),
    (b"key-", rb"\bkey-[0-9a-f]{32}\b"),
    (b"-us", rb"\b[0-9a-f]{32}-us\d{1,2}\b"),
    (b"dapi", rb"\bdapi[0-9a-f]{32}\b"),
    (b"sq0", rb"\bsq0(?:csp|atp)-[\w-]{22,43}"),
    (b"dckr_pat_", rb"\bdckr_pat_[\w-]{27}"),
    (b"lin_api_", rb"\blin_api_[A-Za-z0-9]{40}"),
    (b"AGE-SECRET-KEY-1", rb"AGE-SECRET-KEY-1[0-9A-Z]{58}"),
    (b"glsa_", rb"\bglsa_\w{32}_[0-9a-f]{8}"),
    (b"hvs.", rb"\bhvs\.[\w-]{24,}"),
    (b"NRAK-", rb"\bNRAK-[A-Z0-9]{27}\b"),
    (b"secret_", rb"\bsecret_[A-Za-z0-9]{43}\b"),
    (b"ntn_", rb"\bntn_[A-Za-z0-9]{46}\b"),
    (b"atlasv1", rb"\b[A-Za-z0-9]{14}\.atlasv1\.[\w-]{60,}"),
)  # fmt: skip
_LITERALS = tuple(literal for literal, _ in _FORMS)
_EXPRESSIONS = {literal: re2.compile(form) for literal, form in _FORMS}
_NAMES = (
    rb"passw(?:or)?d|passphrase|passwd|pwd|secret|token|credential|auth"
    rb"|(?:api|access|account|private|signing|encryption|master|license)[_.-]?key"
)
_ANY_LITERAL = re2.compile(b"|".join(map(re2.escape, sorted(set(_LITERALS)))))
_ANY_NAME = re2.compile(
    rb"(?i)(?:"
    + _NAMES
    + rb")[\w.-]{0,30}[\"']?\s{0,4}(?:=|:)|machine \S+ login|://[^/\s:@]{0,64}:[^\s@/]+@|Bearer |Basic "
)
"""What may precede a secret without a form: a telling name, a header, a URL's user."""
_QUOTED = re2.compile(
    rb"(?i)(?:" + _NAMES + rb")[\w.-]{0,30}[\"']?\]?\s{0,4}(?::\s?str\s?=|:=|=>|==|[:=])\s{0,4}[bru]?"
    rb"[\"'`](?P<v>[^\"'`\s]{10,200})[\"'`]"
)
_BARE = re2.compile(
    rb"(?im)^[ \t]*(?:#[ \t]*)?(?:export[ \t]+|set[ \t]+|-[ \t]+|ENV[ \t]+|ARG[ \t]+|-e[ \t]+)?[\w.-]{0,40}(?:"
    + _NAMES
    + rb")[\w.-]{0,30}[ \t]{0,8}[=:][ \t]{0,8}(?P<v>[^\s\"'`,;(){}\[\]<>$]{12,200})[ \t]*(?:#.*)?\r?$"
)
_URL = re2.compile(rb"://[^/\s:@'\"<>]{0,64}:(?P<v>[^/\s:@'\"{}<>$]{6,100})@")
_HEADER = re2.compile(rb"(?i)\b(?:Bearer|Basic) (?P<v>[A-Za-z0-9._~+/-]{20,200}={0,2})")
_NETRC = re2.compile(rb"\bmachine \S+ login \S+ password (?P<v>\S{6,100})")
_PLACEHOLDER = re.compile(
    rb"(?i)example|changeme|change.me|your|dummy|placeholder|redacted|hidden|secret|passw|token|xxxx|\.\.\.|\*\*\*|0123456|1234567|abcdef|"
    rb"foobar|fixme|insert|replace|localhost|sample|default|undefined|process\.env|getenv|environ|config\.|test"
)  # fmt: skip
_HEX = re.compile(rb"[0-9a-fA-F]+")
_WORDS = re.compile(rb"[A-Z]?[a-z]{5,}|[A-Z]{6,}")
_UUID = re.compile(rb"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_CODE = re.compile(rb"[(){}<>\[\]\\|]|::|\.\.")
_CHAIN = re.compile(
    rb"(?:/[a-z0-9_.-]+)+|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|[A-Za-z]+(?:[_-][A-Za-z0-9]+)+|[a-z]+(?:[A-Z][a-z]+)+\d*"
)
"""Dotted names, hyphenated words, compound words: code without quotes."""
_STARTS = (b"http", b"$", b"%", b"-----", b"./", b"~/")
_LEAST_BITS = 3.0


def has_secret(text: bytes) -> bool:
    """Return whether a text holds what is probably a key, token or password."""
    return next(spans(text), None) is not None


def redacted(text: str) -> str:
    """Return a text with what is probably secret replaced."""
    data = text.encode("utf-8", "surrogateescape")
    kept, at = [], 0
    for start, end in sorted(spans(data)):
        if start >= at:
            kept += [data[at:start], HIDDEN.encode()]
        at = max(at, end)
    return b"".join((*kept, data[at:])).decode("utf-8", "surrogateescape") if kept else text


def spans(text: bytes) -> Iterator[tuple[int, int]]:
    """Yield the positions of secrets in a text, in no particular order; they may overlap."""
    if _ANY_LITERAL.search(text):
        for literal in _LITERALS:
            if literal in text:
                yield from _found(_EXPRESSIONS[literal], text, _has_chance)
    if _ANY_NAME.search(text):
        for expression, is_random in _BY_NAME:
            yield from _found(expression, text, is_random)


def _found(expression: Any, text: bytes, is_random: Callable[[bytes], bool]) -> Iterator[tuple[int, int]]:
    group = 1 if expression.groups else 0
    return (found.span(group) for found in expression.finditer(text) if is_random(found.group(group)))


def _has_chance(value: bytes) -> bool:
    """Return whether a token looks real: a run of the same letter, or of words, is an example."""
    is_chance = _bits(value) > _LEAST_BITS and b"EXAMPLE" not in value
    return is_chance and (not value.startswith(b"sk-") or _has_digit(value))


def _is_random_quoted(value: bytes) -> bool:
    """Return whether a value between quotes is random, not written by a person to be read."""
    return not _CODE.search(value) and _looks_random(value)


def _is_random_bare(value: bytes) -> bool:
    """Return whether a value without quotes is not a name, path or expression."""
    return not _CHAIN.fullmatch(value) and _is_random_quoted(value)


def _looks_random(value: bytes) -> bool:
    if _PLACEHOLDER.search(value) or value.startswith(_STARTS) or _UUID.fullmatch(value):
        return False
    bits = _bits(value)
    if _HEX.fullmatch(value):
        return len(value) >= 24 and bits > 2.8 and len(set(value)) > 7
    if sum(map(len, _WORDS.findall(value))) * 3 > len(value) * 2:
        return False
    mixture = _mixture(value)
    return bits > min(3.4, math.log2(len(value)) - 0.75) and (
        mixture >= 3 if _has_digit(value) else mixture >= 6 and value.isalpha()
    )


def _has_digit(value: bytes) -> bool:
    return any(48 <= c < 58 for c in value)


def _mixture(value: bytes) -> int:
    """Return how often the kind of character changes from one to the next: lower, upper, digit, other."""
    kinds = [0 if 97 <= c < 123 else 1 if 65 <= c < 91 else 2 if 48 <= c < 58 else 3 for c in value]
    return sum(1 for a, b in pairwise(kinds) if a != b)


def _is_url_password(value: bytes) -> bool:
    return _bits(value) > 2.7 and not _PLACEHOLDER.search(value) and _mixture(value) >= 2


_BY_NAME = (
    (_QUOTED, _is_random_quoted),
    (_BARE, _is_random_bare),
    (_URL, _is_url_password),
    (_HEADER, _looks_random),
    (_NETRC, _is_url_password),
)


def _bits(value: bytes) -> float:
    """Return Shannon's entropy per character."""
    return -sum(n / len(value) * math.log2(n / len(value)) for n in Counter(value).values())
