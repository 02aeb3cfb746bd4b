"""From the memory that a model needs of each GPU to that of the GPU to ask for. Pure.

A card that the weights fill runs out at the first token: activations, caches and the driver want
room too. So a part of the card is planned to stay free.
"""

from typing import Annotated, Final

from msgspec import Meta

from protocol.advert import MibCount
from protocol.codec import Wire
from protocol.units import Mebibytes

PPM: Final = 1_000_000
HEADROOM_PPM: Final = 200_000
"""Of the card, where the renter does not say."""
HEADROOM_PPM_MAX: Final = 900_000


class VramPlan(Wire, frozen=True, kw_only=True):
    """What a job is expected to use of each GPU, and how much is to stay free."""

    model_mib: MibCount
    headroom_ppm: Annotated[int, Meta(ge=0, le=HEADROOM_PPM_MAX)] = HEADROOM_PPM
    """Of the whole card."""

    def card_mib(self) -> Mebibytes:
        """The smallest card on which the headroom is left."""
        return Mebibytes(-(-self.model_mib * PPM // (PPM - self.headroom_ppm)))

    def options_for(self, card: Mebibytes) -> str:
        """What to type so that a card of this size will do: less headroom, or a smaller model.

        A whole per cent, rounded so that the card that comes out is never larger.
        """
        if card < self.model_mib:
            model = card * (PPM - self.headroom_ppm) // PPM
            return f"--model-vram {max(1, model)}MiB"
        percent = min((card - self.model_mib) * 100 // card, HEADROOM_PPM_MAX // 10_000)
        return f"--model-vram {self.model_mib}MiB --headroom {percent}%"
