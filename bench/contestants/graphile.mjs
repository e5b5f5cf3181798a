// graphile-worker for the benchmark: reads one JSON command a line, and answers each with one line.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(`${process.env.BENCH_MODULES}/`);
const { Logger, makeWorkerUtils, run } = require("graphile-worker");

const [, , url, task] = process.argv;
const CHUNK = 1000; // jobs a call of addJobs
const logger = new Logger(() => () => {});
const utils = await makeWorkerUtils({ connectionString: url, logger });

async function add({ first, last }) {
  for (let start = first; start < last; start += CHUNK) {
    const length = Math.min(CHUNK, last - start);
    await utils.addJobs(Array.from({ length }, (_, at) => ({ identifier: task, payload: { i: start + at } })));
  }
}

async function drain({ count, concurrency, local }) {
  let left = count;
  let finish;
  const finished = new Promise((resolve) => { finish = resolve; });
  const noop = async () => { if (--left === 0) finish(); };
  const worker = {
    connectionString: url, concurrentJobs: concurrency, pollInterval: 1000, logger,
    ...(local && { localQueue: { size: local }, completeJobBatchDelay: 0, failJobBatchDelay: 0 }),
  };
  const runner = await run({ preset: { worker }, noHandleSignals: true, taskList: { [task]: noop } });
  await finished;
  await runner.stop();
}

const verbs = { install: () => utils.migrate(), add, drain, close: () => utils.release() };
for await (const line of createInterface({ input: process.stdin })) {
  const { verb, ...given } = JSON.parse(line);
  try {
    await verbs[verb](given);
    process.stdout.write("done\n");
  } catch (error) {
    process.stdout.write(`${JSON.stringify(String(error.stack))}\n`);
  }
  if (verb === "close") process.exit(0);
}
