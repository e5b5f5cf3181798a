"""`python -m stepwell`: the command line."""

from stepwell.cli.main import main

main(prog_name="stepwell")
