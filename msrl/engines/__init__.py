"""How ops, and stretches of them, are executed. Whoever imports any of it draws random numbers in straight lines."""

from msrl.engines.threefry import straighten

straighten()
