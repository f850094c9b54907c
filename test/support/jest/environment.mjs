import { TestEnvironment } from "jest-environment-node";

/** Kills what a test file has left running: the `process` of a test is a copy, which never says that it ends. */
// oxlint-disable-next-line import/no-default-export -- Jest takes the default export of a testEnvironment.
export default class extends TestEnvironment {
  async setup() {
    await super.setup();
    this.global.startedProcesses = new Set();
  }

  async teardown() {
    for (const child of this.global.startedProcesses) child.kill("SIGKILL");
    await super.teardown();
  }
}
