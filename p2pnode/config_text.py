"""The text of a config.toml, with an explanation of each key."""

from collections.abc import Iterable

from p2pnode.config import (
    DEFAULTS,
    Availability,
    Config,
    Pricing,
    SimulatedGpu,
    Workloads,
)
from p2pnode.config_keys import SCREENED
from p2pnode.quantities import (
    ENERGY_EXAMPLE,
    format_energy,
    format_exchange,
    format_money,
    format_percent,
    format_rate,
    format_span,
)
from protocol.units import Mebibytes


def default_config_text(config: Config = DEFAULTS) -> str:
    """The text of a file that chooses this, each key with its explanation."""
    network = config.network
    hours = "\n".join(_window_text(window, "") for window in config.availability)
    gpus = "\n".join(_gpu_text(gpu, "") for gpu in config.gpu.simulated)
    example = _gpu_text(SimulatedGpu(model="RTX 4090", vram=Mebibytes(24_564), count=2), "# ")
    return f"""\
# What this node does. A variable such as P2PNODE_NETWORK__REGION=DE goes before the line here.
schema = 1
name = {_quoted(config.name)}
roles = {_listed(config.roles)}  # owner: rents GPUs out; renter: rents them

[network]
listen = {_listed(network.listen)}
announce = {_listed(network.announce)}  # what others are told instead; empty: what is bound
bootstrap = {_listed(network.bootstrap)}  # first peers, each ends in /p2p/ and its peer id
mdns = {str(network.mdns).lower()}  # find peers on the local network, and be found there
region = {_quoted(network.region)}  # ISO 3166 country, ZZ: unknown
heartbeat = {_quoted(format_span(network.heartbeat))}  # from one advert to the next
gossip = {_quoted(network.gossip)}  # on, off; auto: on unless the only role is renter
{_bandwidth_text("down", network.down)}  # what jobs may count on; unset: adverts do not say
{_bandwidth_text("up", network.up)}
witness = {str(network.witness).lower()}  # cosign leases of others when they ask

{_pricing_text(config.pricing)}

# When the node is open; one such table for each window. Without any it is always open.
{hours or _window_text(Availability(hours="22:00-06:00 daily", tz="Europe/Berlin"), "# ")}
[gpu]
yield_to_me = {str(config.gpu.yield_to_me).lower()}  # whoever uses a GPU here goes before renters
used_above = {_quoted(format_percent(config.gpu.used_above))}  # load of others than renters' jobs
used_after = {_quoted(format_span(config.gpu.used_after))}
idle_after = {_quoted(format_span(config.gpu.idle_after))}

[workloads]
engine = {_quoted(config.workloads.engine)}  # process, docker; auto: docker where its socket is
docker_socket = {_quoted(config.workloads.docker_socket)}
{_rules_text(config.workloads)}

[renting]
lost_after = {_quoted(format_span(config.renting.lost_after))}  # then a job of ours moves
witnesses = {_listed(config.renting.witnesses)}  # feeds that must cosign before we accept a lease
quorum = {config.renting.quorum}  # how many of them; 0: more than half
rates = {_listed(map(format_exchange, config.renting.rates))}  # "EUR=1.08 USD": take euros so

[primary]  # a place of your own for jobs: dstack, kubernetes, skypilot, or a file as they are
template = {_quoted(config.primary.template)}
use = {_quoted(config.primary.use)}  # never, first, only, fallback: for jobs that do not say

# GPUs that do not exist, for test networks; one such table for each model.
{gpus or example}"""


def _pricing_text(pricing: Pricing) -> str:
    ask = f'ask = "{format_rate(pricing.ask)}"' if pricing.ask else '# ask = "0.38 USD/gpu-h"'
    prices = _optional(
        {
            f"{name} = {_quoted(example if rate is None else format_rate(rate))}": rate
            for name, example, rate in (
                ("floor", "0.30 USD/gpu-h", pricing.floor),
                ("gold_ask", "0.48 USD/gpu-h", pricing.gold_ask),
                ("gold_floor", "0.38 USD/gpu-h", pricing.gold_floor),
                ("bronze_ask", "0.19 USD/gpu-h", pricing.bronze_ask),
                ("bronze_floor", "0.15 USD/gpu-h", pricing.bronze_floor),
            )
        }
    )
    energy = ENERGY_EXAMPLE if pricing.energy is None else format_energy(pricing.energy)
    cost = _optional(
        {
            f"energy = {_quoted(energy)}": pricing.energy,
            f"watts = {pricing.watts or 400}": pricing.watts,
        }
    )
    known = pricing.newcomer_credit
    credit = (
        f'newcomer_credit = "{format_money(known.micros, known.code)}"'
        if known
        else '# newcomer_credit = "1.20 USD"'
    )
    payout = f"payout = {_quoted(pricing.payout)}" if pricing.payout else '# payout = "IBAN ..."'
    return f"""\
[pricing]
{ask}  # for one GPU and one hour
{prices}
gold_remedy = {_quoted(format_percent(pricing.gold_remedy))}  # of a gold job that this host fails
strategy = {_quoted(pricing.strategy)}  # cost-plus, or market-p40 for the 40th of 100 asks
step = {_quoted(format_percent(pricing.step))}  # a price that moves moves at most so much at once
step_every = {_quoted(format_span(pricing.step_every))}
surcharge = {str(pricing.surcharge).lower()}  # jobs that leave odd pieces of alike GPUs pay more
by_use = {str(pricing.by_use).lower()}  # whether it rises while most GPUs are leased, and falls
{cost}
margin = {_quoted(format_percent(pricing.margin))}  # on top of the energy, with cost-plus
min_lease = {_quoted(format_span(pricing.min_lease))}
max_lease = {_quoted(format_span(pricing.max_lease))}
period = {_quoted(format_span(pricing.period))}  # what is metered and paid at a time
billing = {_quoted(format_span(pricing.billing))}  # how long a renter may owe
{credit}  # what a stranger may owe; unset: the price of one billing period
{payout}  # how you are paid, told to renters who owe you
tiers = {_listed(pricing.tiers)}  # gold, silver, bronze
rails = {_listed(pricing.rails)}  # keys of payment rails whose holds count as money"""


def _rules_text(workloads: Workloads) -> str:
    """Who and what is let in; empty lists allow all, and deny none."""
    names = [f"{verdict}_{things}" for things in SCREENED for verdict in ("allow", "deny")]
    return "\n".join(f"{name} = {_listed(getattr(workloads, name))}" for name in names)


def _window_text(window: Availability, mark: str) -> str:
    lines = [
        f"hours = {_quoted(window.hours)}" if window.hours else f"file = {_quoted(window.file)}",
        f"tz = {_quoted(window.tz)}",
    ]
    if window.excepted:
        lines.append(f"except = {_listed(window.excepted)}  # dates")
    if window.closed:
        lines.append("closed = true")
    if window.floor is not None:
        lines.append(f"floor = {_quoted(format_rate(window.floor))}")
    return "".join(f"{mark}{line}\n" for line in ["[[availability]]", *lines])


def _bandwidth_text(key: str, kbit_s: int | None) -> str:
    return f'# {key} = "500Mbit/s"' if kbit_s is None else f'{key} = "{kbit_s}kbit/s"'


def _gpu_text(gpu: SimulatedGpu, mark: str) -> str:
    return (
        f"{mark}[[gpu.simulated]]\n"
        f"{mark}model = {_quoted(gpu.model)}\n"
        f'{mark}vram = "{gpu.vram}MiB"\n'
        f"{mark}count = {gpu.count}\n"
        + (f"{mark}driver = {_quoted(gpu.driver)}\n" if gpu.driver else "")
        + (f"{mark}compute = {_quoted(gpu.compute)}\n" if gpu.compute else "")
    )


def _listed(items: Iterable[str]) -> str:
    return f"[{', '.join(_quoted(item) for item in items)}]"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _optional(lines: dict[str, object | None]) -> str:
    """The lines, those without a value as comments."""
    return "\n".join(line if value is not None else f"# {line}" for line, value in lines.items())
