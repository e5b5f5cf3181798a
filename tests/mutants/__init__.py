"""Rules broken on purpose, one at a time: each must turn a named test red. Run with `make mutants`."""
