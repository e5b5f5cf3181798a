"""What `stepwell worker` serves in crash tests: the workload's queue, its ledger named in the environment."""

import os

from tests.crash.workload import LEDGER, Bodies, handler_of
from tests.ground.ledger import Ledger

work = handler_of(Bodies(Ledger(os.environ[LEDGER])).hold)
