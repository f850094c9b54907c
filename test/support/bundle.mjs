import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";

const DIST = join(process.cwd(), "dist");
const FOLDER = join(process.cwd(), "node_modules/.cache/avion-timeline-test");
const MAIN = join(FOLDER, "bundle/main.mjs");

/**
 * Bundles what `npm run build` made, once for each build. Loading some 900 modules takes a process about a second of
 * CPU time, the bundle a third of that; the tests start hundreds of processes.
 */
// oxlint-disable-next-line import/no-default-export -- Jest calls the default export of a globalSetup.
export default async function bundle() {
  if (process.env.AVION_TEST_MAIN !== undefined || !existsSync(join(DIST, "main.js"))) return;
  if (!existsSync(MAIN) || statSync(MAIN).mtimeMs < newestIn(DIST)) await make();
  process.env.AVION_TEST_MAIN = MAIN;
}

function newestIn(folder) {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true });
  return Math.max(...files.map((file) => statSync(join(file.parentPath, file.name)).mtimeMs));
}

async function make() {
  const { build, stop } = await import("esbuild");
  const draft = join(FOLDER, `draft-${process.pid}`);
  mkdirSync(draft, { recursive: true });
  await build({
    entryPoints: { main: join(DIST, "main.js") },
    outdir: draft,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    // Modules that are imported later stay so: instruments must be made after telemetry has started.
    splitting: true,
    platform: "node",
    target: "node20",
    format: "esm",
    minifyWhitespace: true,
    // It finds its WebAssembly beside itself.
    external: ["@electric-sql/pglite"],
    banner: {
      js: 'import { createRequire as require_ } from "node:module"; const require = require_(import.meta.url);',
    },
    plugins: [{ name: "places", setup: keepPlaces }],
    logLevel: "warning",
  });
  // Its own process would keep Jest from ending.
  await stop();
  rmSync(join(FOLDER, "bundle"), { recursive: true, force: true });
  renameSync(draft, join(FOLDER, "bundle"));
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
