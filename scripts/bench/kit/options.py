"""How long to measure, from the command line."""

import argparse


def read(about, rounds, seconds):
    """`--rounds` and `--seconds` with these defaults, and `--built`."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--rounds", type=int, default=rounds, help="times each contender is run")
    parser.add_argument("--seconds", type=float, default=seconds, help="measured length of each run")
    parser.add_argument("--built", action="store_true", help="take the program as it was last built")
    return parser.parse_args()
