"""Token buckets: how much of something one peer may cause. Pure; the instant is an argument."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Budget(Generic[K]):
    """A bucket of `burst` tokens for each key, filled at `per_s`; at most `keys_max` keys.

    When full of keys, the one that was used longest ago is forgotten: its bucket is full again by
    then unless `keys_max` peers came in a burst.
    """

    def __init__(self, *, per_s: float, burst: float, keys_max: int) -> None:
        self._per_s = per_s
        self._burst = burst
        self._keys_max = keys_max
        self._buckets: OrderedDict[K, tuple[float, float]] = OrderedDict()

    def draw(self, key: K, now_s: float, tokens: float = 1) -> float:
        """Take so many tokens, on credit if need be; the seconds after which they are earned.

        For callers who wait that long before they act.
        """
        left = self.left(key, now_s) - tokens
        self._put(key, left, now_s)
        return max(0.0, -left / self._per_s)

    def is_within(self, key: K, now_s: float) -> bool:
        """Whether the key may have a token now; if so it is taken."""
        left = self.left(key, now_s)
        is_within = left >= 1
        self._put(key, left - 1 if is_within else left, now_s)
        return is_within

    def left(self, key: K, now_s: float) -> float:
        """The tokens that the key could take now; negative where some are owed."""
        tokens, at_s = self._buckets.get(key, (self._burst, now_s))
        return min(self._burst, tokens + (now_s - at_s) * self._per_s)

    def _put(self, key: K, tokens: float, now_s: float) -> None:
        self._buckets[key] = (tokens, now_s)
        self._buckets.move_to_end(key)
        while len(self._buckets) > self._keys_max:
            self._buckets.popitem(last=False)
