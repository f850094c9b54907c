const { context, metrics, propagation, trace } = require("@opentelemetry/api");

/** The global object of Node itself: no virtual machine, so that a worker loads each library once, not once a file. */
module.exports = class {
  global = globalThis;
  #console = globalThis.console;
  #env = { ...process.env };

  getVmContext() {
    return null;
  }

  async setup() {
    // Each file has its own modules, which want to hear of the end of the worker.
    process.setMaxListeners(0);
    // Providers of an earlier file would refuse the providers of this one, and take its spans.
    for (const api of [trace, metrics, context, propagation]) api.disable();
  }

  async teardown() {
    globalThis.console = this.#console;
    for (const name of Object.keys(process.env)) delete process.env[name];
    Object.assign(process.env, this.#env);
  }
};
