import { once } from "node:events";
import { copyFileSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { type AddressInfo, connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createServer as createTlsServer, TLSSocket } from "node:tls";
import { credentials } from "@grpc/grpc-js";
import { afterAll, afterEach, beforeAll, expect, test } from "@jest/globals";
import { HealthClient } from "../../src/gen/grpc/health/v1/health.js";
import { silent } from "../../src/kernel/logger.js";
import { openPostgres } from "../../src/platform/db/postgres.js";
import { serveGrpc } from "../../src/platform/grpc/serve.js";
import { connectNats, credentialsOf } from "../../src/platform/nats/connect.js";
import { connectUpstreams, isUnimplemented } from "../../src/upstreams/upstreams.grpc.js";
import { privateNats } from "../support/brokers.js";
import { type Certificates, makeCertificates, type Pair } from "../support/certificates.js";
import { eventually } from "../support/eventually.js";
import { newPort } from "../support/ports.js";

const folder = mkdtempSync(join(tmpdir(), "timeline-test-swapped-"));
const files = { ca: join(folder, "ca.pem"), cert: join(folder, "tls.crt"), key: join(folder, "tls.key") };
let first: Certificates;
let second: Certificates;

const cleanups: (() => unknown)[] = [];
afterEach(() => {
  for (const cleanup of cleanups.splice(0)) cleanup();
});

beforeAll(() => {
  first = makeCertificates();
  second = makeCertificates();
});
afterAll(() => {
  first?.remove();
  second?.remove();
  rmSync(folder, { recursive: true, force: true });
});

/** A file is replaced at once, as a mounted secret is. */
function swap(from: string, to: string): void {
  copyFileSync(from, `${to}.new`);
  renameSync(`${to}.new`, to);
}

function swapAll({ ca, good }: Certificates): void {
  swap(ca, files.ca);
  swap(good.cert, files.cert);
  swap(good.key, files.key);
}

/** True where a client with these certificates, which trusts their CA, is answered. */
async function answers(port: number, { ca, good }: Certificates): Promise<boolean> {
  const [trusted, key, cert] = [ca, good.key, good.cert].map((file) => readFileSync(file));
  const client = new HealthClient(
    `localhost:${port}`,
    credentials.createSsl(trusted as Buffer, key as Buffer, cert as Buffer),
  );
  try {
    return await new Promise((resolve) =>
      client.check({ service: "" }, { deadline: Date.now() + 10_000 } as never, (error) => resolve(error === null)),
    );
  } finally {
    client.close();
  }
}

/** Files that are in use are read again after this. */
const REREAD_MS = 10_000;

/** Returns a function that has the files read again at once, of everything that is opened from now on. */
function hastenedReads(): () => void {
  const { setInterval } = globalThis;
  const reads: (() => void)[] = [];
  const hastened = (work: () => void, ms?: number): NodeJS.Timeout => {
    if (ms === REREAD_MS) reads.push(work);
    return setInterval(work, ms);
  };
  Object.assign(globalThis, { setInterval: hastened });
  cleanups.push(() => Object.assign(globalThis, { setInterval }));
  return () => {
    expect(reads.length).toBeGreaterThan(0);
    for (const read of reads) read();
  };
}

test("gRPC uses renewed certificates in both directions, and those before while a pair does not fit", async () => {
  swapAll(first);
  const readAgain = hastenedReads();
  const address = `127.0.0.1:${await newPort()}`;
  let server = await serveGrpc(address, [], files);
  const { port } = server;
  const upstreams = connectUpstreams({ userServiceAddr: address, postServiceAddr: address, tls: files });
  const isReached = (): Promise<boolean> => upstreams.retention().then(() => true, isUnimplemented);
  try {
    await eventually(isReached, "the client reaches the server");
    // The key follows after the files were read without it.
    swap(second.ca, files.ca);
    swap(second.good.cert, files.cert);
    readAgain();
    expect(await answers(port, first)).toBe(true);
    swap(second.good.key, files.key);
    readAgain();
    await eventually(() => answers(port, second), "the server shows its new certificate");
    expect(await answers(port, first)).toBe(false);
    await server.close(0);
    server = await serveGrpc(address, [], files);
    await eventually(isReached, "the client shows its new certificate, and trusts the new CA");
  } finally {
    upstreams.close();
    await server.close(0);
  }
});

test("a server must show a certificate of the IP address that it is called by", async () => {
  const reached = async ({ cert, key }: Pair): Promise<unknown> => {
    const server = await serveGrpc("127.0.0.1:0", [], { cert, key });
    const address = `127.0.0.1:${server.port}`;
    const upstreams = connectUpstreams({ userServiceAddr: address, postServiceAddr: address, tls: { ca: first.ca } });
    cleanups.push(() => upstreams.close());
    const answer = await upstreams.retention().catch((error: unknown) => error);
    await server.close(0);
    return isUnimplemented(answer) || answer;
  };
  expect(await reached(first.good)).toBe(true);
  expect(String(await reached(first.named))).toMatch(/UNAVAILABLE.*127\.0\.0\.1/);
}, 20_000);

test("a connection to PostgreSQL trusts the CA that its file holds then", async () => {
  swapAll(first);
  let trusted = 0;
  // Takes the request for TLS, and ends the connection at the first message that follows the handshake.
  const server = createServer((socket) => {
    socket.once("error", () => socket.destroy());
    socket.once("data", () => {
      socket.write("S");
      const [cert, key] = [second.good.cert, second.good.key].map((file) => readFileSync(file, "utf8"));
      const secure = new TLSSocket(socket, { isServer: true, cert: cert as string, key: key as string });
      secure.once("error", () => secure.destroy());
      secure.once("data", () => {
        trusted++;
        secure.destroy();
      });
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  const url = `postgres://u:p@127.0.0.1:${port}/d?sslmode=verify-full&sslrootcert=${encodeURIComponent(files.ca)}`;
  const db = openPostgres({ url, poolSize: 1, name: "test" }, silent);
  await expect(db.query("SELECT 1")).rejects.toThrow(/certificate/);
  expect(trusted).toBe(0);
  swapAll(second);
  await expect(db.query("SELECT 1")).rejects.toThrow(/terminated/);
  expect(trusted).toBe(1);
  await db.close();
  await new Promise((resolve) => server.close(resolve));
});

test("a connection to NATS signs with the credentials that its file holds then, or held before", () => {
  const file = join(folder, "nats.creds");
  const write = (jwt: string): void =>
    writeFileSync(
      file,
      `-----BEGIN NATS USER JWT-----\n${jwt}\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\nSUAIBDPBAUTWCWBKIO6XHQNINK5FWJW4OHLXC3HQ2KFE4PEJUA44CNHTC4\n------END USER NKEY SEED------\n`,
    );
  write("first");
  const sign = credentialsOf(file);
  expect(sign("nonce")).toMatchObject({ jwt: "first" });
  write("second");
  expect(sign("nonce")).toMatchObject({ jwt: "second" });
  rmSync(file);
  expect(sign("nonce")).toMatchObject({ jwt: "second" });
});

test("a NATS that begins with TLS is spoken to in TLS first where the setting says so", async () => {
  const { ca, good } = first;
  const plain = await privateNats();
  cleanups.push(() => plain.stop());
  // A server before 2.10.4 does not know handshake_first: TLS ends here, before the greeting.
  const server = createTlsServer({ cert: readFileSync(good.cert), key: readFileSync(good.key) }, (secure) => {
    const inner = connect(plain.port, "127.0.0.1");
    secure.pipe(inner).once("data", (greeting: Buffer) => {
      secure.write(greeting.toString().replace("INFO {", 'INFO {"tls_required":true,'));
      inner.pipe(secure);
    });
    for (const end of [secure, inner]) end.on("error", () => undefined);
  }).listen(0, "127.0.0.1");
  cleanups.push(() => server.close());
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const options = { servers: [`tls://127.0.0.1:${port}`], name: "test", tls: { ca }, failFast: true };
  const connection = await connectNats({ ...options, tlsFirst: true }, silent);
  expect(connection.info?.server_id).toBeDefined();
  await connection.close();
  await expect(connectNats(options, silent)).rejects.toThrow(/NATS/);
});
