r"""The canonical form of device strings for ``device_model``, as steps of regular expressions.

1. ASCII letters become lower case; white space (ASCII) and ``_`` become one space, none at either end.
2. From the first ``/`` on all is dropped, with the word ``build`` before it: ``sm-g991b/ds``, ``pixel 6 build/sd1a``.
3. Names of makers at the front go, if what remains begins with a letter: ``samsung sm-g991b`` and ``samsung-sm-g991b``
   are ``sm-g991b``, but ``nokia 6.1`` stays.

Nothing left is null. Each step is one replacement in the syntax of RE2, which TensorFlow follows
as it stands.
"""

from __future__ import annotations

import re

#: Makers whose name precedes the model's name in some logs.
MAKERS = (
    "alcatel", "apple", "asus", "blackberry", "google", "honor", "htc", "huawei", "infinix", "itel", "lenovo", "lge", "lg",
    "meizu", "microsoft", "motorola", "nokia", "nothing", "oneplus", "oppo", "realme", "samsung", "sharp", "sony", "tcl",
    "tecno", "vivo", "xiaomi", "zte",
)  # fmt: skip

#: (pattern, replacement) after lower-casing, each applied to every match from left to right.
STEPS = (
    (r"[\t\n\v\f\r _]+", " "),
    (r"(?s)(?: build)?/.*", ""),
    (r"^ | $", ""),
    (rf"(?s)^(?:(?:{'|'.join(MAKERS)})[ \-]+)+([a-z].*)", r"\1"),
)

_UPPER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")


def device_model(text: str) -> str | None:
    """The canonical form of one device string; None if nothing is left."""
    text = text.translate(_UPPER)
    for pattern, replacement in STEPS:
        text = re.sub(pattern, replacement, text)
    return text or None
