"""For the tests here: plans are for 0.5.2 where a test names no release."""

from __future__ import annotations

from tests.for_0_5_2 import plans_are_for_0_5_2 as plans_are_for_0_5_2
