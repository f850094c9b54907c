import type { BrokerName } from "./types.js";

const SENTENCES: Record<BrokerName, readonly string[]> = {
  redis: [
    "On Debian or Ubuntu, run: sudo apt-get install redis-server",
    "On Fedora or RHEL, run: sudo dnf install valkey (redis on older releases)",
    "On Arch, run: sudo pacman -S valkey",
    "On Alpine, run: sudo apk add redis",
    "On macOS with Homebrew, run: brew install redis",
  ],
  nats: [
    "On Debian or Ubuntu, run: sudo apt-get install nats-server",
    "On Fedora or RHEL, run: sudo dnf install golang && go install github.com/nats-io/nats-server/v2@latest",
    "On Arch, run: sudo pacman -S nats-server",
    "On Alpine, run: sudo apk add nats-server",
    "On macOS with Homebrew, run: brew install nats-server",
  ],
};

/** The error for a server that is neither installed nor fetchable: why, and what to install on each system. */
export function missingBroker(name: BrokerName, reason: string): Error {
  const variable = `TIMELINE_${name.toUpperCase()}_SERVER`;
  const lines = SENTENCES[name].map((sentence) => `  ${sentence}`).join("\n");
  const head = `${name}-server was not found and could not be fetched: ${reason}`;
  return new Error(`${head}\nInstall it, or name a binary in ${variable}.\n${lines}`);
}
