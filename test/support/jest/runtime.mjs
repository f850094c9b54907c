import { createRequire } from "node:module";
import { types } from "node:util";
import { SyntheticModule } from "node:vm";
import Runtime from "jest-runtime";

const require = createRequire(import.meta.url);

/** OpenTelemetry keeps providers in globals, and undici reads the environment: a test file has its own of both. */
const isShared = (path) => /\/node_modules\/(?!@opentelemetry\/|undici\/)/.test(path);

/** Loads packages by Node's own `require`, once a worker: a test file would take a second of CPU time for its own. */
// oxlint-disable-next-line import/no-default-export -- Jest takes the default export of a runtime.
export default class extends Runtime {
  constructor(...given) {
    super(...given);
    const loader = this.esmLoader;
    const { buildCjsAsEsmSyntheticModule: build, pendingCjsBuildIsUnmarkedEsm: isUnmarkedEsm } = loader;
    loader.buildCjsAsEsmSyntheticModule = (from, path, context) =>
      isShared(path) ? sharedModule(path, context) : build.call(loader, from, path, context);
    loader.pendingCjsBuildIsUnmarkedEsm = (pending) =>
      !isShared(pending.modulePath) && isUnmarkedEsm.call(loader, pending);
  }

  unstable_shouldLoadAsEsm(path) {
    return !isShared(path) && super.unstable_shouldLoadAsEsm(path);
  }
}

function sharedModule(path, context) {
  const loaded = require(path);
  const exported = types.isModuleNamespaceObject(loaded) ? { ...loaded } : { ...loaded, default: loaded };
  const entries = Object.entries(exported);
  return new SyntheticModule(
    entries.map(([name]) => name),
    function setAll() {
      for (const [name, value] of entries) this.setExport(name, value);
    },
    { context, identifier: path },
  );
}
