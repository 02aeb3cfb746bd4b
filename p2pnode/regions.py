"""Names for sets of countries, so that a renter can say where its data may be."""

from collections.abc import Iterable
from typing import Final

from protocol.errors import LocalFault

_EU: Final = "AT BE BG CY CZ DE DK EE ES FI FR GR HR HU IE IT LT LU LV MT NL PL PT RO SE SI SK"
_SETS: Final = {
    "EU": _EU,
    "EEA": f"{_EU} IS LI NO",
    "EFTA": "CH IS LI NO",
    "UK": "GB",
    "DACH": "AT CH DE",
    "BENELUX": "BE LU NL",
    "NORDICS": "DK FI IS NO SE",
    "BALTICS": "EE LT LV",
    "USMCA": "CA MX US",
    "ANZ": "AU NZ",
    "GCC": "AE BH KW OM QA SA",
    "ASEAN": "BN ID KH LA MM MY PH SG TH VN",
}
"""Name -> its ISO 3166 countries."""


def regions_of(names: Iterable[str]) -> tuple[str, ...]:
    """The countries that these countries and sets name, sorted. Raises LocalFault."""
    found: dict[str, None] = {}
    for name in names:
        word = name.strip().upper()
        countries = _SETS.get(word, word).split()
        if not all(_is_country(code) for code in countries) or not countries:
            raise LocalFault(
                f"{name[:40]!a} is no region.",
                f"a country of two letters, as DE, or one of {', '.join(_SETS)}",
            )
        found.update(dict.fromkeys(countries))
    return tuple(sorted(found))


def named_region(countries: tuple[str, ...]) -> str | None:
    """The set that these countries are, if they are one."""
    return next((name for name, set_ in _SETS.items() if tuple(set_.split()) == countries), None)


def _is_country(code: str) -> bool:
    return len(code) == 2 and code.isascii() and code.isalpha()
