"""What bodies in processes of their own need: to be killed, to be told apart, to be tried again."""

from tests.mutants.mutant import Mutant

PROCESSES = "tests/worker/test_processes.py::"
KILLED = PROCESSES + "test_a_process_is_killed_when_its_body_takes_too_long_or_is_cancelled"
PASSED = PROCESSES + "test_arguments_results_errors_and_lines_pass"

PROCESS_MUTANTS = (
    Mutant(
        "the process of a step is not killed",
        "W-21",
        "runs/requests.py",
        "        asked.kill()\n",
        "        pass\n",
        KILLED,
    ),
    Mutant(
        "a process executes one body and no other",
        "W-21",
        "work/processes.py",
        "        if len(_idle) < MOST_IDLE:\n",
        "        if False:\n",
        PASSED,
    ),
    Mutant(
        "what a process raises loses its class",
        "W-21",
        "work/processes.py",
        '            error = found(*told["args"])\n',
        "            pass\n",
        PASSED,
    ),
    Mutant(
        "what a body logs in its process is lost",
        "W-21",
        "work/processes.py",
        '            logging.getLogger(name).log(level, "%s", message)\n',
        "            pass\n",
        PASSED,
    ),
    Mutant(
        "a body whose process dies is not tried again",
        "W-22",
        "work/processes.py",
        "            child.close()\n            raise _ended(child) from error\n",
        '            return "null"\n',
        PROCESSES + "test_a_body_whose_process_dies_is_tried_again",
    ),
)
