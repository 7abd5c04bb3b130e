"""The two arithmetics in which programs are evaluated."""

from glenside.ir.native import Arithmetic, Native
from glenside.ir.prime_field import PRIMES, PrimeField

__all__ = ["PRIMES", "Arithmetic", "Native", "PrimeField"]
