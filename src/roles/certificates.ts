import { X509Certificate } from "node:crypto";
import { readFile } from "node:fs/promises";
import type { Logger } from "../kernel/logger.js";
import { MINUTE, SECOND } from "../kernel/time.js";
import { gauge } from "../telemetry/meters.js";
import { startSampling } from "../telemetry/samples.js";
import type { Config } from "./config/config.js";
import { certificateFiles, checkFiles } from "./config/files.js";

const expiry = gauge(
  "timeline_certificate_expiry_seconds",
  "Time until a configured certificate expires; of a file of authorities, the last of them",
);

type Connections = Parameters<typeof checkFiles>[0];

/** Looks at the files again and again: a file that cannot be used any more is logged, too. */
export function startCertificateSample(config: Config, log: Logger) {
  const files = certificateFiles(config);
  const samples = files.length === 0 ? [] : [{ name: "certificates", take: () => expiries(config) }];
  return startSampling(samples, { everyMs: MINUTE / 2, log });
}

async function expiries(connections: Connections) {
  checkFiles(connections);
  const measured = certificateFiles(connections).map(async ({ setting, file }) => {
    const ends = endsOf(await readFile(file, "utf8"));
    // A chain begins with the certificate itself; authorities that have expired may stay in their file.
    const until = /ca\.crt$|rootcert$/.test(setting) ? Math.max(...ends) : (ends[0] ?? Number.NaN);
    const value = (until - Date.now()) / SECOND;
    return { gauge: expiry, labels: { setting }, value };
  });
  return Promise.all(measured);
}

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g;

/** Returns when each certificate of a file expires, in ms since the epoch. */
const endsOf = (text: string): number[] =>
  (text.match(CERTIFICATE) ?? []).map((pem) => Date.parse(new X509Certificate(pem).validTo));
