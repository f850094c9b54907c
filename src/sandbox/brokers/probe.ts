import { connect } from "node:net";

const ANSWER_LIMIT_CHARS = 256 * 1024;
const ANSWER_TIMEOUT_MS = 1_000;

/** Whether the server we started is the one that answers: `starting` means ask again. */
export type Readiness = "ready" | "starting";

/** Redis is ready when it answers a PING, and the process that answers is ours. */
export async function probeRedis(port: number, pid: number): Promise<Readiness> {
  const answer = await talk(port, "PING\r\nINFO server\r\n", (text) => /process_id:\d+\r|^-.*\r\n-.*\r\n/.test(text));
  // With a password set every command is refused, which is an answer as well.
  if (answer.startsWith("-NOAUTH")) return "ready";
  // Another server may own the port while ours is just failing to bind it.
  return answer.startsWith("+PONG") && answer.includes(`process_id:${pid}\r`) ? "ready" : "starting";
}

/** NATS is ready when it answers PING, has JetStream on, and carries the name we gave it. */
export async function probeNats(port: number, serverName: string | undefined): Promise<Readiness> {
  const hello = `CONNECT {"verbose":false,"pedantic":false}\r\nPING\r\n`;
  const answer = await talk(port, hello, (text) => /\r\nPONG\r\n|\r\n-ERR/.test(text));
  const info = readInfo(answer);
  if (info === undefined || (serverName !== undefined && info["server_name"] !== serverName)) return "starting";
  const answered = answer.includes("\r\nPONG\r\n") || answer.includes("-ERR 'Authorization Violation'");
  return answered && info["jetstream"] === true ? "ready" : "starting";
}

function readInfo(answer: string): Record<string, unknown> | undefined {
  const json = /^INFO (\{.*\})\s*\r\n/.exec(answer)?.[1];
  if (json === undefined) return undefined;
  try {
    return JSON.parse(json) as Record<string, unknown>;
  } catch {
    return undefined;
  }
}

// Sends one text and gathers the answer until it is complete; whatever came so far when the connection fails.
function talk(port: number, request: string, complete: (text: string) => boolean): Promise<string> {
  return new Promise((resolve) => {
    let text = "";
    const socket = connect({ port, host: "127.0.0.1" });
    const finish = (): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve(text);
    };
    const timer = setTimeout(finish, ANSWER_TIMEOUT_MS);
    socket.setEncoding("utf8");
    socket.once("connect", () => socket.write(request));
    socket.on("data", (chunk: string) => {
      text += chunk;
      if (complete(text) || text.length > ANSWER_LIMIT_CHARS) finish();
    });
    socket.once("error", finish);
    socket.once("close", finish);
  });
}
