"""Exchanges as a controller sees them, as the laws of controllers have them."""

from harness.contract.controllers import seen as seen
