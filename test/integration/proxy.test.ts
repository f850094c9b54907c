import { once } from "node:events";
import { createServer, connect as dial, type Server, type Socket } from "node:net";
import { afterEach, beforeEach, expect, test } from "@jest/globals";
import { eventually } from "../support/eventually.js";
import { TcpProxy } from "../support/proxy.js";

let server: Server;
let proxy: TcpProxy;
let heard = "";
let answered = "";
let served: Socket | undefined;
let client: Socket;

beforeEach(async () => {
  [heard, answered] = ["", ""];
  server = createServer((socket) => {
    served = socket;
    socket.on("error", () => undefined);
    socket.on("data", (chunk: Buffer) => {
      heard += chunk.toString();
      socket.write(chunk.toString().toUpperCase());
    });
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  proxy = await TcpProxy.open((server.address() as { port: number }).port);
  client = dial({ port: Number(new URL(proxy.url("redis")).port), host: "127.0.0.1" });
  client.on("error", () => undefined);
  client.on("data", (chunk: Buffer) => {
    answered += chunk.toString();
  });
  await once(client, "connect");
  await eventually(() => served !== undefined, "the link is whole");
});

afterEach(async () => {
  client.destroy();
  await proxy.close();
  server.close();
  served = undefined;
});

test("it passes bytes in both directions", async () => {
  client.write("a");
  await eventually(() => answered === "A", "the answer");
});

test("bytes that are held back arrive later, in order, also after the sender has closed", async () => {
  proxy.set("pause", "toServer");
  client.write("a");
  client.write("b");
  await eventually(() => proxy.heldBack("toServer") === 2, "both are held back");
  expect(heard).toBe("");
  client.destroy();
  proxy.set("pass");
  await eventually(() => heard === "ab", "both arrive");
});

test("swallowed in one direction: it is heard and never answered, and the link is cut once all passes again", async () => {
  proxy.set("drop", "toClient");
  client.write("a");
  await eventually(() => proxy.swallowed("toClient") === 1, "the answer is swallowed");
  expect([heard, answered, client.destroyed]).toEqual(["a", "", false]);
  proxy.set("pass");
  await eventually(() => client.closed, "the link is cut");
});

test("cut: both ends notice; refused: nobody gets in", async () => {
  proxy.cut();
  await eventually(() => client.closed && served?.closed === true, "both ends are closed");
  proxy.refuse(true);
  const second = dial({ port: Number(new URL(proxy.url("nats")).port), host: "127.0.0.1" });
  const [error] = (await once(second, "error")) as [NodeJS.ErrnoException];
  expect(error.code).toBe("ECONNRESET");
});

test("silenced: what there is stays open and hears no more; new connections pass, and go where they are led", async () => {
  proxy.silence();
  client.write("a");
  await eventually(() => proxy.swallowed("toServer") === 1, "it is swallowed");
  const other = createServer((socket) => socket.on("error", () => undefined).end("other")).listen(0, "127.0.0.1");
  await once(other, "listening");
  const port = Number(new URL(proxy.url("redis")).port);
  const second = dial({ port, host: "127.0.0.1" });
  second.write("b");
  await eventually(() => heard === "b", "a new one is heard");
  proxy.aim((other.address() as { port: number }).port);
  const third = dial({ port, host: "127.0.0.1" });
  const [answer] = await once(third, "data");
  expect(String(answer)).toBe("other");
  expect([heard, answered, client.destroyed, served?.destroyed]).toEqual(["b", "", false, false]);
  for (const socket of [second, third]) socket.destroy();
  other.close();
});
