import { TestEnvironment } from "jest-environment-node";

const { [Symbol.hasInstance]: usual } = Function.prototype;

/** Node's own functions and the packages that all files of a worker share have other globals than a test. */
const SHARED = ["Object", "Error", "Date", "Map", "Promise"];

/** Databases that no file uses. They last for the worker: starting one takes a second of CPU time. */
const idleDatabases = [];

/** Time a worker waits for its next file, ms. After its last one Jest gives it 500 ms to end, and PGlite has a timer of 10 s. */
const NEXT_FILE_MS = 200;
let noNextFile;

function closeIdle() {
  for (const database of idleDatabases.splice(0)) void database.close();
}

/** A test has globals of its own. This closes some gaps between them and those of Node. */
// oxlint-disable-next-line import/no-default-export -- Jest takes the default export of a testEnvironment.
export default class extends TestEnvironment {
  async setup() {
    clearTimeout(noNextFile);
    await super.setup();
    for (const name of SHARED) {
      alike(this.global[name], globalThis[name]);
      alike(globalThis[name], this.global[name]);
    }
    // The `process` of a test is a copy, which never emits "exit".
    this.global.startedProcesses = new Set();
    this.global.idleDatabases = idleDatabases;
  }

  async teardown() {
    for (const child of this.global.startedProcesses) child.kill("SIGKILL");
    await super.teardown();
    noNextFile = setTimeout(closeIdle, NEXT_FILE_MS).unref();
  }
}

/** Makes instances of `other` instances of `own`. */
function alike(own, other) {
  const value = function hasInstance(object) {
    return usual.call(this, object) || (this === own && usual.call(other, object));
  };
  Object.defineProperty(own, Symbol.hasInstance, { configurable: true, value });
}
