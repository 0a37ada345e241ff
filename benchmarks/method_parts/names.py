"""How pages call methods and print numbers."""

from __future__ import annotations

NAMES = {
    "fedcanon+": "FedCanon+",
    "fedcanon": "FedCanon",
    "fedcanon2": "FedCanon II",
    "fedmid": "FedMiD",
    "fedda": "FedDA",
    "fast-fedda": "Fast-FedDA",
    "za1": "ZA1",
    "feddr": "FedDR",
    "fedadmm": "FedADMM",
    "newton": "Newton",
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "fedavg-m": "FedAvg-M",
    "fedadam": "FedAdam",
    "fedyogi": "FedYogi",
    "fedexp": "FedExP",
    "scaffold": "SCAFFOLD",
    "scaffnew": "SCAFFNEW",
    "decentralised-proxskip": "Decentralised ProxSkip",
    "fedpd": "FedPD",
    "feddyn": "FedDyn",
    "proxskip": "ProxSkip",
    "pgd": "PGD",
}
"""The names of all methods, in the order of tables."""


def short(number: float) -> str:
    """Return two digits of a number: 0.47, 1.2e-8."""
    if number == 0:
        return "0"
    if number < 1e-3:
        mantissa, _, exponent = f"{number:.1e}".partition("e")
        return f"{mantissa}e{int(exponent)}"
    return f"{number:.2g}"


def digit(number: float) -> str:
    """Return one digit of a number: 4e-1."""
    mantissa, _, exponent = f"{number:.0e}".partition("e")
    return f"{mantissa}e{int(exponent)}"
