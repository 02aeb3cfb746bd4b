"""An owner whose host failed a job lets off what it had named for that case. SPEC.md 10.5."""

import logging

from ledger.fold import Lease
from p2pnode.execution.shop import Shop
from protocol.errors import LocalFault
from protocol.promise import delivered
from protocol.tick import Outcome
from protocol.units import Micros

log = logging.getLogger(__name__)


def let_off(shop: Shop, lease: Lease, outcome: Outcome) -> None:
    """Once for each lease, however often it is called, and not more than is owed.

    In the account it stands as paid, by our word, which takes nothing of it back.
    """
    remedy = delivered(lease.request, outcome, 0).remedy_micro
    if remedy == 0:
        return
    name = f"leases/{lease.id.hex()}/let-off"
    raw = shop.cabinet.get(name)
    if raw is None:
        # What we may come to have signed when we are asked again after a crash.
        raw = (shop.paid(lease) + remedy).to_bytes(16, "big")
        shop.cabinet.put(name, raw)
    missing = int.from_bytes(raw, "big") - shop.paid(lease)
    if missing <= 0:
        return
    try:
        shop.let_off(lease, Micros(missing))
    except LocalFault as fault:
        log.warning("remedy not given", extra={"lease": lease.id.hex(), "why": str(fault)})
