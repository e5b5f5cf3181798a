"""The worker's inside: claim, call, judge, settle, beat, recover. It does not know what it serves."""
