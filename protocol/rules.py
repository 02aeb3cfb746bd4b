"""The rules bundle that this program judges by, named by the digest of its content.

SPEC.md 4.3. A pair of kind and version never changes its meaning, so peers with equal digests
judge every message of these kinds alike.
"""

from hashlib import sha256
from typing import Final

from protocol.codec import encode_plain
from protocol.units import Digest

RULES: Final = encode_plain({"v": 1, "kinds": {"advert": 1, "certificate": 1}})

RULES_DIGEST: Final = Digest(sha256(RULES).digest())
