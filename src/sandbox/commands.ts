import { Command } from "commander";
import { wholeNumber } from "../cli/options.js";

/** The commands that start servers and a seeded world of their own. Each loads its code when it is called. */
export function sandboxCommands(): Command[] {
  const followers = ["--followers <count>", "followers of the author with the most"] as const;
  const anyCount = wholeNumber({ max: 1_000_000 });
  const up = new Command("up")
    .description("start embedded Redis and NATS, a seeded world and every role, and stay up")
    .option("--http-port <port>", "preferred HTTP port", wholeNumber({ max: 65_535 }), 8080)
    .option("--grpc-port <port>", "preferred gRPC port", wholeNumber({ max: 65_535 }), 50051)
    .option(...followers, anyCount, 1_200)
    .option("--dashboards", "also start Prometheus, and Grafana with the dashboards, if they are installed")
    .option("--json", "print where everything is as JSON, for tools")
    .action(async (options) => (await import("./up.js")).up(options));
  const demo = new Command("demo")
    .description("start all of it, walk through the main job with real events, check it, and end")
    .option(...followers, anyCount, 1_200)
    .action(async (options) => process.exit(await (await import("./demo/demo.js")).demo(options)));
  return [up, demo];
}
