"""What people call GPUs, held to how drivers report them."""

import pytest

from p2pnode.matching.drivers import CUDA, driver_for, version_of, version_text
from p2pnode.matching.gpu_names import is_model
from p2pnode.matching.search import Wish, search
from p2pnode.regions import regions_of
from protocol.errors import LocalFault
from protocol.units import Mebibytes
from tests.p2pnode.test_search import make_offer

REPORTED = {
    "NVIDIA H100 80GB HBM3": 81_559,
    "NVIDIA H100 PCIe": 81_559,
    "NVIDIA H100 NVL": 95_830,
    "NVIDIA H200": 143_771,
    "NVIDIA GH200 480GB": 97_871,
    "NVIDIA A100-SXM4-80GB": 81_920,
    "NVIDIA A100 80GB PCIe": 81_920,
    "NVIDIA A100-PCIE-40GB": 40_960,
    "NVIDIA A10": 23_028,
    "NVIDIA L4": 23_034,
    "NVIDIA L40": 46_068,
    "NVIDIA L40S": 46_068,
    "NVIDIA GeForce RTX 4090": 24_564,
    "NVIDIA GeForce RTX 4070": 12_282,
    "NVIDIA GeForce RTX 4070 Ti SUPER": 16_376,
    "NVIDIA GeForce RTX 4090 Laptop GPU": 16_376,
    "NVIDIA RTX A6000": 49_140,
    "NVIDIA RTX 6000 Ada Generation": 49_140,
    "Quadro RTX 6000": 24_576,
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": 97_887,
    "Tesla T4": 15_360,
    "Tesla V100-SXM2-16GB": 16_384,
    "RTX 4090": 24_564,
}
"""Name that NVML reports -> MiB that it reports with it."""


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("H100", ["NVIDIA H100 80GB HBM3", "NVIDIA H100 NVL", "NVIDIA H100 PCIe"]),
        ("h100-80gb", ["NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe"]),
        ("H100 SXM", ["NVIDIA H100 80GB HBM3"]),
        ("h100sxm5", ["NVIDIA H100 80GB HBM3"]),
        ("H100_NVL", ["NVIDIA H100 NVL"]),
        ("GH200", ["NVIDIA GH200 480GB"]),
        ("A100 80GB", ["NVIDIA A100 80GB PCIe", "NVIDIA A100-SXM4-80GB"]),
        ("a100_pcie", ["NVIDIA A100 80GB PCIe", "NVIDIA A100-PCIE-40GB"]),
        ("A100-40GB", ["NVIDIA A100-PCIE-40GB"]),
        ("A10", ["NVIDIA A10"]),
        ("L4", ["NVIDIA L4"]),
        ("l40", ["NVIDIA L40"]),
        ("L40S", ["NVIDIA L40S"]),
        ("RTX4090", ["NVIDIA GeForce RTX 4090", "RTX 4090"]),
        ("4090", ["NVIDIA GeForce RTX 4090", "RTX 4090"]),
        ("4090 laptop", ["NVIDIA GeForce RTX 4090 Laptop GPU"]),
        ("rtx 4070", ["NVIDIA GeForce RTX 4070"]),
        ("4070tisuper", ["NVIDIA GeForce RTX 4070 Ti SUPER"]),
        ("A6000", ["NVIDIA RTX A6000"]),
        ("RTX6000Ada", ["NVIDIA RTX 6000 Ada Generation"]),
        ("rtx pro 6000", ["NVIDIA RTX PRO 6000 Blackwell Server Edition"]),
        ("T4", ["Tesla T4"]),
        ("V100-16GB", ["Tesla V100-SXM2-16GB"]),
        ("tesla", ["Tesla T4", "Tesla V100-SXM2-16GB"]),
        ("H300", []),
        ("-", []),
    ],
)
def test_b6_a_name_means_the_models_that_people_call_so(name: str, meant: list[str]) -> None:
    found = [model for model, mib in REPORTED.items() if is_model(model, name, Mebibytes(mib))]
    assert sorted(found) == meant


@pytest.mark.parametrize("model", REPORTED)
def test_b6_a_model_is_found_by_the_name_under_which_it_is_shown(model: str) -> None:
    assert is_model(model, model, Mebibytes(REPORTED[model]))


@pytest.mark.parametrize("name", ["H100", "h100-80gb", "4090", "A100 80GB", "L40S"])
def test_b6_a_name_beside_a_size_narrows_what_the_size_finds_and_leaves_the_model(
    name: str,
) -> None:
    offers = [
        make_offer(number, model=model, vram_mib=mib)
        for number, (model, mib) in enumerate(REPORTED.items())
    ]
    least = Mebibytes(24_000)
    by_size = search(offers, Wish(vram_min=least)).fits
    by_both = search(offers, Wish(vram_min=least, models=(name,))).fits
    assert by_both
    assert [offer for offer in by_both if offer in by_size] == by_both


def test_sets_of_countries_are_their_countries() -> None:
    assert len(regions_of(["EU"])) == 27
    assert set(regions_of(["eea"])) - set(regions_of(["EU"])) == {"IS", "LI", "NO"}
    assert regions_of(["us", "DACH", "DE"]) == ("AT", "CH", "DE", "US")
    assert regions_of(["UK"]) == ("GB",)


@pytest.mark.parametrize("name", ["", "EUROPE", "D1", "D"])
def test_what_is_no_region_is_refused_with_those_that_are(name: str) -> None:
    with pytest.raises(LocalFault, match="no region"):
        regions_of([name])


def test_a_newer_cuda_never_needs_an_older_driver() -> None:
    needed = [CUDA[version] for version in sorted(CUDA)]
    assert needed == sorted(needed)
    assert driver_for("12.4") == (550, 54, 14)
    assert driver_for("12.7") == driver_for("12.8")
    assert driver_for("9.0") == driver_for("11.0")
    for text in ("14.0", "12", "new"):
        with pytest.raises(LocalFault):
            driver_for(text)


def test_versions_are_numbers_and_written_as_they_are_known() -> None:
    assert version_of("535.104.05") == (535, 104, 5)
    assert version_of("570.00.fake") is None
    assert version_text((535, 54, 3)) == "535.54.03"
