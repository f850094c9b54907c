import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";
import { type Browser, chromium } from "playwright-core";

/** A Chromium of the machine; none is fetched. */
const path = ["chromium", "chromium-browser", "google-chrome"]
  .flatMap((name) => (process.env["PATH"] ?? "").split(delimiter).map((folder) => join(folder, name)))
  .find((one) => existsSync(one));

export const hasBrowser = path !== undefined;

if (!hasBrowser) console.warn("no Chromium on the PATH: the tests in a browser are skipped");

export const launchBrowser = (): Promise<Browser> =>
  chromium.launch({
    executablePath: path as string,
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--disable-dev-shm-usage",
      "--no-first-run",
      "--disable-background-networking",
    ],
  });
