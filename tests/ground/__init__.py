"""The ground the tests stand on: real databases, real faults, real processes, and a witness outside the library."""
