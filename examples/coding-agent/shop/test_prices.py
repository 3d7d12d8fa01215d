import unittest

from prices import discount, total


class PricesTest(unittest.TestCase):
    def test_total(self) -> None:
        self.assertEqual(total([100, 250]), 350)

    def test_discount(self) -> None:
        self.assertEqual(discount(200, 10), 180)
