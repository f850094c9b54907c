import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { startTelemetry } from "../../src/telemetry/exporters.js";

/** One line of a scrape. */
export interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** Reads a scrape. @throws Error for a line that is no sample */
export function samplesOf(text: string): Sample[] {
  const lines = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  return lines.map((line) => {
    const [, name, labels = "", value = ""] = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
    if (name === undefined) throw new Error(`no sample: ${line}`);
    const pairs = [...labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, key, held]) => [key, held] as const);
    return { name, labels: Object.fromEntries(pairs), value: Number(value.replace("Inf", "Infinity")) };
  });
}

/** The metrics of this process. */
export interface Scraped {
  scrape(): Promise<Sample[]>;
  /** The value of one sample; undefined where there is none. */
  value(name: string, labels?: Readonly<Record<string, string>>): Promise<number | undefined>;
  close(): Promise<void>;
}

/** Starts the telemetry of this process. What makes instruments must be imported after it. */
export async function startScraping(): Promise<Scraped> {
  const telemetry = startTelemetry({}, "test");
  const server = createServer((request, response) => telemetry.scrape(request, response));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const scrape = async (): Promise<Sample[]> => samplesOf(await (await fetch(url)).text());
  return {
    scrape,
    value: async (name, labels = {}) =>
      (await scrape()).find(
        (one) => one.name === name && Object.entries(labels).every(([key, held]) => one.labels[key] === held),
      )?.value,
    close: async () => {
      await telemetry.close();
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
