"""The arithmetics in which programs are evaluated."""

from glenside.semantics.native import Arithmetic, Native
from glenside.semantics.prime_field import PRIMES, PrimeField

__all__ = ["PRIMES", "Arithmetic", "Native", "PrimeField"]
