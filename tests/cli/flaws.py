"""What is wrong with the world of `tests.cli.shop`; tests change it."""

SOLD_OUT: set[str] = {"unicorn"}
