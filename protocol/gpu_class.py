"""GPU classes: buckets of VRAM under which adverts are announced and found. SPEC.md section 6."""

from typing import Final, NewType

from protocol.units import Mebibytes

GpuClass = NewType("GpuClass", int)
"""The least gigabytes (10**9 bytes) of VRAM in the class; 0 is everything below 8."""

CLASSES: Final = tuple(GpuClass(gb) for gb in (0, 8, 12, 16, 24, 32, 48, 80, 96, 141, 180))

REGION_GROUPS: Final = ("AF", "AN", "AS", "EU", "NA", "OC", "SA")


def gpu_class(vram: Mebibytes) -> GpuClass:
    """The highest class that this much VRAM reaches, with 3 % tolerance.

    Drivers report a little less than the name says: 24,564 MiB are 25.8 GB, class 24.
    """
    reached = vram * 2**20 * 103
    return max(c for c in CLASSES if c * 10**9 * 100 <= reached)


def topic_index(of_class: GpuClass, region: str, *, topics: int) -> int:
    """Which of a network's advert topics carries this class in this country. SPEC.md 6.2."""
    return place_of(of_class, group_of(region), places=topics)


def place_of(of_class: GpuClass, region_group: str, *, places: int) -> int:
    """The place of a pair of class and continent among a network's places. SPEC.md 6.2.

    With a place for each pair every pair has its own; with fewer, pairs share, and a network with
    one place has everything in it.
    """
    pair = CLASSES.index(of_class) * len(REGION_GROUPS) + REGION_GROUPS.index(region_group)
    return pair % places


def group_of(region: str) -> str:
    """The continent of an ISO 3166 country; Europe holds all that the table does not name."""
    return _GROUPS.get(region, "EU")


_COUNTRIES: Final = {
    "AF": (
        "AO BF BI BJ BW CD CF CG CI CM CV DJ DZ EG EH ER ET GA GH GM GN GQ GW KE KM LR LS LY MA "
        "MG ML MR MU MW MZ NA NE NG RE RW SC SD SH SL SN SO SS ST SZ TD TG TN TZ UG YT ZA ZM ZW"
    ),
    "AN": "AQ BV GS HM TF",
    "AS": (
        "AE AF AM AZ BD BH BN BT CC CN CX CY GE HK ID IL IN IO IQ IR JO JP KG KH KP KR KW KZ LA "
        "LB LK MM MN MO MV MY NP OM PH PK PS QA SA SG SY TH TJ TL TM TR TW UZ VN YE"
    ),
    "NA": (
        "AG AI AW BB BL BM BQ BS BZ CA CR CU CW DM DO GD GL GP GT HN HT JM KN KY LC MF MQ MS MX "
        "NI PA PM PR SV SX TC TT US VC VG VI"
    ),
    "OC": "AS AU CK FJ FM GU KI MH MP NC NF NR NU NZ PF PG PN PW SB TK TO TV UM VU WF WS",
    "SA": "AR BO BR CL CO EC FK GF GY PE PY SR UY VE",
}

_GROUPS: Final = {
    country: group for group, countries in _COUNTRIES.items() for country in countries.split()
}
