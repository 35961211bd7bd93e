"""The numbers in a text, however they are written."""

import re
from collections import Counter
from decimal import Decimal

# 1,000 1.000 1 000 1'000 ١٬٠٠٠ and 1,50,000: three digits after the last mark, one mark throughout.
GROUPED = r"(?!0)\d{1,3}(?P<mark>[.,٬'’ \u00a0\u202f])(?:\d{2,3}(?P=mark))*\d{3}(?!\d)"
# 1.5 1,5 ١٫٥, but neither 1.2.3 nor 12.03.2024, which are three numbers.
DECIMAL = r"(?<!\d[.,٫])\d+[.,٫]\d+(?![.,٫]?\d)"
NUMBER = re.compile(rf"(?<!\d){GROUPED}(?P<rest>[.,٫]\d+(?![.,٫]?\d))?|{DECIMAL}|\d+")


def find_numbers(text: str) -> Counter[Decimal]:
    """How often each number comes, in digits of any script.

    A mark before exactly three digits is taken to group them, so 1.234 and 1,234 are one number in
    every language; words are no numbers.
    """
    return Counter(map(_value, NUMBER.finditer(text)))


def _value(match: re.Match[str]) -> Decimal:
    number, rest = match[0], match["rest"] or ""
    if match["mark"]:
        whole = "".join(filter(str.isdecimal, number.removesuffix(rest)))
        number = whole + rest
    return Decimal(re.sub(r"[,٫]", ".", number))
