import { readFileSync } from "node:fs";
import { isIP } from "node:net";
import { checkServerIdentity, connect, createSecureContext, type PeerCertificate } from "node:tls";
import {
  type ChannelCredentials,
  type ChannelOptions,
  experimental,
  credentials as grpcCredentials,
  ServerCredentials,
} from "@grpc/grpc-js";
import { oneLine } from "../../kernel/errors.js";
import { SECOND } from "../../kernel/time.js";
import { isTlsFault, Refusal } from "../refusals.js";
import { type TlsFiles, usesTls } from "../tls.js";

/** New connections use what the files hold then. With a CA, clients must show a certificate it signed. */
export function serverCredentials(files: TlsFiles): ServerCredentials {
  if (!files.cert || !files.key) return ServerCredentials.createInsecure();
  const certificates = new FileCertificates(files);
  const requiresClients = files.ca !== undefined;
  const { createCertificateProviderServerCredentials } = experimental;
  return createCertificateProviderServerCredentials(
    certificates,
    requiresClients ? certificates : null,
    requiresClients,
  );
}

/**
 * New connections use what the files hold then.
 *
 * @param address the server's, as host:port or dns:///host:port
 */
export function clientCredentials(address: string, files: TlsFiles): ChannelCredentials {
  if (!usesTls(files)) return grpcCredentials.createInsecure();
  const certificates = new FileCertificates(files);
  const { host } = parse(address);
  const check = (_name: string, certificate: PeerCertificate) => checkServerIdentity(host, certificate);
  return experimental.createCertificateProviderChannelCredentials(
    certificates,
    files.cert ? certificates : null,
    isIP(host) ? { checkServerIdentity: check } : {},
  );
}

/**
 * Options of a channel beside {@link clientCredentials}. RFC 6066 allows no IP address as the name that a client asks
 * for, and Node 26 throws at one; grpc-js cannot leave the name out. So it asks for a name that no server has.
 */
export const namedOptions = (address: string, files: TlsFiles): ChannelOptions =>
  usesTls(files) && isIP(parse(address).host) ? { "grpc.ssl_target_name_override": "address.invalid" } : {};

/** A server that takes longer counts as away. */
const HANDSHAKE_MS = 2 * SECOND;
const ADDRESS = /^(?:dns:\/\/\/)?\[?(.+?)\]?:(\d+)$/;

function parse(address: string): { readonly host: string; readonly port: number } {
  const [, host = "", port = ""] = ADDRESS.exec(address) ?? [];
  return { host, port: Number(port) };
}

/**
 * Connects once as clients of {@link clientCredentials} do, whose errors do not tell a refused certificate from an outage.
 *
 * @param server its name and its address, as host:port or dns:///host:port
 * @throws Refusal if TLS fails; a server that is away is no error
 */
export async function checkTls(server: { readonly name: string; readonly address: string }, files: TlsFiles) {
  if (!usesTls(files)) return;
  const socket = connect({ ...parse(server.address), ALPNProtocols: ["h2"], ...readUsable(files) });
  const timer = setTimeout(() => socket.destroy(), HANDSHAKE_MS);
  const fault = await new Promise<Error | undefined>((resolve) => {
    socket.on("error", resolve);
    // The first frame is awaited: in TLS 1.3 a server refuses the client after the handshake.
    socket.once("data", () => resolve(undefined));
    socket.once("close", () => resolve(undefined));
  });
  clearTimeout(timer);
  socket.destroy();
  if (!isTlsFault(fault)) return;
  throw new Refusal(`${server.name} ${server.address}: TLS failed: ${oneLine(fault)}`, {
    cause: fault,
    publicMessage: `${server.name} is unavailable`,
  });
}

type Provider = experimental.CertificateProvider;
type CaListener = Parameters<Provider["addCaCertificateListener"]>[0];
type IdentityListener = Parameters<Provider["addIdentityCertificateListener"]>[0];

interface Held {
  readonly ca?: Buffer;
  readonly cert?: Buffer;
  readonly key?: Buffer;
}

/** A Secret of Kubernetes is swapped some time after its mount was renewed: by the minute. */
const REREAD_MS = 10 * SECOND;

/**
 * Reads certificates again while they are in use. What cannot be read, or does not fit together since it is being
 * swapped, leaves the ones before in force: the client's own watcher would drop connections meanwhile.
 */
class FileCertificates implements Provider {
  /** Each listener, and what hands it the certificates. */
  readonly #listeners = new Map<CaListener | IdentityListener, () => void>();
  #held: Held;
  #timer: NodeJS.Timeout | undefined;

  /** @throws Error if a file cannot be read or used */
  constructor(private readonly files: TlsFiles) {
    this.#held = readUsable(files);
  }

  /** Node's own authorities count if there is no CA file, with those of NODE_EXTRA_CA_CERTS. */
  addCaCertificateListener(listener: CaListener): void {
    this.#add(listener, () => listener({ caCertificate: this.#held.ca as Buffer }));
  }

  addIdentityCertificateListener(listener: IdentityListener): void {
    this.#add(listener, () => {
      const { cert, key } = this.#held;
      listener(cert && key ? { certificate: cert, privateKey: key } : null);
    });
  }

  removeCaCertificateListener(listener: CaListener): void {
    this.#remove(listener);
  }

  removeIdentityCertificateListener(listener: IdentityListener): void {
    this.#remove(listener);
  }

  #add(listener: CaListener | IdentityListener, tell: () => void): void {
    this.#listeners.set(listener, tell);
    this.#timer ??= setInterval(() => this.#reread(), REREAD_MS).unref();
    process.nextTick(tell);
  }

  #remove(listener: CaListener | IdentityListener): void {
    this.#listeners.delete(listener);
    if (this.#listeners.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #reread(): void {
    let read: Held;
    try {
      read = readUsable(this.files);
    } catch {
      // The sample of certificates reports it.
      return;
    }
    if (isSame(read, this.#held)) return;
    this.#held = read;
    for (const tell of this.#listeners.values()) tell();
  }
}

function readUsable({ ca, cert, key }: TlsFiles): Held {
  const material: Held = {
    ...(ca && { ca: readFileSync(ca) }),
    ...(cert && { cert: readFileSync(cert) }),
    ...(key && { key: readFileSync(key) }),
  };
  createSecureContext(material);
  return material;
}

const isSame = (first: Held, other: Held): boolean =>
  (["ca", "cert", "key"] as const).every((name) => first[name]?.toString() === other[name]?.toString());
