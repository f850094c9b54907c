import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";

const DIST = join(process.cwd(), "dist");
const FOLDER = join(process.cwd(), "node_modules/.cache/avion-timeline-test");
const MAIN = join(FOLDER, "bundle/start.cjs");
const ENTRY = join(FOLDER, "bundle/entry.cjs");
const SUPPORT = join(import.meta.dirname, "..");

/** The bundle of the product is made again when something in these has changed. */
const BUNDLED = [
  DIST,
  import.meta.dirname,
  join(SUPPORT, "entry"),
  join(SUPPORT, "failpoints.ts"),
  join(SUPPORT, "limits.ts"),
];

/**
 * `main` does as dist/main.js, `entry` as support/entry/main.ts. Modules imported later stay so: instruments must be made
 * after telemetry has started.
 */
const EXPORTS = `
  export const main = async () => {
    const { runCli } = await import("./cli/program.js");
    const { sandboxCommands } = await import("./sandbox/commands.js");
    await runCli(process.argv, sandboxCommands());
  };
  export const entry = async () => {
    const { runEntry } = await import(${JSON.stringify(join(SUPPORT, "entry/entry.ts"))});
    const { hookFailpoints } = await import("./kernel/failpoints.js");
    const { serve } = await import("./cli/serve.js");
    const { runCli } = await import("./cli/program.js");
    await runEntry({ hookFailpoints, serve, runCli: (argv) => runCli(argv, []) });
  };`;

/** Bundles what `npm run build` made, where it is there. */
// oxlint-disable-next-line import/no-default-export -- Jest calls the default export of a globalSetup.
export default async function bundle() {
  if (process.env.AVION_TEST_MAIN !== undefined || !existsSync(join(DIST, "main.js"))) return;
  Object.assign(process.env, { AVION_TEST_MAIN: MAIN, AVION_TEST_ENTRY: ENTRY });
  if (existsSync(MAIN) && statSync(MAIN).mtimeMs > Math.max(...BUNDLED.map(newestIn))) return;
  const { build, stop } = await import("esbuild");
  await bundleProduct(build);
  // Its own process would keep Jest from ending.
  await stop();
}

/**
 * Loading some 900 modules takes a process about a second of CPU time, the bundle a third of that; the tests start
 * hundreds of processes.
 */
async function bundleProduct(build) {
  const draft = join(FOLDER, `draft-${process.pid}`);
  const { outputFiles } = await build({
    bundle: true,
    platform: "node",
    target: "node20",
    logLevel: "warning",
    stdin: { contents: EXPORTS, resolveDir: DIST },
    write: false,
    format: "cjs",
    minifyWhitespace: true,
    // `import()` fails in a script whose compiled code was kept.
    supported: { "dynamic-import": false },
    // It finds its WebAssembly beside itself.
    external: ["@electric-sql/pglite"],
    plugins: [{ name: "places", setup: keepPlaces }],
  });
  mkdirSync(draft, { recursive: true });
  writeFileSync(join(draft, "main.cjs"), inAscii(outputFiles[0].text));
  for (const file of ["start.cjs", "entry.cjs"]) copyFileSync(join(import.meta.dirname, file), join(draft, file));
  rmSync(join(FOLDER, "bundle"), { recursive: true, force: true });
  renameSync(draft, join(FOLDER, "bundle"));
}

/** V8 takes such a text as it is, in a byte a character. esbuild leaves regular expressions alone. */
function inAscii(text) {
  return text.replaceAll(/[^\0-\x7f]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

function newestIn(path) {
  if (!statSync(path).isDirectory()) return statSync(path).mtimeMs;
  const files = readdirSync(path, { recursive: true, withFileTypes: true });
  return Math.max(...files.map((file) => statSync(join(file.parentPath, file.name)).mtimeMs));
}

/** Scripts, migrations and the protos of libraries are found where their modules stand. */
function keepPlaces({ onLoad }) {
  onLoad({ filter: /\.js$/ }, ({ path }) => {
    const text = readFileSync(path, "utf8");
    if (!/\bimport\.meta\.url\b|\b__dirname\b/.test(text)) return undefined;
    const contents = text
      .replaceAll(/\bimport\.meta\.url\b/g, JSON.stringify(pathToFileURL(path).href))
      .replaceAll(/\b__dirname\b/g, JSON.stringify(dirname(path)));
    return { contents, loader: "js" };
  });
}
