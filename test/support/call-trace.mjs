import { writeFileSync } from "node:fs";
import { Session } from "node:inspector";

/**
 * Preloaded into a process of the service (`node --import`), to see which of its functions run. Each SIGUSR2 begins the
 * next step, and writes what the one before has found to `<CALL_TRACE_FILE>.<step>`:
 *
 * 1. counts how often every function runs;
 * 2. counts anew;
 * 3. records every entry into the functions of CALL_TRACE_FUNCTIONS (`file name`, as JSON), with the files that led
 *    there, by breakpoints whose condition never holds;
 * 4. nothing more.
 *
 * The whole process is one trace: nothing else may run meanwhile that enters the same functions.
 */
const { CALL_TRACE_FILE = "", CALL_TRACE_FUNCTIONS = "[]" } = process.env;
const session = new Session();
session.connect();

/** The inspector answers before `post` returns. */
function ask(method, params) {
  let answer;
  session.post(method, params, (error, result) => {
    answer = { error, result };
  });
  if (answer.error) throw new Error(`${method}: ${answer.error.message}`);
  return answer.result;
}

const fileOf = (url) => /^file:\/\/.*\/dist\/(.+)\.js$/.exec(url)?.[1];

function counts() {
  return ask("Profiler.takePreciseCoverage").result.flatMap(({ scriptId, url, functions }) => {
    const file = fileOf(url);
    if (file === undefined || url.includes("/node_modules/")) return [];
    return functions.map(({ functionName, ranges: [{ startOffset, count }] }) => {
      return { file, name: functionName, count, scriptId, startOffset };
    });
  });
}

const entries = [];
let busy = [];

/** Named in the conditions of breakpoints; false: the process goes on. */
globalThis.callTraceEntered = (entered) => {
  Error.stackTraceLimit = 100;
  const files = [
    ...new Error().stack.matchAll(/\((file:[^\s()]+?):\d+:\d+\)|at (?:async )?(file:[^\s()]+?):\d+:\d+$/gm),
  ];
  entries.push({ entered, callers: files.map(([, inName, bare]) => fileOf(inName ?? bare)).filter(Boolean) });
  return false;
};

function watch({ file, name, scriptId, startOffset }) {
  const before = ask("Debugger.getScriptSource", { scriptId }).scriptSource.slice(0, startOffset).split("\n");
  const start = { scriptId, lineNumber: before.length - 1, columnNumber: before.at(-1).length };
  const { locations } = ask("Debugger.getPossibleBreakpoints", { start, restrictToFunction: true });
  const condition = `callTraceEntered(${JSON.stringify(`${file} ${name}`)})`;
  ask("Debugger.setBreakpoint", { location: locations[0], condition });
}

const steps = [
  () => {
    ask("Profiler.enable");
    ask("Profiler.startPreciseCoverage", { callCount: true, detailed: false });
    return [];
  },
  () => (busy = counts()),
  () => {
    const counted = counts();
    ask("Profiler.disable");
    ask("Debugger.enable");
    const wanted = new Set(JSON.parse(CALL_TRACE_FUNCTIONS));
    for (const one of busy) if (wanted.has(`${one.file} ${one.name}`)) watch(one);
    return counted;
  },
  () => entries,
];
let step = 0;
process.on("SIGUSR2", () => writeFileSync(`${CALL_TRACE_FILE}.${++step}`, JSON.stringify(steps.shift()?.() ?? [])));
