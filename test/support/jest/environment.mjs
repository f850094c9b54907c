import { TestEnvironment } from "jest-environment-node";

const { [Symbol.hasInstance]: usual } = Function.prototype;

/** A test has globals of its own. This closes two gaps between them and those of Node. */
// oxlint-disable-next-line import/no-default-export -- Jest takes the default export of a testEnvironment.
export default class extends TestEnvironment {
  async setup() {
    await super.setup();
    const { Error: OfTest } = this.global;
    // Errors that Node's own functions throw have another prototype.
    Object.defineProperty(OfTest, Symbol.hasInstance, {
      value(error) {
        return usual.call(this, error) || (this === OfTest && error instanceof Error);
      },
    });
    // The `process` of a test is a copy, which never emits "exit".
    this.global.startedProcesses = new Set();
  }

  async teardown() {
    for (const child of this.global.startedProcesses) child.kill("SIGKILL");
    await super.teardown();
  }
}
