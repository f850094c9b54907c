const { pathToFileURL } = require("node:url");
const { join, relative } = require("node:path");

/**
 * Takes the place of jest-runtime, which loads every module of every file anew in a virtual machine: 2 s of CPU time for
 * an integration test. This one lets Node import the bundle of a test file; libraries stay loaded.
 */
module.exports = class {
  #config;
  #sourceMaps = new Map();

  constructor(config) {
    this.#config = config;
  }

  setGlobalsForRuntime(globals) {
    Object.assign(globalThis, globals);
  }

  /** The framework keeps the tests it has collected in its module: a new one for each file. */
  requireInternalModule(path) {
    delete require.cache[path];
    return require(path);
  }

  requireModule(path) {
    return require(path);
  }

  unstable_shouldLoadAsEsm() {
    return true;
  }

  async unstable_importModule(path) {
    const { bundles } = this.#config.testEnvironmentOptions;
    const bundle = join(bundles, relative(join(this.#config.rootDir, "test"), path).replace(/\.ts$/, ".mjs"));
    // A file that is watched runs again.
    const url = `${pathToFileURL(bundle).href}?${Date.now()}`;
    this.#sourceMaps.set(url, `${bundle}.map`);
    await import(url);
  }

  getSourceMaps() {
    return this.#sourceMaps;
  }

  getAllCoverageInfoCopy() {
    return undefined;
  }

  enterTestCode() {}
  leaveTestCode() {}
  teardown() {}
};
