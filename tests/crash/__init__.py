"""Workers that are killed, frozen, blocked, stopped and cut off, judged by a ledger that stepwell does not know of."""
