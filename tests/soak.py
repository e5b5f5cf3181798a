"""The long runs: `python -m tests.soak` runs these tests at full size and makes docs/proof.md of what they measured.

The same tests as in `make test`, with more processes, more messages, fuller tables, longer outages and the default
lease. A run whose faults did not land fails, so every number in the report was paid for.

It takes more than an hour. What was green is kept in `.soak`, by the code it was green with: after an interruption, or
when a red test is mended in the test alone, the next call goes on with what is left. The report names what was red
before. `python -m tests.soak WORD ...` runs the files whose name holds one of the words, again if they were green;
`--report` alone writes the report of what is green, which names what is not; `--code` prints the fingerprint of the
code here, to compare with the one in the report.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
REPORT = ROOT / "docs" / "proof.md"
KEPT = ROOT / ".soak"
TESTS = (
    "tests/crash",
    "tests/broadcasts/test_crashes.py",
    "tests/sweep",
    "tests/store/test_full_size.py",
    "tests/store/test_plans.py",
    "tests/store/test_bounds.py",
    "tests/store/test_flat_reads.py",
    "tests/store/test_growth.py",
    "tests/store/test_keys.py",
    "tests/upkeep/test_pace.py",
    "tests/store/test_many_queues.py",
    "tests/store/test_contention.py",
    "tests/store/test_open_transactions.py",
    "tests/store/test_deadlocks.py",
    "tests/waiting/test_many_children.py",
    "tests/queue/test_joined_table.py",
    "tests/deciders/test_crashes.py",
    "tests/store/test_core_alone.py",
    "tests/deciders/test_order_open.py",
    "tests/versions/test_shop.py",
    "tests/ui/test_big_store.py",
    "tests/ui/test_wild.py",
    "tests/cli/test_demo.py::test_it_brings_a_postgres_of_its_own",
    "tests/cli/test_demo.py::test_it_tells_its_story_at_its_own_pace",
)
BACKENDS = {"postgres": "Postgres", "sqlite": "SQLite", "turso": "Turso"}

Numbers = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Promise:
    """A promise, and how the numbers of one run hold it up."""

    title: str
    words: str
    proof: Callable[[Numbers], str]


PROMISES = {
    "kill": Promise(
        "Killed workers lose nothing",
        "A random worker is SIGKILLed every 0.5 s (Turso, one process: as soon as it works) and replaced; lease 2 s. "
        "Each message is acknowledged exactly once and none is lost, by the count of the database and of a ledger that "
        "stepwell does not know of. Void unless 5 % of the messages were executed more than once.",
        lambda of: (
            f"{_processes(of['processes'])}, {of['messages']:,} messages, {of['kills']} kills: "
            f"{of['executed_again']:,} messages ({of['executed_again'] / of['messages']:.0%}) executed more than once, "
            f"{of['messages']:,} acknowledged once, 0 lost, in {of['seconds']:.0f} s"
        ),
    ),
    "broadcast": Promise(
        "Killed publishers and workers tell all of an event or none, each once and in one order",
        "Runs read events in a loop, workflows are triggered by them. A process sends events, each in a transaction "
        "with a row of its own, and is SIGKILLed again and again, as are the workers. Every run has read exactly the "
        "events that have a row, all in the same order, and every workflow has one run for each.",
        lambda of: (
            f"{of['readers']:,} runs and {of['workflows']} workflows, {of['events']} events, {of['publishers']} "
            f"publishers and {of['kills']} workers killed: 0 missed, 0 told twice, one order"
        ),
    ),
    "kill runs": Promise(
        "Killed workers lose no run and repeat no recorded step",
        "Four workers execute runs of five steps; one of them is SIGKILLed every 0.5 s and replaced; lease 2 s. Every "
        "run finishes with the results that its bodies returned, every replay gets the same ones, and no step starts "
        "after the one that follows it, by a ledger that stepwell does not know of.",
        lambda of: (
            f"{of['runs']:,} runs, {of['kills']} kills: {of['steps_executed_again']:,} steps executed more than once "
            f"before they were recorded, 0 after it, 0 runs lost, in {of['seconds']:.0f} s"
        ),
    ),
    "projections": Promise(
        "Killed projections skip nothing and apply nothing twice",
        "On Postgres 20 writers at once, with transactions that are slow, rolled back, rolled back to a savepoint, "
        "prepared, or stay open; on SQLite 20 plain ones, on Turso one. Two workers (Turso: one) drive two projections "
        "and a second build of each; the one at work is SIGKILLed 0.5 s after it has taken over, and replaced, and "
        "one is SIGSTOPped inside its transaction. Every event is in the read model once, in the order of positions, "
        "and the rebuilt tables are equal row by row. The take-over is measured from the kill to the next event "
        "handled.",
        lambda of: (
            f"{of['events']:,} events by {of['kinds']} kinds of transactions, {of['kills']} kills: 0 skipped, 0 twice, "
            f"0 out of order; taken over after {of['fastest']:.1f} to {of['slowest']:.1f} s at a lease of "
            f"{of['lease']:g} s"
            + (f", after the freeze in {of['frozen']:.1f} s" if of["frozen"] else "")
            + f"; {of['seconds']:.0f} s in all"
        ),
    ),
    "inbox": Promise(
        "Submitted inputs are decided once, in the order of their commits",
        "Clients in processes of their own submit inputs to a few instances; workers decide them, and are SIGKILLed "
        "and replaced; lease 2 s. Every acknowledged input is decided once, and none before one that was acknowledged "
        "when it was begun, by a ledger that stepwell does not know of; upkeep has to wake no one. Workers take along "
        "what waits behind the first input of an instance, or decide one at a time.",
        lambda of: (
            f"{of['inputs']:,} inputs of {of['instances']} instances, "
            f"{'taken along' if of['together'] else 'one at a time'}, {of['kills']} kills: 0 lost, 0 twice, "
            f"0 out of order, in {of['seconds']:.0f} s"
        ),
    ),
    "stuck instance": Promise(
        "An instance that is stuck does not hold the others up",
        "Sixty inputs wait for one instance, which another transaction holds locked, or whose decider raises; one "
        "worker of twenty places. How long an input of another instance takes from submit to decision, and without "
        "the stuck one.",
        lambda of: (
            f"{of['stuck']}: p99 {of['p99_beside'] * 1000:.0f} ms beside it, {of['p99_without'] * 1000:.0f} ms without"
        ),
    ),
    "stream": Promise(
        "Readers of a stream get every chunk once, in order",
        "A run streams while its workers are SIGKILLed, and others go on with it; processes read it from three "
        "offsets until it ends. Void unless workers that wrote it were killed.",
        lambda of: (
            f"{of['streams']} streams, {of['chunks']:,} chunks, {of['readers']} readers each, {of['kills']} kills: "
            f"0 chunks lost, 0 read twice, in {of['seconds']:.0f} s"
        ),
    ),
    "burst": Promise(
        "The last of a debounced burst is handled, and none twice",
        "A producer for each key sends debounced messages, and workers handle them; producers and workers are "
        "SIGKILLed in turn and replaced; lease 2 s. The last message of each key is handled; no message changes after "
        "it has begun, and no call is handled under two ids. Void unless enough of them were killed.",
        lambda of: (
            f"{of['calls']:,} calls, {of['kills']} kills: {of['handled']:,} turns, 0 calls lost, 0 handled twice, "
            f"in {of['seconds']:.0f} s"
        ),
    ),
    "versions": Promise(
        "An old worker beside a new one spends no attempt",
        "Messages, runs, inputs and effects of version 3 of a program, claimed by a worker of version 1 again and "
        "again: it leaves each to newer code, which then does them all in their first attempt.",
        lambda of: f"{of['claims']:,} claims by old code: 0 attempts spent, 0 dead letters",
    ),
    "held interpreter": Promise(
        "A held interpreter costs nothing, a stopped one is noticed",
        "Two workers; a body of one of them calls into C and holds the interpreter for many leases: no thread of its "
        "process runs. Its helper beats. Void unless the other worker worked meanwhile. Then a worker is stopped "
        "(SIGSTOP) and its message is taken over, even if it has a helper too.",
        lambda of: (
            f"held for {of['held']:g} s at a lease of {of['lease']:g} s among {of['messages']:,} messages: "
            f"{of['twice']} executed twice, no session declared dead; stopped: taken over after "
            f"{of['stopped_seconds']:.1f} s"
        ),
    ),
    "gone": Promise(
        "A killed worker is taken over at once",
        "A worker below `stepwell worker` is SIGKILLed with a message under way; the time to its next start elsewhere, "
        "or in the worker that is started anew. On SQLite a free file lock tells, on Postgres the supervisor.",
        lambda of: (
            f"lease {of['lease']:g} s, {of['kills']} kills: {of['kills'] - of['late']} of {of['kills']} within 2 s, "
            f"the slowest after {of['slowest']:.1f} s"
        ),
    ),
    "freeze": Promise(
        "A frozen worker writes nothing late",
        "A worker is stopped (SIGSTOP) beyond its lease in the moment its messages are done, another one takes them "
        "over, and the first is continued. Its writes meet messages that are acknowledged and messages under way; it "
        "goes on under a new session.",
        lambda of: f"{of['late_writes']} late writes, {of['refused']} refused by the database, 0 rows changed",
    ),
    "zombie": Promise(
        "A worker that is frozen in a transaction of a step writes nothing late, and holds up no other",
        "The step writes a row and a message through `store.transaction()`. Its worker is stopped (SIGSTOP) before the "
        "transaction, before the first row or before the commit, and continued when others have done its runs. On "
        "SQLite no other can write while a transaction is open, so there it is continued after one and a half "
        "leases.",
        lambda of: (
            f"{of['point']}: {of['runs']} runs, {of['done_meanwhile']} done by another worker while the first was "
            f"frozen, {of['refused']} late transactions refused, 0 rows or messages twice"
        ),
    ),
    "outage": Promise(
        "An outage costs time and nothing else",
        "Postgres is SIGKILLed and stays away; SQLite's file is locked by another process. Three workers hold on, "
        "log at most a line a second, and go on without a restart. No session is declared dead, and what was done "
        "while the database was away is recorded without running again.",
        lambda of: (
            f"lease {of['lease']:.0f} s, {of['seconds']:.0f} s away: {of['finished_meanwhile']} bodies ended "
            f"meanwhile, {of['executed_again']} of {of['messages']:,} messages executed again, 0 sessions lost, "
            f"at most {of['lines']} lines a process, all at work again after {of['resumed_after']:.1f} s"
        ),
    ),
    "recovery": Promise(
        "The tasks of a killed worker are taken over",
        "Without a helper within the lease and 5 s. At once on SQLite, because a file lock shows that the process is "
        "gone, and on Postgres with a helper (lease 60 s).",
        lambda of: f"lease {of['lease']:.0f} s: executed by another worker after {of['seconds']:.1f} s",
    ),
    "restart": Promise(
        "A rolling restart executes nothing twice",
        "Workers are stopped by SIGTERM in the middle of their work and replaced. Every message has one attempt, so "
        "one that lost it to a restart would be a dead letter.",
        lambda of: (
            f"{_processes(of['processes'])}, {of['messages']:,} messages, {of['restarts']} restarts: "
            f"{of['executed_again']} executed twice, 0 lost, every exit code 0, in {of['seconds']:.0f} s"
        ),
    ),
    "generations": Promise(
        "A run that restarts receives every acknowledged signal and request once",
        "An entity restarts after every one to five turns of its loop while two processes send it signals and a third "
        "one asks it, and the worker that executes it is SIGKILLed about every 0.7 s; lease 2 s. Each signal that was "
        "acknowledged, and each request, is received by one step of one generation, by a ledger that stepwell does not "
        "know of, and each request has its answer. Void unless eight of its workers were killed.",
        lambda of: (
            f"{of['entities']} entities, {of['signals']} signals, {of.get('requests', 0)} requests, "
            f"{of['generations']} generations, {of['kills']} kills: 0 lost, 0 received twice, in {of['seconds']:.0f} s"
        ),
    ),
    "release": Promise(
        "Work that outlasts the grace time is given back",
        "After SIGTERM and the grace time, a body that is not done is released with its attempt, for another worker.",
        lambda of: f"grace {of['grace']:.0f} s: executed by another worker {of['seconds']:.1f} s after SIGTERM",
    ),
    "poison": Promise(
        "A task that kills its worker is found, and takes no other with it",
        "Three workers of 15 places execute tasks of which some end the process: three exit, two abort, one takes "
        "memory until it is killed for it (by itself, as soon as it has 256 MiB). They have 2 to 4 attempts, every "
        "other task has 2. Each of them is claimed exactly as often as it may be, after the first time with nothing "
        "beside it, and no other is a dead letter, by a ledger that stepwell does not know of. Void unless others were "
        "lost with them.",
        lambda of: (
            f"{of['kind']}, {of['seeds']} times: {of['poisons']} deadly tasks dead-lettered after {of['starts']} "
            f"starts and {of['unseen']} claims that ended before the start, {of['innocents']:,} others acknowledged, "
            f"{of['lost_with_others']} of them after they were lost with a worker, 0 dead-lettered, "
            f"in {of['seconds']:.0f} s"
        ),
    ),
    "poison outside": Promise(
        "Who is lost with a killed worker loses no attempt",
        "A worker that has several tasks under way is SIGKILLed from outside, again and again. What it had is executed "
        "alone afterwards, as the same attempt.",
        lambda of: (
            f"{of['messages']:,} messages, {of['kills']} kills: {of['lost_with_others']} executed more than once, "
            "every one acknowledged in its first attempt"
        ),
    ),
    "signal race": Promise(
        "A signal races with the end of its wait: exactly one wins",
        "Two processes send each run a signal about when its wait is over, or when the run is; two others execute it. "
        "A signal that woke is what the wait returned, one that was kept is taken or not as it returned, one that came "
        "too late is nowhere; and every replay saw the same, by a ledger that stepwell does not know of. Void unless "
        "each answer was a tenth of them.",
        lambda of: (
            f"{of['races']:,} races: {of['woke']:,} woke, {of['kept']:,} kept, {of['too_late']:,} too late, "
            f"0 answers untrue, in {of['seconds']:.0f} s"
        ),
    ),
    "cancel race": Promise(
        "A cancel races with the end of its run: exactly one wins",
        "Two processes cancel each run while it works, sleeps or completes; two others execute them. A run that was "
        "cancelled, or asked to stop, ends CANCELLED and without a result; one for which it was too late keeps its "
        "own. Void unless each answer was a tenth of them.",
        lambda of: (
            f"{of['races']:,} races: {of['cancelled']:,} cancelled, {of['requested']:,} requested, "
            f"{of['too_late']:,} too late, 0 answers untrue, in {of['seconds']:.0f} s"
        ),
    ),
    "control": Promise(
        "Cancel and pause are heard with the next record",
        "Two processes execute runs of three branches, fifty at a time; a third cancels or pauses each at some moment "
        "of its life. After the answer each branch begins at most one more step; a run that was cancelled ends "
        "CANCELLED, one that was paused is PAUSED and comes to its end when it is let go, by a ledger that stepwell "
        "does not know of. Void unless some branch began one.",
        lambda of: (
            f"{of['cancelled']:,} cancelled, {of['paused']:,} paused, {of['too_late']:,} too late: "
            f"{of['late']:,} branches of {of['late_runs']:,} runs began one more step, 0 more than one; "
            f"0 paused runs went on, in {of['seconds']:.0f} s"
        ),
    ),
    "cleanup": Promise(
        "A cleanup survives",
        "Runs that have reserved something are cancelled while they work or sleep; they undo it inside a shield. A "
        "third of the undos fail at first, and workers are SIGKILLed while undos are under way; lease 2 s. Every run "
        "ends CANCELLED with its undo done, and begins nothing else, by a ledger that stepwell does not know of.",
        lambda of: (
            f"{of['runs']:,} runs, {of['slept']:,} of them asleep, {of['kills']} kills: {of['failed']:,} undos failed "
            f"first, {of['again']:,} were cut off and executed again, 0 lost, in {of['seconds']:.0f} s"
        ),
    ),
    "sweep": Promise(
        "A run survives the loss of its worker at any database call",
        "The worker is cut off before a call reaches the database, and another time after the database did it and "
        "before the worker heard; for every call of runs of every shape, with loops, gathers, task groups, sleeps, "
        "retries, compensation, signals, children, races and cancels. Each crash happened. Another worker ends each "
        "run with the same result and the same recorded steps, and a ledger shows that no body whose outcome was "
        "recorded was executed again.",
        lambda of: (
            f"{of['flows']} {of['kind']} workflows, {of['calls']} database calls, {of['cases']} crashes: "
            "0 results or recorded steps differ, 0 recorded bodies executed again"
        ),
    ),
    "trees": Promise(
        "A random workflow survives the loss of its worker",
        "Random trees of sequences, loops, branches, gathers, task groups, failing steps, sleeps, waits for signals, "
        "children, races and cancelled runs, under random schedules, each cut off at a random database call.",
        lambda of: (
            f"{of['trees']} workflows with {of['steps']:,} recorded steps, {of['crashes']} crashes: "
            "0 results or recorded steps differ"
        ),
    ),
    "flat": Promise(
        "A worker uses after ten minutes what it used after one",
        "Four workers at the same time: two have nothing to do, two get 100 messages a second, half of them for a sync "
        "body, from another process. Compared are the medians of the first minute after a minute of warming up and of "
        "the last: files, threads and connections are equal, and no type has more objects than may be under way.",
        lambda of: (
            f"{of['kind']}, {of['messages']:,} messages: {of['early']:.1f} MiB, then {of['late']:.1f} MiB; "
            f"{of['files']} files, {of['threads']} threads"
            + (f", {of['connections']} connections" if of["connections"] else "")
        ),
    ),
    "claim": Promise(
        "A claim costs the same in a small store and in a large one",
        "With 1,000 ready, 1,000 scheduled and 1,000 finished tasks, then with many more. On Postgres the plans were "
        "made while the table was empty, and what is counted are pages touched, those of the writes included; on "
        "SQLite it is instructions of its machine.",
        lambda of: (
            f"{of['ready']:,} ready, {of['scheduled']:,} scheduled and {of['finished']:,} finished tasks: "
            f"claim of ten {_grown(of, 'claim')} {of['unit']}"
            + (f" ({of['found']} to find and lock them)" if of["found"] else "")
            + f", claim of one {_grown(of, 'one')}, settle of ten {_grown(of, 'settle')}, "
            f"sweep {_grown(of, 'wake')}, next due {_grown(of, 'due')}"
        ),
    ),
    "plans": Promise(
        "Every statement keeps to the bound that stands beside it",
        "Prepared on an empty database, never analysed or analysed while it was empty, then filled without ANALYZE and "
        "with autovacuum off. Every statement with several rows and with one; of flushes every part with all that may "
        "ride on it, every pair of parts, and all at once. Counted are the buffers of Postgres.",
        lambda of: (
            f"{of['tasks']:,} tasks, {of['steps']:,} steps, {of['instances']:,} instances, {of['events']:,} events, "
            f"{'analysed while empty' if of['analysed'] else 'never analysed'}: {of['statements']} statements and "
            f"{of['flushes']} flushes within their bounds; "
            + ", ".join(f"{name} {cost}" for name, cost in of["reads"].items())
            + f" buffers, the dearest flush {of['dearest']}"
        ),
    ),
    "growth": Promise(
        "A store at full size costs no more than a small one",
        "Every statement that has a bound, with plans made on an empty store, beside 4,000 tasks and beside these, "
        "never analysed and analysed; then what callers and people ask, as medians. The runs ended in the last hour.",
        lambda of: (
            f"{of['finished']:,} finished runs, {of['steps']:,} steps, {of['waiting']:,} waiting runs and "
            f"{of['ready']:,} ready messages, {of['statements']} statements: "
            + ", ".join(f"{name} {_change(few, full)}" for name, (few, full) in of["told"].items())
            + f" {of['unit']}; "
            + ", ".join(f"{name} {took:.1f} ms" for name, took in of["times"].items())
        ),
    ),
    "pace": Promise(
        "Plain deletes keep up with what is finished",
        "Finished runs with two steps each are added at a steady rate, and what is older than two seconds is removed "
        "beside it, by the rounds of one worker's upkeep; autovacuum as the server comes. The tables do not grow from "
        "the middle to the end.",
        lambda of: (
            f"{of['rate']:,} tasks a second for {of['seconds']:.0f} s: {of['added']:,} added, never more than "
            f"{of['backlog']:,} that were too old, {of['middle']:.0f} MiB in the middle and {of['end']:.0f} at the end"
        ),
    ),
    "rotation": Promise(
        "A rotator of keys may die at any moment",
        "One process rotates the keys of an encrypted store to and fro and is SIGKILLed while another enqueues and "
        "handles messages. Afterwards every one was handled, and is read with the one key that is left.",
        lambda of: (
            f"{of['messages']:,} messages in {of['seconds']:.0f} s; {of['kills']:,} kills, {of['cut_off']:,} of them "
            f"while it rotated; {of['rotated']:,} rotations came to their end"
        ),
    ),
    "pruned events": Promise(
        "Old events are pruned and nobody notices",
        "Events that were published long ago are removed by one `prune`, a thousand in a transaction, while another "
        "connection emits, enqueues, takes and archives without a pause. Each of these calls is timed, also before.",
        lambda of: (
            f"{of['published']:,} in {of['seconds']:.0f} s; of {of['calls']:,} calls beside it the slowest took "
            f"{of['worst_beside']:.1f} ms, and {of['worst_calm']:.1f} ms before"
        ),
    ),
    "flat reads": Promise(
        "Reads by id and key cost the same in a full store",
        "Through the store's own connections, whose plans were made while it was empty; medians of many calls.",
        lambda of: ", ".join(
            f"{name} {few:.2f} ms at {of['few']:,} runs and {many:.2f} at {of['many']:,}"
            for name, (few, many) in of["times"].items()
        ),
    ),
    "snapshot": Promise(
        "A snapshot held open elsewhere does not make claims slower",
        "Another transaction stays open, so nothing that was claimed since can be cleaned up.",
        lambda of: (
            f"claim of ten, before and after {of['claimed']:,} others: {of['first']} and {of['last']} pages; "
            f"from the beginning of the index it would be {of['plain_first']} and {of['plain_last']:,}"
        ),
    ),
    "queues": Promise(
        "A thousand queues cost a claim little",
        "A claim of ten from the only queue with work: alone, among the others, and by a worker that serves them all "
        "and comes to it first or last.",
        lambda of: (
            f"{of['alone']:,} {of['unit']} alone, {of['among']:,} among {of['queues']:,}, "
            f"serving all {of['first']:,} if it comes first and {of['last']:,} if it comes last"
        ),
    ),
    "claim time": Promise(
        "A claim takes as long among a thousand queues, and above much that waits",
        "Ten messages of the only queue with work, claimed by one session; of fifty claims the fastest.",
        lambda of: (
            f"{of['alone']:.2f} ms alone, {of['among']:.2f} ms among {of['queues']:,} queues, {of['above']:.2f} ms "
            f"with {of['waiting']:,} more waiting"
        ),
    ),
    "crowd": Promise(
        "Fifty sessions that claim few tasks do not wait for each other",
        "All claim before any of them commits, so the later ones meet only locked tasks.",
        lambda of: (
            f"{of['sessions']} sessions, {of['tasks']} tasks: the first claim {of['first']} pages, the third "
            f"{of['third']}, the last {of['last']}, none waiting for a lock"
        ),
    ),
    "stalls": Promise(
        "An open transaction holds up only those who need what it holds",
        "Transactions of every library stay open, each with a call of one verb that takes `tx=`, and some that hold "
        "several keys, a run under way or the parent of runs that end. Beside them, in another store, enqueues, "
        "triggers, runs with steps and signals, and decisions that need nothing of it come back within a quarter of a "
        "second each; a call that needs what one of them holds is not answered before the commit.",
        lambda of: (
            f"{of['libraries']} libraries x {of['verbs']} verbs, {of['held']} transactions open for "
            f"{of['seconds']:.0f} s: {of['calls']:,} other calls, the slowest ({of['verb']}) took "
            f"{of['worst'] * 1000:.0f} ms"
        ),
    ),
    "writers": Promise(
        "Where a file has one writer, who waits is told who writes",
        "A transaction of every library stays open, with a call of each verb. Another store is refused in time, and "
        "the error says that another connection or process writes the file, and for how long.",
        lambda of: f"{of['libraries']} libraries x {of['verbs']} verbs: {of['told']} of {of['cells']} told",
    ),
    "deadlocks": Promise(
        "No two verbs wait for each other",
        "Every pair of verbs at once on the same rows, each changed row taking 3 ms more, while the server looks for "
        "deadlocks after 5 ms. No verb fails.",
        lambda of: f"{of['first']} beside the verbs after it: {of['pairs']} times, 0 deadlocks",
    ),
    "joined": Promise(
        "A call with `tx=` is there with your commit, or never was",
        "Every verb that takes `tx=`, through every library that it takes, the transaction committed, rolled back, or "
        "committed after the caller has caught an error of the call: at each of its statements one time, raised by "
        "the database or by the program. Another connection finds exactly what was promised, and the user's own row.",
        lambda of: (
            f"{'a worker alive' if of['alive'] else 'no worker'}, {of['drivers']} libraries x {of['verbs']} verbs x "
            f"{of['ends']} ends: {of['cells']} cells, {of['faults']:,} errors caught by the caller, {of['wrong']} wrong"
        ),
    ),
    "outbox": Promise(
        "Every event of an outbox arrives under one id, and in the order of its subject",
        "A sink fails, hangs, stores an event and says that it did not, or its process is SIGKILLed between publishing "
        "and marking. A ledger that stepwell does not know of has what arrived. Void unless events arrived again.",
        lambda of: (
            f"{of['events']:,} events, {of['kills']} kills: {of['arrived_again']:,} arrived again under their id, "
            f"0 lost, 0 out of order, in {of['seconds']:.0f} s"
        ),
    ),
    "commits": Promise(
        "The rows of a transactional step and its result are committed together, once",
        "Its worker is SIGKILLed or frozen beyond its lease before, at or after the commit; another worker goes on. "
        "The user's own rows and the records of the runs are compared.",
        lambda of: f"{of['case']}: {of['runs']} runs, rows and records agree, none twice",
    ),
    "limits": Promise(
        "No more of a limited queue runs at once than its limits say",
        "A random worker is SIGKILLed every 0.6 s; lease 2 s. A reader looks at the rows all the time, and a ledger "
        "that stepwell does not know of has the bodies under way. Void unless a limit was reached, and messages were "
        "executed again.",
        lambda of: (
            f"{of['limits']}, {of['messages']:,} messages, {of['kills']} kills: at most {of['most']} at once and "
            f"{of['most_of_a_key']} of a key, in {of['looks']:,} looks; {of['again']} executed again, 0 lost, in "
            f"{of['seconds']:.0f} s"
        ),
    ),
    "order of keys": Promise(
        "The tasks of a key are executed in the order of their commits",
        "Three producers add to the same keys of `Limits(ordered=True)` while a random worker is killed every 0.6 s; "
        "lease 2 s. A ledger that stepwell does not know of has when each add began and was committed, and when each "
        "body began and ended. Void unless messages were executed again.",
        lambda of: (
            f"{of['messages']:,} messages, {of['kills']} kills: of {of['pairs']:,} pairs of which one was committed "
            f"before the other was added, 0 in the wrong order; {of['again']} executed again"
        ),
    ),
    "keys": Promise(
        "Neither many keys nor a noisy one make a claim of a limited queue dearer",
        "Postgres, plans made on empty tables. Buffers a task of a claim of 1, 10 and 50: of 1,000 keys, the same "
        "beside one key with a million waiting tasks, and of 100,000 keys.",
        lambda of: (
            f"{'with' if of['rates'] else 'no'} rates: {_each(of['few'])} buffers a task of {of['keys']:,} keys, "
            f"{_each(of['beside'])} beside {of['noisy']:,} tasks of one, {_each(of['of_many'])} of {of['many']:,} keys"
        ),
    ),
    "rates": Promise(
        "No window of a second holds more units that begin than the rate of a queue says",
        "Two processes share a rate of 50 a second, of messages that cost 1 to 4; one of them is SIGKILLed from time "
        "to time, lease 2 s. A reader notes when each turn was claimed. Void unless most of the rate was used.",
        lambda of: (
            f"{of['messages']:,} messages, {of['units']:,} units, {of['kills']} kills: at most {of['most']} in a "
            f"second; {of['again']} claimed again, 0 lost, in {of['seconds']:.0f} s"
        ),
    ),
    "dashboard": Promise(
        "Every page of the dashboard is small and quick however much the store holds",
        "A store of that size, with dead letters, a run of many steps, a large payload and an instance of many events. "
        "Each page is asked for three times by HTTP, and the shortest time counts; the statements of each are counted.",
        lambda of: (
            f"{of['runs']:,} runs, {of['pages']} pages: slowest {of['slowest'][1] * 1000:.0f} ms ({of['slowest'][0]}), "
            f"largest {of['largest'][1] / 1024:.0f} KiB, at most {of['most'][1]} statements"
        ),
    ),
    "children": Promise(
        "A run waits for many children without being executed meanwhile",
        "One run asks for all of them at once and waits for what they return; it and they are executed by one worker, "
        "with the test in its process.",
        lambda of: (
            f"{of['children']:,} children: their parent was claimed {of['turns']} times and told of their ends in "
            f"{of['wakes']:,} flushes; {of['seconds']:.0f} s, {of['megabytes']} MiB"
        ),
    ),
}


def main() -> int:
    """Run what is left, print a line for each promise, and write the report; 1 if not all held with this code."""
    words, code = sys.argv[1:], fingerprint()
    if words == ["--code"]:
        _say(code)
        return 0
    KEPT.mkdir(exist_ok=True)
    kept = [_Part(file, code) for file in _files()]
    for part in kept:
        if any(word in part.file for word in words) if words else not part.is_green:
            part.run()
    measured = [line for part in kept for line in part.measured()]
    for promise, backend, proof in _proofs(measured):
        _say(f"{promise.title} · {BACKENDS[backend]}: {proof}")
    left = [part.file for part in kept if not part.is_green]
    if left:
        _say(f"not green with this code: {', '.join(left)}")
    if not left or "--report" in words or not words:
        red = [part.story() for part in kept if part.reds() and part.is_green]
        REPORT.write_text(report(measured, red, left, code), encoding="utf-8")
        _say(f"written: {REPORT.relative_to(ROOT)}")
    return 1 if left else 0


class _Part:
    """One file of tests: whether it was green with this code, what it measured, and how often it was red before."""

    def __init__(self, file: str, code: str) -> None:
        self.file = file
        name = file.replace("/", ".").replace("::", "-")
        self._green = KEPT / f"{name}.{code}.green"
        self._red = KEPT / f"{name}.{code}.red"

    @property
    def is_green(self) -> bool:
        return self._green.exists()

    def run(self) -> None:
        began = time.monotonic()
        self._green.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "measured"
            path.touch()
            code = _run(path, self.file)
            if code == 0:
                self._green.write_text(path.read_text())
            else:
                with self._red.open("a") as red:
                    red.write(f"exit code {code}\n")
        _say(f"{'green' if code == 0 else 'RED'} {self.file}, {time.monotonic() - began:.0f} s")

    def measured(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._green.read_text().splitlines()] if self.is_green else []

    def reds(self) -> int:
        return len(self._red.read_text().splitlines()) if self._red.exists() else 0

    def story(self) -> str:
        return f"{self.file} ({self.reds()})"


def report(measured: Iterable[dict[str, Any]], red: Sequence[str], left: Sequence[str], code: str) -> str:
    """The page that tells what was measured; nothing in it names a day or a machine."""
    proofs = list(_proofs(measured))
    lines = [
        "# Proof",
        "",
        "What `make soak` saw: real processes, real signals, real databases. The numbers are",
        "from two cores that other programs shared; `make test` runs the same tests at a smaller size. A run whose",
        f"faults did not land is void and fails. The fingerprint of the code was `{code}`;",
        "`python -m tests.soak --code` prints that of the code here, which may have changed since.",
    ]
    if left:
        lines += ["", f"Not shown with this code, so their numbers are missing here: {', '.join(left)}."]
    if red:
        lines += ["", f"Red before they were green, with the same code, and how often: {', '.join(red)}."]
    for promise in PROMISES.values():
        held = [(backend, proof) for each, backend, proof in proofs if each is promise]
        if held:
            lines += ["", f"## {promise.title}", "", promise.words, ""]
            lines += [f"- {BACKENDS[backend]}: {proof}." for backend, proof in held]
    return "\n".join(lines) + "\n"


def _proofs(measured: Iterable[dict[str, Any]]) -> Iterable[tuple[Promise, str, str]]:
    order = list(PROMISES)
    for one in sorted(measured, key=lambda one: (order.index(one["promise"]), list(BACKENDS).index(one["backend"]))):
        promise = PROMISES[one["promise"]]
        yield promise, one["backend"], promise.proof(one["numbers"])


def _files() -> list[str]:
    """The files of `TESTS`, each to be run by itself."""
    found: list[str] = []
    for one in TESTS:
        folder = ROOT / one
        files = sorted(folder.glob("test_*.py")) if folder.is_dir() else []
        found += [file.relative_to(ROOT).as_posix() for file in files] or [one]
    return found


def fingerprint() -> str:
    """A fingerprint of the library's code: what was green with other code proves nothing of this."""
    told = hashlib.sha256()
    for file in sorted((ROOT / "src").rglob("*")):
        if file.suffix in {".py", ".sql"}:
            told.update(file.read_bytes())
    return told.hexdigest()[:12]


def _run(measured: Path, file: str) -> int:
    command = [sys.executable, "-m", "pytest", file, "-p", "no:randomly", "--timeout=300", "-q"]
    environment = {**os.environ, "STEPWELL_SOAK": "1", "STEPWELL_SOAK_REPORT": str(measured)}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def _grown(of: Numbers, name: str) -> str:
    return _change(of["few"][name], of["full"][name])


def _change(few: int, full: int) -> str:
    return f"{few:,}" if few == full else f"{few:,} → {full:,}"


def _each(costs: Mapping[str, float]) -> str:
    return " / ".join(f"{cost:g}" for cost in costs.values())


def _processes(count: int) -> str:
    return f"{count} process{'es' if count > 1 else ''}"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
