import { type Sample, samplesOf } from "./scrape.js";
import type { Service } from "./service.js";

/** Returns the counters of deliveries that were repeated or given up. An outage must leave none. */
export async function spentAttempts({ httpUrl }: Pick<Service, "httpUrl">): Promise<Sample[]> {
  const samples = samplesOf(await (await fetch(`${httpUrl}/metrics`)).text());
  const spent = ["retried", "dead-lettered"];
  return samples.filter(
    ({ name, labels: { outcome = "" }, value }) =>
      name === "timeline_deliveries_total" && spent.includes(outcome) && value > 0,
  );
}
