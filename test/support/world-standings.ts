import { Standing, type StandingEntry } from "../../src/gen/avion/users.js";

export type StandingName = "active" | "limited" | "suspended";

/** Either a user or a host. */
export type Subject = { readonly user_id: string } | { readonly host: string };

const NUMBERS: Record<StandingName, Standing> = {
  active: Standing.ACTIVE,
  limited: Standing.LIMITED,
  suspended: Standing.SUSPENDED,
};

/** Standings of users and hosts, as the users service has them. */
export class WorldStandings {
  readonly #entries = new Map<string, StandingEntry>();

  /** `until` is in ms since the epoch; 0: for good. Returns the version of the change. */
  set(subject: Subject, standing: StandingName, until = 0): number {
    const key = JSON.stringify(subject);
    const version = (this.#entries.get(key)?.version ?? 0) + 1;
    const stated = { standing: NUMBERS[standing], until, version, changed_at: Date.now() };
    this.#entries.set(key, { ...{ user_id: "", host: "", reason: "", by: "" }, ...subject, ...stated });
    return version;
  }

  /** The stricter one of a user's own standing and that of the host. */
  of(user: string): StandingName {
    const labels = URL.canParse(user) ? new URL(user).host.split(".") : [];
    const subjects = [{ user_id: user }, ...labels.map((_, from) => ({ host: labels.slice(from).join(".") }))];
    const known = subjects
      .flatMap((subject) => this.#entries.get(JSON.stringify(subject)) ?? [])
      .filter(({ until }) => until === 0 || until > Date.now())
      .map(({ standing }) => standing);
    if (known.includes(Standing.SUSPENDED)) return "suspended";
    return known.includes(Standing.LIMITED) ? "limited" : "active";
  }

  all(): StandingEntry[] {
    return [...this.#entries.values()].filter(({ standing }) => standing !== Standing.ACTIVE);
  }

  /** Those changed in [since, until); `until` 0 is open-ended. */
  changed(since: number, until: number): StandingEntry[] {
    const isWithin = (at: number): boolean => at >= since && (until === 0 || at < until);
    return [...this.#entries.values()].filter(({ changed_at }) => isWithin(changed_at));
  }
}
